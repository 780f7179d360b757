"""Traces and tables of rates as Gavel's simulator has them (github.com/stanford-futuredata/gavel, MIT).

A trace has a job a line, in columns between tabs: model, command, folder, name of the argument for steps, whether it needs
data, steps, GPUs, weight, objective (s after arrival, below 0: none), arrival [s].
Traces that Gavel made of Microsoft's Philly logs
have seven columns: model, command, name of the argument, whether it needs data, steps, arrival [s], GPUs; their steps are those
that one V100 does in the time that the log gives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.base.files import open_text
from gpusim.policies.clusters import ArrivingJob, JobRates

Pair = tuple[str, str, str, int]
_TYPE = re.compile(r"\('(.*)', (\d+)\)")


def read_trace(path: Path) -> list[ArrivingJob]:
    """The jobs in the order of the file.  Raises GpusimError with file:line."""
    found: list[ArrivingJob] = []
    with open_text(path) as file:
        for number, line in enumerate(file.read().splitlines(), 1):
            if line.strip():
                found.append(_job(line.split("\t"), f"{path}:{number}", len(found)))
    return found


def _job(parts: list[str], where: str, number: int) -> ArrivingJob:
    try:
        if len(parts) == 7:
            model, _, _, _, steps, arrival, gpus = parts
            weight, objective, sized = "1", "-1", 1
        elif len(parts) == 10:
            model, _, _, _, _, steps, gpus, weight, objective, arrival = parts
            sized = 0
        else:
            raise GpusimError(f"a job has 10 or 7 columns between tabs, not {len(parts)}", where)
        limit = float(objective)
        job = ArrivingJob(
            name=f"job {number}", model=model, work=int(steps), gpus=int(gpus), weight=float(weight), arrival=float(arrival),
            sized=sized, deadline=limit if limit >= 0 else float("inf"), where=where,
        )  # fmt: skip
    except ValueError as error:
        raise GpusimError(f"a column is no number: {error}", where) from None
    if job.gpus < 1 or job.work < 1 or job.arrival < 0:
        raise GpusimError(f"a job cannot have {job.gpus} GPUs, {job.work:g} steps and arrive at {job.arrival:g} s", where)
    return job


def read_rates(path: Path) -> JobRates:
    """The table: {type of GPU: {"('model', GPUs)": {"null": steps/s alone, "('other', GPUs)": [its, the other's]}}}."""
    alone: dict[tuple[str, str, int], float] = {}
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}
    try:
        for kind, table in json.loads(path.read_bytes()).items():
            for row, columns in table.items():
                model, gpus = _key(row)
                if "null" in columns:
                    alone[kind, model, gpus] = float(columns["null"])
                if len(columns) > ("null" in columns):
                    rows[kind, model, gpus] = columns
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise GpusimError(f"it is no table of rates: {error}", str(path), "see docs/cluster.md") from None
    return JobRates(alone, _Pairs(rows, path))


class _Pairs(Mapping[Pair, tuple[float, float]]):
    """Rates of two together; a table has tens of thousands, of which a run needs few: each is read when it is asked for.

    rows  (type of GPU, model, GPUs) -> what the table has in this row
    """

    def __init__(self, rows: Mapping[tuple[str, str, int], Mapping[str, Any]], path: Path) -> None:
        self._rows, self._path = rows, path
        self._known: dict[Pair, tuple[float, float]] = {}

    def __getitem__(self, key: Pair) -> tuple[float, float]:
        if (known := self._known.get(key)) is not None:
            return known
        kind, model, other, gpus = key
        value = self._rows[kind, model, gpus][f"('{other}', {gpus})"]
        try:
            one, two = map(float, value)
        except (ValueError, TypeError):
            said = f"it is no table of rates: '{model}' beside '{other}' on {gpus} {kind} has {value!r}"
            raise GpusimError(said, str(self._path), "see docs/cluster.md") from None
        self._known[key] = one, two
        return one, two

    def __iter__(self) -> Iterator[Pair]:
        for (kind, model, gpus), columns in self._rows.items():
            for other, same in (_key(column) for column in columns if column != "null"):
                if same == gpus:
                    yield kind, model, other, gpus

    def __len__(self) -> int:
        return sum(len(columns) for columns in self._rows.values())


@cache
def _key(text: str) -> tuple[str, int]:
    match = _TYPE.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is no ('model', GPUs)")
    return match[1], int(match[2])

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
from functools import cache
from pathlib import Path

from gpusim.base.errors import GpusimError
from gpusim.policies.clusters import ArrivingJob, JobRates

_TYPE = re.compile(r"\('(.*)', (\d+)\)")


def read_trace(path: Path) -> list[ArrivingJob]:
    """The jobs in the order of the file.  Raises GpusimError with file:line."""
    found: list[ArrivingJob] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
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
    try:
        raw = json.loads(path.read_text("utf-8"))
        alone: dict[tuple[str, str, int], float] = {}
        packed: dict[tuple[str, str, str, int], tuple[float, float]] = {}
        for kind, rows in raw.items():
            for row, columns in rows.items():
                model, gpus = _key(row)
                for column, value in columns.items():
                    if column == "null":
                        alone[kind, model, gpus] = float(value)
                    else:
                        other, same = _key(column)
                        if same == gpus:
                            packed[kind, model, other, gpus] = float(value[0]), float(value[1])
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise GpusimError(f"it is no table of rates: {error}", str(path), "see docs/cluster.md") from None
    return JobRates(alone, packed)


@cache
def _key(text: str) -> tuple[str, int]:
    match = _TYPE.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is no ('model', GPUs)")
    return match[1], int(match[2])

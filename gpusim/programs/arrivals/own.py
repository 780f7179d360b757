"""Tables of jobs (CSV): one's own, and pods of Alibaba's GPU cluster of 2023; arrival times of Azure's requests.

One's own has a job a row, in columns of any order: arrival_s, and seconds (alone, on any GPU) or steps with a model whose rates
a table has, or which is a program; gpus, share (of one GPU), memory_gib (of each GPU), peak_gib (what it takes in truth),
host_gib, cpus, types (v100|a100), priority, weight, deadline_s (after the arrival), name; least_gpus (with which it can go on),
unit_gpus (it has a multiple of so many), save_s (a checkpoint stops it so long), restart_s.  Seconds with a model are those
alone on the fastest type.  What is left out is 1 GPU, nothing known, no deadline.

A pod of Alibaba's (github.com/alibaba/clusterdata, cluster-trace-gpu-v2023) takes its GPUs from `scheduled_time` to
`deletion_time`; it arrives at `creation_time`.  Pods without a GPU, and those that were never scheduled, are left out.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from gpusim.base.errors import GpusimError, suggest
from gpusim.base.files import open_text
from gpusim.policies.clusters import ArrivingJob

GIB = 2.0**30
_COLUMNS = (
    "name", "arrival_s", "seconds", "steps", "model", "gpus", "share", "memory_gib", "peak_gib", "host_gib", "cpus", "types",
    "priority", "weight", "deadline_s", "least_gpus", "unit_gpus", "save_s", "restart_s",
)  # fmt: skip
_NUMBERS = tuple(name for name in _COLUMNS if name not in ("name", "model", "types"))
_PODS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase", "creation_time",
         "deletion_time", "scheduled_time")  # fmt: skip
_REQUESTS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read_table(path: Path) -> list[ArrivingJob]:
    """The jobs in the order of the file; of pods, in the order of arrival.  Raises GpusimError with file:line."""
    found: list[ArrivingJob] = []
    with open_text(path) as file:
        rows = csv.DictReader(file)
        columns = tuple(rows.fieldnames or ())
        read = _reader(columns, path)
        for row in rows:
            where = f"{path}:{rows.line_num}"
            if None in row or None in row.values():
                raise GpusimError(f"this row has not as many values as there are columns ({len(columns)})", where)
            try:
                job = read(row, len(found), where)
            except (ValueError, TypeError):
                raise GpusimError(f"{_not_a_number(row)} is no number", where) from None
            if job is not None:
                found.append(job)
    if columns == _PODS:
        found.sort(key=lambda job: job.arrival)
    return found


def _reader(columns: tuple[str, ...], path: Path) -> Callable[[Mapping[str, str], int, str], ArrivingJob | None]:
    if columns == _PODS:
        return _pod
    if columns == _REQUESTS:
        raise GpusimError("requests are no jobs: only their times can be used", str(path), "like(file=..., jobs=1000)")
    if unknown := [name for name in columns if name not in _COLUMNS]:
        raise GpusimError(f"jobs have no column '{unknown[0]}'", f"{path}:1", suggest(unknown[0], _COLUMNS))
    if "arrival_s" not in columns or not {"seconds", "steps"} & set(columns):
        raise GpusimError("a table of jobs has the columns arrival_s and seconds, or arrival_s, steps and model", f"{path}:1")
    return _own


def _own(row: Mapping[str, str], number: int, where: str) -> ArrivingJob:
    def value(name: str, otherwise: float) -> float:
        found = float(row[name]) if row.get(name) else otherwise
        if not math.isfinite(found) and name != "deadline_s":
            raise ValueError(name)
        return found

    steps, model = bool(row.get("steps")), row.get("model") or ""
    job = ArrivingJob(
        name=row.get("name") or f"job {number}", arrival=value("arrival_s", 0.0), model=model, timed=bool(model) and not steps,
        work=value("steps" if steps else "seconds", 0.0), gpus=int(value("gpus", 1)), share=value("share", 1.0),
        memory=value("memory_gib", 0.0) * GIB, peak=value("peak_gib", 0.0) * GIB, host=value("host_gib", 0.0) * GIB,
        cpus=value("cpus", 0.0), types=tuple(filter(None, (row.get("types") or "").split("|"))),
        priority=value("priority", 0.0), weight=value("weight", 1.0), deadline=value("deadline_s", math.inf),
        least=int(value("least_gpus", 0)), unit=int(value("unit_gpus", 1)), save=_or_nan(row, "save_s"),
        restart=_or_nan(row, "restart_s"), where=where,
    )  # fmt: skip
    if model and steps and job.work % 1:
        raise GpusimError(f"{job.name} cannot do {job.work:g} steps", where, "a whole number, or its seconds alone")
    if not 0 <= job.least <= job.gpus or job.unit < 1 or job.gpus % job.unit or (job.elastic and job.least % job.unit):
        said = f"{job.name} cannot have {job.least} to {job.gpus} GPUs by {job.unit}"
        raise GpusimError(said, where, "least_gpus up to gpus, both multiples of unit_gpus")
    if min(job.save, job.restart) < 0:
        raise GpusimError(f"{job.name} cannot save or restart in a negative time", where, "save_s and restart_s, 0 or more")
    above = {("steps" if steps else "seconds"): job.work, "gpus": job.gpus, "weight": job.weight}
    least = {"arrival_s": job.arrival, "memory_gib": job.memory, "host_gib": job.host, "cpus": job.cpus}
    for name, found in {**above, **least}.items():
        if found < 0 or (found == 0 and name in above):
            at_least = "above 0" if name in above else "0 or more"
            raise GpusimError(f"{job.name} cannot have {name} {row[name]}", where, f"{name} must be {at_least}")
    return job


def _not_a_number(row: Mapping[str, str]) -> str:
    """The first value of this row that is not one, with its column."""
    for name in _NUMBERS:
        try:
            if row.get(name) and not math.isfinite(float(row[name])) and name != "deadline_s":
                raise ValueError
        except ValueError:
            return f"{name} '{row[name]}'"
    return f"'{','.join(row.values())}'"


def _or_nan(row: Mapping[str, str], name: str) -> float:
    found = float(row[name]) if row.get(name) else math.nan
    if math.isinf(found):
        raise ValueError(name)
    return found


def _pod(row: Mapping[str, str], number: int, where: str) -> ArrivingJob | None:
    gpus = int(row["num_gpu"])
    if not gpus or not row["scheduled_time"] or not row["deletion_time"]:
        return None
    seconds = float(row["deletion_time"]) - float(row["scheduled_time"])
    if seconds <= 0:
        return None
    return ArrivingJob(
        name=row["name"], arrival=float(row["creation_time"]), work=seconds, gpus=gpus,
        share=float(row["gpu_milli"]) / 1000.0 if gpus == 1 else 1.0, host=float(row["memory_mib"]) * 2.0**20,
        cpus=float(row["cpu_milli"]) / 1000.0, types=tuple(filter(None, row["gpu_spec"].split("|"))), where=where,
    )  # fmt: skip


def read_times(path: Path) -> list[float]:
    """When something arrives, in s from the first: requests of Azure, or jobs.  Raises GpusimError with file:line."""
    with open_text(path) as file:
        rows = csv.reader(file)
        if tuple(next(rows, ())) != _REQUESTS:
            return [job.arrival for job in read_table(path)]
        times = list(_stamps(rows, path))
    for number, (before, after) in enumerate(pairwise(times), 3):
        if after < before:
            raise GpusimError("a request arrives before the one above it", f"{path}:{number}")
    return [at - times[0] for at in times]


def _stamps(rows: Iterator[list[str]], path: Path) -> Iterator[float]:
    for number, row in enumerate(rows, 2):
        try:
            whole, _, part = row[0].partition(".")
            yield datetime.fromisoformat(whole).timestamp() + float(f"0.{part or 0}")
        except (ValueError, IndexError):
            raise GpusimError(f"'{','.join(row)}' has no time", f"{path}:{number}") from None

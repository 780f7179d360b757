"""From words to jobs, and to a cluster."""

from __future__ import annotations

import csv
import re
from itertools import pairwise
from pathlib import Path

from gpusim.base.errors import GpusimError, nearest
from gpusim.base.files import open_text
from gpusim.machine import catalogue
from gpusim.policies.clusters import ArrivingJob, ClusterNode, ClusterSpec
from gpusim.programs.arrivals import drawn, gavel, own

_PART = re.compile(r"\s*(?:(\d{1,6})\s*x\s+)?(\d{1,6})\s+(\S+)\s*")
_NODES = ("sn", "cpu_milli", "memory_mib", "gpu", "model")


def jobs_of(word: str, base: Path | None = None) -> list[ArrivingJob]:
    """The jobs of a trace (`.trace`: Gavel's, `.csv`: a table), or drawn ones, in the order of arrival.  Raises GpusimError."""
    made = drawn.drawn(word, base)
    if made is not None:
        return made
    path = (base or Path()) / word
    if path.suffix not in (".trace", ".csv"):
        ways = "poisson(jobs=1000, rate=20), diurnal, bursts, like, or a file .trace or .csv"
        near = nearest(word.partition("(")[0], ("poisson", "diurnal", "bursts"))
        raise GpusimError(f"'{word}' says no jobs", hint=f"did you mean '{near[0]}'?" if near else ways)
    if not path.is_file():
        raise GpusimError(f"there is no trace '{word}'")
    found = gavel.read_trace(path) if path.suffix == ".trace" else own.read_table(path)
    if not found:
        raise GpusimError("the trace has no jobs with GPUs", str(path))
    for before, job in pairwise(found):
        if job.arrival < before.arrival:
            said = f"{job.name} arrives at {job.arrival:g} s, before the one above it ({before.arrival:g} s)"
            raise GpusimError(said, job.where, "sort the trace by arrival")
    return found


def cluster_of(word: str, base: Path | None = None) -> ClusterSpec:
    """"8 v100, 4 x 8 p100": a node with 8 GPUs, and four; or a table of nodes as Alibaba's.  Raises GpusimError."""
    if word.strip().endswith(".csv"):
        return _table((base or Path()) / word.strip())
    nodes: list[ClusterNode] = []
    known = frozenset(catalogue.names())
    for part in word.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise GpusimError(f"'{part.strip()}' is no part of a cluster", hint="write 16 x 8 v100, or 8 v100, 4 p100")
        many, gpus, kind = int(match[1] or 1), int(match[2]), match[3]
        if many and gpus:
            memory = catalogue.load(kind).memory.capacity.value if kind in known else float("inf")
            nodes += [ClusterNode(kind=kind, gpus=gpus, memory=float(memory))] * many
    if not nodes:
        raise GpusimError(f"a cluster of '{word}' has no GPUs")
    return ClusterSpec(tuple(nodes))


def _table(path: Path) -> ClusterSpec:
    if not path.is_file():
        raise GpusimError(f"there is no table of nodes '{path}'")
    nodes = []
    with open_text(path) as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != _NODES:
            raise GpusimError(f"a table of nodes has the columns {', '.join(_NODES)}", f"{path}:1")
        for row in rows:
            try:
                if gpus := int(row["gpu"]):
                    host, cpus = float(row["memory_mib"]) * 2.0**20, float(row["cpu_milli"]) / 1000.0
                    nodes.append(ClusterNode(kind=row["model"], gpus=gpus, host=host, cpus=cpus))
            except (ValueError, TypeError):
                raise GpusimError(f"'{','.join(str(v) for v in row.values())}' is no node", f"{path}:{rows.line_num}") from None
    if not nodes:
        raise GpusimError("no node has a GPU", str(path))
    return ClusterSpec(tuple(nodes))

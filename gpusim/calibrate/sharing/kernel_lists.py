"""Pairs of programs under MPS of which each kernel is known: how long it takes, and how many multiprocessors its grid fills.

Orion's authors published the kernels of ten inferences and trainings on a V100, with the times of 31 pairs alone and together.
A kernel takes what its list says, and what a pass alone takes longer than its kernels is between them; where it takes less, all
kernels are shorter by as much.  Nothing is fitted.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np

from gpusim.base.yaml.values import policy
from gpusim.calibrate.sharing.pairs import by_rule
from gpusim.calibrate.sharing.runs import together
from gpusim.engine.run.simulate import Prepared, prepared
from gpusim.machine import catalogue
from gpusim.machine.profile import changed
from gpusim.machine.tenancy import MPS, YIELDS, way
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import I64

DATA = Path(__file__).parents[1] / "data"
KERNELS_FILE, PAIRS_FILE = DATA / "sharing_kernels.csv.gz", DATA / "sharing_lists_published.csv"
GPU = "v100-sxm2-16gb"
WAYS = tuple(by_rule(MPS, rule) for rule in YIELDS)
_PASSES = 4  # of the program with the longer ones


@dataclass(frozen=True)
class ListedPair:
    """Of each of two programs: its name, ms of a pass alone, how many passes, and ms of all of them beside the other's."""

    names: tuple[str, str]
    alone: tuple[float, float]
    times: tuple[int, int]
    measured: tuple[float, float]


@cache
def listed() -> tuple[ListedPair, ...]:
    """The published pairs."""
    with PAIRS_FILE.open(encoding="utf-8", newline="") as rows:
        return tuple(
            ListedPair(
                (r["program"], r["beside"]), (float(r["program_alone_ms"]), float(r["beside_alone_ms"])),
                (int(r["program_times"]), int(r["beside_times"])), (float(r["program_ms"]), float(r["beside_ms"])),
            )
            for r in csv.DictReader(rows)
        )  # fmt: skip


@cache
def kernels() -> dict[str, tuple[I64, I64]]:
    """Of each program its kernels in order: multiprocessors that the grid fills, more than there are in waves; ns alone."""
    found: dict[str, list[tuple[int, int]]] = {}
    with gzip.open(KERNELS_FILE, "rt", encoding="utf-8", newline="") as rows:
        for r in csv.DictReader(rows):
            found.setdefault(r["program"], []).append((int(r["processors"]), int(r["ns"])))
    return {name: (np.array(both)[:, 0], np.array(both)[:, 1]) for name, both in found.items()}


def _program(name: str, alone: float, passes: int) -> Prepared:
    """So many passes, one behind the other, on a GPU whose gap between kernels is that of this program."""
    wide, ns = kernels()[name]
    lacks = alone * 1e6 - float(ns.sum())
    shorter, gap = min(1.0, alone * 1e6 / float(ns.sum())), max(0.0, lacks / len(ns))
    build = TraceBuilder(name)
    for _ in range(passes):
        for blocks, each in zip(wide.tolist(), ns.tolist(), strict=True):
            build.op("kernel", [], [], duration=max(1, round(each * shorter)), launch=f"grid={blocks} resident=1")
    gpu = changed(changed(catalogue.load(GPU), "launch.gap", gap), "launch.submit", 0.0)
    return prepared(build.finish(), gpu, place="device")


def beside(pair: ListedPair, shared: str) -> tuple[float, float]:
    """ms of a pass of each while both run."""
    span = _PASSES * max(pair.alone)
    counts = [max(_PASSES, round(span / each)) + 1 for each in pair.alone]
    runs = [_program(name, alone, count) for name, alone, count in zip(pair.names, pair.alone, counts, strict=True)]
    together(runs, way(policy(shared)), catalogue.load(GPU))
    ends = [
        np.append(run.simulation.island.began[: len(kernels()[name][0]) * count : len(kernels()[name][0])], run.simulation.now)
        for run, name, count in zip(runs, pair.names, counts, strict=True)
    ]
    last = min(each[-1] for each in ends)
    first, second = (float(np.median(np.diff(each[each <= last]))) / 1e6 for each in ends)
    return first, second


def predicted(pair: ListedPair, shared: str) -> tuple[float, float]:
    """ms of all passes of each, the last ones of which one does alone when the other has ended."""
    both = beside(pair, shared)
    if pair.times == (1, 1):
        return both
    whole = [count * each for count, each in zip(pair.times, both, strict=True)]
    late = int(whole[0] < whole[1])
    done = whole[1 - late] / both[late]
    whole[late] = whole[1 - late] + (pair.times[late] - done) * pair.alone[late]
    return whole[0], whole[1]


def errors(pairs: Sequence[ListedPair], shared: str) -> list[tuple[float, float]]:
    """Of each pair both times, over the measured ones, less 1."""
    said = [predicted(pair, shared) for pair in pairs]
    return [
        (one[0] / pair.measured[0] - 1, one[1] / pair.measured[1] - 1) for one, pair in zip(said, pairs, strict=True)
    ]


def lists_table(pairs: Sequence[ListedPair]) -> Iterator[str]:
    """Markdown: errors of both programs of each pair, in each way."""
    columns = [errors(pairs, shared) for shared in WAYS]
    yield "| program | beside | measured [ms] | " + " | ".join(WAYS) + " |"
    yield "| --- | --- | ---: | " + " | ".join("---:" for _ in WAYS) + " |"
    for pair, *each in zip(pairs, *columns, strict=True):
        off = " | ".join(f"{one[0]:+.0%}, {one[1]:+.0%}" for one in each)
        yield f"| {pair.names[0]} | {pair.names[1]} | {pair.measured[0]:.5g}, {pair.measured[1]:.5g} | {off} |"
    for shared, column in zip(WAYS, columns, strict=True):
        for kind in ("inference", "training"):
            named = [(name, error) for pair, one in zip(pairs, column, strict=True)
                     for name, error in zip(pair.names, one, strict=True)]  # fmt: skip
            errs = [abs(error) for name, error in named if kind in name]
            yield f"{shared}, {kind}: median error {median(errs):.0%}, largest {max(errs):.0%}, {len(errs)} times"

"""Published programs of which times alone on whole and on parts of a GPU are known, or of which nothing but times alone is.

A pass of YOLOS-small takes 88.15 ms on a whole GPU, taken to be an A100, and 342.4 ms in a MIG slice of 14 multiprocessors: so
much of it fills any GPU, and the rest no more than such a slice.  Inference of large batches fills any GPU: in a slice its time
goes with the multiprocessors.  Of pairs under MPS nothing is known but their times alone: both are taken to fill the GPU.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np

from gpusim.calibrate.sharing.runs import together
from gpusim.engine.run.simulate import prepared
from gpusim.machine import catalogue, mig
from gpusim.machine.profile import changed
from gpusim.machine.tenancy import SharingWay
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import Trace

FILE = Path(__file__).parents[1] / "data" / "sharing_pairs_published.csv"
YOLOS, PIECES, PASSES = (88.15, 342.37), 100, 4  # ms on all multiprocessors and on 14 of them
_SLICE, _WHOLE = "1g.10gb", "7g.40gb"


def yolos(gpu: str, shared: SharingWay, alone: float, processes: int) -> list[float]:
    """ms of passes of the first of so many equal programs."""
    if shared.mine.mig:
        return [alone]  # nothing of a slice is shared but the link
    machine = changed(catalogue.load(gpu), "launch.gap", 0.0)
    few, all_of_them = mig.find(gpu, _SLICE).processors, machine.gpu.sm_count.value
    assert few is not None
    fills = (YOLOS[1] / YOLOS[0] - 1) / (all_of_them / few - 1)
    rng = np.random.default_rng(0)

    def passes() -> Trace:
        build = TraceBuilder("yolos-small")
        for wide, narrow in rng.exponential(alone * 1e6 / PIECES, (PASSES * PIECES, 2)):
            build.op("kernel", [], [], duration=max(1, round(wide * fills)))
            build.op("kernel", [], [], duration=max(1, round(narrow * (1 - fills))), launch=f"grid={few} resident=1")
        return build.finish()

    runs = [prepared(passes(), machine, place="device") for _ in range(processes)]
    together(runs, shared, machine)
    ended = min(run.simulation.now for run in runs)
    done = [np.searchsorted(run.simulation.island.began, ended) / (2 * PIECES) for run in runs]
    return [ended / 1e6 / float(np.mean(done))]


def in_slice(gpu: str, shared: SharingWay, alone: float) -> list[float]:
    """ms of a program that fills the GPU and takes so long in its largest slice."""
    part, whole = (mig.find(gpu, name).processors for name in (shared.mine.mig, _WHOLE))
    assert part is not None and whole is not None
    return [alone * whole / part]


@dataclass(frozen=True)
class PairOfTrainings:
    """ms of a step of each, alone and beside the other under MPS."""

    program: str
    beside: str
    program_alone_ms: float
    beside_alone_ms: float
    program_ms: float
    beside_ms: float

    @property
    def slowdowns(self) -> tuple[float, float]:
        return self.program_ms / self.program_alone_ms, self.beside_ms / self.beside_alone_ms

    @property
    def work(self) -> float:
        """Of both together, that of a GPU which either has alone is 1."""
        return sum(1 / slowdown for slowdown in self.slowdowns)


@cache
def trainings(file: Path = FILE) -> tuple[PairOfTrainings, ...]:
    with file.open(encoding="utf-8", newline="") as rows:
        return tuple(
            PairOfTrainings(r["program"], r["beside"], *(float(r[name]) for name in list(r)[2:])) for r in csv.DictReader(rows)
        )


def trainings_table(pairs: Sequence[PairOfTrainings]) -> Iterator[str]:
    """What programs that both fill the GPU take beside each other, twice their times, and what the pairs took."""
    off = [abs(2 / slowdown - 1) for pair in pairs for slowdown in pair.slowdowns]
    work = [abs(1 / pair.work - 1) for pair in pairs]
    yield f"pairs under MPS, time of each: median error {median(off):.0%}, largest {max(off):.0%}, {len(off)} times"
    yield f"pairs under MPS, work of both: median error {median(work):.0%}, largest {max(work):.0%}, {len(work)} pairs"

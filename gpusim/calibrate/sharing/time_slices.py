"""How long a time slice is and what a switch costs, from starts and ends of kernels of processes that share a GPU.

K processes run equal kernels one behind the other, each of which fills the GPU.  A kernel of W ms is put off n or n + 1 times,
and each time it is `away` for the slices of the others and all K switches:

    short = W + n * away      long = short + away      away = (K - 1) * slice + K * switch      W = (n + q) * slice

where q is the share of long kernels: in the long run a kernel crosses W / slice ends of slices.  Four equations for slice,
switch and W, once n is known: of the n for which no switch takes less than nothing, the one under which the kernels of fewer
processes, near the end, have the same W.  A kernel that becomes ready between two slices runs no kernel when it leaves: its
launch waits for `away` less the time to save and restore a kernel's state.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError

F64 = npt.NDArray[np.float64]
PROCESSES = 6
_SHORT, _LONG, _WAIT = (81.0, 83.2), (92.9, 94.8), (10.5, 12.5)  # ms: what belongs to a peak
_FIRST, _LAST = 5, 8  # kernels of a process that run beside fewer others
_CROSSED = 6  # n: see the module


@dataclass(frozen=True)
class Slices:
    """ms.  slice: without the switch; switch: from one process to the next; state: of it what saving and restoring takes;
    kernel: what one takes alone; short, away, share: of a process's kernels; wait: of launches that a slice's end put off."""

    slice: float
    switch: float
    state: float
    kernel: float
    short: float
    away: float
    share: float
    wait: float


def read(file: Path) -> dict[tuple[str, str, int, int], F64]:
    """(case, role, run, process) -> (kernels, 3) enqueue, start, end in ms, by start.  Raises GpusimError without the file."""
    if not file.is_file():
        raise GpusimError(f"{file} is not there", hint="time_slices.csv.gz of eunomia-bpf/gpu_ext @3f4cc2d, as its README says")
    found: dict[tuple[str, str, int, int], list[tuple[float, ...]]] = {}
    with gzip.open(file, "rt") as rows:
        for r in csv.DictReader(rows):
            times = tuple(float(r[name]) for name in ("enqueue_ms", "start_ms", "end_ms"))
            found.setdefault((r["case"], r["role"], int(r["run"]), int(r["process"])), []).append(times)
    return {of: np.array(sorted(times, key=lambda t: t[1])) for of, times in found.items()}


def of_process(times: F64) -> Slices:
    """From the kernels of one process: (kernels, 3) as `read` gives them."""
    taken = (times[:, 2] - times[:, 1])[_FIRST:-_LAST]
    short, long = _within(taken, _SHORT), _within(taken, _LONG)
    wait = _within(times[:, 1] - times[:, 0], _WAIT)
    away, share = float(np.median(long) - np.median(short)), len(long) / (len(long) + len(short))
    kernel = float(np.median(short)) - _CROSSED * away
    one = kernel / (_CROSSED + share)
    put_off = float(np.median(wait)) if len(wait) else float("nan")
    return Slices(
        one, (away - (PROCESSES - 1) * one) / PROCESSES, away - put_off, kernel, float(np.median(short)), away, share, put_off
    )


def _within(values: F64, peak: tuple[float, float]) -> F64:
    return values[(values > peak[0]) & (values < peak[1])]


def median(each: Sequence[Slices]) -> Slices:
    """Over processes, number by number; those without a launch that was put off say nothing of that."""
    return Slices(**{name: float(np.nanmedian([getattr(one, name) for one in each])) for name in Slices.__dataclass_fields__})


def interval(each: Sequence[Slices], name: str, draws: int = 1000, seed: int = 0) -> tuple[float, float]:
    """95 % of the medians of processes drawn with replacement."""
    values = np.array([getattr(one, name) for one in each])
    drawn = np.random.default_rng(seed).integers(0, len(values), (draws, len(values)))
    low, high = np.percentile(np.nanmedian(values[drawn], axis=1), [2.5, 97.5])
    return float(low), float(high)


def groups(found: Mapping[Any, F64]) -> dict[tuple[str, str], list[Slices]]:
    """(case, role) -> each of its processes."""
    out: dict[tuple[str, str], list[Slices]] = {}
    for (case, role, *_), times in found.items():
        out.setdefault((case, role), []).append(of_process(times))
    return out


def throughput(times: Iterable[F64]) -> float:
    """Kernels per second of a process, from its first start to its last end: the mean."""
    return float(np.mean([1e3 * len(t) / (t[:, 2].max() - t[:, 1].min()) for t in times]))

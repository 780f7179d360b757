"""Kernels of known length of two to four processes on one GPU, measured on an H100, and what the engine says of them.

Each process has equal kernels one behind the other.  Known are the time of one on the whole GPU and its blocks, of which a
multiprocessor holds two; a triad takes all of the memory's bandwidth.  Nothing is fitted.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from gpusim.base.yaml.values import policy
from gpusim.calibrate.sharing.runs import together
from gpusim.engine.run.simulate import Prepared, prepared
from gpusim.machine import catalogue
from gpusim.machine.profile import Profile, changed
from gpusim.machine.tenancy import way
from gpusim.trace.build import TraceBuilder

FILE = Path(__file__).parents[1] / "data" / "sharing_measured.csv"
GPU, GAP_NS = "h100-sxm-80gb", 2000
_KERNELS = 24  # of the process with the longest


@dataclass(frozen=True)
class KnownKernel:
    """Of one process: us of a kernel on the whole GPU, under its cap, and beside the others."""

    name: str
    blocks: int
    whole: float
    alone: float
    measured: float


@dataclass(frozen=True)
class KnownCase:
    """Processes that run together."""

    tenancy: str
    kernels: tuple[KnownKernel, ...]


@cache
def known(file: Path = FILE) -> tuple[KnownCase, ...]:
    """The measured cases."""
    found: dict[tuple[str, str], list[KnownKernel]] = {}
    with file.open(encoding="utf-8", newline="") as rows:
        for r in csv.DictReader(rows):
            times = (float(r[name]) for name in ("whole_us", "alone_us", "together_us"))
            found.setdefault((r["case"], r["tenancy"]), []).append(KnownKernel(r["kernel"], int(r["blocks"]), *times))
    return tuple(KnownCase(tenancy, tuple(kernels)) for (_, tenancy), kernels in found.items())


def _process(kernel: KnownKernel, gpu: Profile, cap: int, longest: float) -> Prepared:
    build, ns = TraceBuilder(kernel.name), round(kernel.whole * 1e3)
    read = round(ns * float(gpu.memory.bandwidth.value) / 1e9) if kernel.name == "triad" else 0
    for _ in range(round(_KERNELS * max(1.0, longest / kernel.whole))):
        launch = f"grid={kernel.blocks} resident=2"
        build.op("kernel", [], [], duration=ns, launch=launch, read_bytes=read)
    return prepared(build.finish(), gpu, place="device", active_thread_percentage=cap)


def predicted_us(case: KnownCase, tenancy: str = "") -> list[float]:
    """us from one kernel of each process to its next while all run, as the file says the GPU is shared or as said here."""
    gpu = changed(changed(catalogue.load(GPU), "launch.gap", float(GAP_NS)), "launch.submit", 0.0)
    shared, longest = way(policy(tenancy or case.tenancy)), max(kernel.whole for kernel in case.kernels)
    terms = shared.terms(len(case.kernels) - 1)
    runs = [_process(kernel, gpu, each.cap, longest) for kernel, each in zip(case.kernels, terms, strict=True)]
    together(runs, shared, gpu)
    ends = [np.append(run.simulation.island.began, run.simulation.now) for run in runs]
    last = min(each[-1] for each in ends)
    return [float(np.mean(np.diff(each[each <= last])[1:])) / 1e3 for each in ends]


def known_table(cases: Sequence[KnownCase]) -> Iterator[str]:
    """Markdown: each process of each case."""
    yield "| how | kernel | blocks | alone [us] | measured [us] | simulated [us] | error |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for case in cases:
        for kernel, said in zip(case.kernels, predicted_us(case), strict=True):
            yield (f"| {case.tenancy} | {kernel.name} | {kernel.blocks} | {kernel.alone:,.0f} | {kernel.measured:,.0f} | "
                   f"{said:,.0f} | {said / kernel.measured - 1:+.0%} |")  # fmt: skip

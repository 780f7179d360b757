"""Published programs beside others on one GPU, and what the engine says of them from times alone.

    python -m gpusim.calibrate.sharing

Known of a pair are the time of a request alone and how busy the GPU is with the other program alone; nothing is fitted.  A
request is a row of kernels that fill the GPU, and requests come at random at the published load.  The other program is a row of
such kernels, with pauses of its host that leave the GPU as idle as was published.  Of DenseNet the times alone at four caps say
how much of a pass is launches, how much fills any GPU, and how much fills a part of it.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpusim.base.yaml.values import policy
from gpusim.calibrate.sharing import mixtures
from gpusim.calibrate.sharing.runs import together
from gpusim.engine.run.simulate import Prepared, prepared
from gpusim.machine import catalogue
from gpusim.machine.profile import changed
from gpusim.machine.tenancy import BLOCKS, MPS, way
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import SYNC, Trace

FILE = Path(__file__).parents[1] / "data" / "sharing_published.csv"
PIECES, RATE = 50, "beside_rate"
_REQUESTS, _SLOW_REQUESTS = 60, 4  # the second of those that take 0.1 s and more
_KERNEL_MS, _MOST, _BURST = 0.1, 4000, 20  # of a kernel, but for more than so many of a request; kernels between two pauses
_GAP = 1000  # ns between two kernels of a stream
_LONGER = 3  # the other program outlasts requests that take so many times as long as alone
_WIDE = 1000  # multiprocessors of the GPU on which parts are cut, so that caps in percent are whole


@dataclass(frozen=True)
class Pair:
    """A row of the file.  Times in ms; load: of the GPU by requests alone; busy: by the other program alone.

    statistic  mean or p99 of the program's times; beside_rate: what the other one does, of what it does alone
    """

    source: str
    gpu: str
    tenancy: str
    program: str
    beside: str
    alone: float
    load: float
    busy: float
    processes: int
    statistic: str
    measured: float


def published(file: Path = FILE) -> list[Pair]:
    with file.open(encoding="utf-8", newline="") as rows:
        return [
            Pair(r["source"], r["gpu"], r["tenancy"], r["program"], r["beside"], float(r["alone_ms"]), float(r["load"]),
                 float(r["beside_busy"]), int(r["processes"] or 2), r["statistic"], float(r["measured_ms"]))
            for r in csv.DictReader(rows)
        ]  # fmt: skip


def by_rule(tenancy: str, yields: str) -> str:
    """The same way, under MPS by another rule of when kernels in waves give way."""
    if not tenancy.startswith(MPS):
        return tenancy
    return f"{tenancy.removesuffix(')')}{', ' if '(' in tenancy else '('}yields={yields})"


def predictions(pairs: Sequence[Pair], yields: str = BLOCKS) -> list[float]:
    """Of each the same time by the engine, ms."""
    known: dict[tuple[object, ...], tuple[list[float], float]] = {}
    found = []
    for pair in (replace(pair, tenancy=by_rule(pair.tenancy, yields)) for pair in pairs):
        key = pair.source, pair.tenancy, pair.program, pair.beside, pair.processes
        if key not in known:
            known[key] = _PREDICTED[pair.source](pair)
        times, rate = known[key]
        of = {"mean": float(np.mean(times)), "p99": float(np.percentile(times, 99)), RATE: rate}
        found.append(of[pair.statistic])
    return found


def _requests(pair: Pair) -> tuple[Trace, list[int]]:
    """Requests at random, and when they come, ns."""
    build, rng = TraceBuilder("requests"), np.random.default_rng(0)
    count = _REQUESTS if pair.alone < 100 else _SLOW_REQUESTS
    come = np.cumsum(rng.exponential(pair.alone / pair.load, count) * 1e6).astype(np.int64).tolist()
    pieces = round(pair.alone / _kernel(pair))
    for at in come:
        _burst(build, int(at), pieces, round(pair.alone * 1e6 / pieces))
    return build.finish(), come


def _kernel(pair: Pair) -> float:
    """ms of a kernel."""
    return max(_KERNEL_MS, pair.alone / _MOST)


def _burst(build: TraceBuilder, at: int, kernels: int, ns: int) -> None:
    """When the GPU is idle, and not before `at` ns, so many kernels, each with the gap behind it so many ns."""
    build.event(SYNC)
    for i in range(kernels):
        build.op("kernel", [], [], duration=ns - _GAP, time=at if i == 0 else -1)


def _training(pair: Pair, span: float) -> Trace:
    """Kernels for `span` ns, with pauses."""
    build, ns = TraceBuilder("training"), round(_kernel(pair) * 1e6)
    for k in range(round(span * pair.busy / (_BURST * ns))):
        _burst(build, round(k * _BURST * ns / pair.busy), _BURST, ns)
    return build.finish()


def _tally(pair: Pair) -> tuple[list[float], float]:
    """Times from the start of a request's turn, when it has come and the one before has ended, to its end, ms; RATE."""
    gpu = changed(catalogue.load(pair.gpu), "launch.gap", float(_GAP))
    trace, come = _requests(pair)
    other = _training(pair, come[-1] + _LONGER * pair.alone * 1e6 * len(come))
    runs = [prepared(each, gpu, place="device") for each in (trace, other)]
    together(runs, way(policy(pair.tenancy)), gpu)
    ends = _ends(runs[0], len(come))
    begins = [max(at, before) for at, before in zip(come, [0, *ends], strict=False)]
    done = float(other.duration[: np.searchsorted(runs[1].simulation.island.began, ends[-1])].sum())
    times = [(end - begin) / 1e6 for begin, end in zip(begins, ends, strict=True)]
    return times, done / (ends[-1] * pair.busy)


def _ends(run: Prepared, count: int) -> list[int]:
    """When each of so many equal requests ends, ns: the start of its last kernel and its part of the time to the next."""
    began, duration = run.simulation.island.began, run.planned.work.duration
    per = len(duration) // count
    last = np.arange(1, count + 1) * per - 1
    return [int(began[i] + duration[i]) for i in last]


def _densenet(pair: Pair) -> list[float]:
    alone = {10: 57.6, 20: 30.8, 80: 14.3, 90: 14.1}
    full = (alone[80] - alone[90]) / (1 / 0.8 - 1 / 0.9)  # ms that fill any GPU: what 80 and 90 % differ in
    both = (alone[10] - alone[20]) / (1 / 0.1 - 1 / 0.2)
    launches = alone[10] - both / 0.1
    wide = (both - full) / (alone[90] - launches - full / 0.9)  # share of the GPU that the rest fills
    gpu = changed(changed(catalogue.load(pair.gpu), "gpu.sm_count", _WIDE), "launch.gap", launches / (2 * PIECES) * 1e6)
    gpu = changed(gpu, "launch.submit", 0.0)
    shared = way(policy(pair.tenancy))

    def passes(count: int) -> Trace:
        build = TraceBuilder("densenet121")
        for _ in range(count * PIECES):
            build.op("kernel", [], [], duration=round(full / PIECES * 1e6))
            build.op("kernel", [], [], duration=round((both - full) / wide / PIECES * 1e6),
                     launch=f"grid={round(_WIDE * wide)} resident=1")  # fmt: skip
        return build.finish()

    mine, theirs = alone[shared.mine.cap], alone[shared.others.cap]
    counts = (4, 4 + round(8 * mine / theirs))
    runs = [
        prepared(passes(count), gpu, place="device", active_thread_percentage=terms.cap)
        for count, terms in zip(counts, shared.terms(1), strict=True)
    ]
    together(runs, shared, gpu)
    return [run_ns / 1e6 for run_ns in np.diff(runs[0].simulation.island.began[:: 2 * PIECES]).tolist()]


def _one_thread(pair: Pair) -> list[float]:
    gpu = catalogue.load(pair.gpu)
    build = TraceBuilder("one thread")
    build.op("kernel", [], [], duration=round(pair.alone * 1e6), launch="grid=1 resident=16")
    runs = [prepared(build.finish(), gpu, place="device") for _ in range(pair.processes)]
    together(runs, way(policy(pair.tenancy)), gpu)
    return [run.simulation.now / 1e6 for run in runs]


def _times(predict: Callable[[Pair], list[float]]) -> Callable[[Pair], tuple[list[float], float]]:
    return lambda pair: (predict(pair), 0.0)


_PREDICTED = {
    "tally": _tally, "densenet": _times(_densenet), "one thread": _times(_one_thread),
    "yolos": _times(lambda pair: mixtures.yolos(pair.gpu, way(policy(pair.tenancy)), pair.alone, pair.processes)),
    "mig": _times(lambda pair: mixtures.in_slice(pair.gpu, way(policy(pair.tenancy)), pair.alone)),
}  # fmt: skip


def table(pairs: Sequence[Pair]) -> Iterator[str]:
    """Markdown: each pair with the measured and the simulated time and the error."""
    yield "| source | how | program | beside | | alone [ms] | measured [ms] | simulated [ms] | error |"
    yield "| --- | --- | --- | --- | --- | ---: | ---: | ---: | ---: |"
    for pair, said in zip(pairs, predictions(pairs), strict=True):
        error = said / pair.measured - 1
        yield (f"| {pair.source} | {pair.tenancy} | {pair.program} | {pair.beside} | {pair.statistic} | {pair.alone:.5g} | "
               f"{pair.measured:.4g} | {said:.4g} | {error:+.0%} |")  # fmt: skip

"""What single loads take, and what a kernel reaches that has only so many of them under way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpusim.machine.generations import generation, halved
from gpusim.machine.profile import Profile

WORD = 8
"""Bytes of one load of a thread, and of one store, where a kernel does not say."""

_L1_GONE = 1.4
"""Times what L1 holds: from there on no load of a random walk finds its line in it."""
_HALF = 0.5, 0.7
"""Shares of L2's size between which the half that is near ceases to hold all; it keeps copies of the other's lines."""
_WHOLE = 0.97, 1.4
"""Shares between which L2 in two halves does; one without halves does between ..."""
_UNDIVIDED = 0.95, 1.15

_BETWEEN, _AT = 300.0, 1.4e9
"""ns from a load's arrival to the thread's next load at a clock of so many Hz, in kernels that do nothing but load and store
and whose blocks make room for others; half of it follows the clock.  270 to 340 on a V100, two A100, a GH200 and an H100, 200
on an L40 (gpu-stream of github.com/RRZE-HPC/gpu-benches at few threads)."""
_STORES = 0.25
"""Of the time from one load to the next, that from one store to the next: nothing waits for it.  79 to 20 GB/s on an A100."""
LOOP = 10
"""Clocks that a loop takes to begin again: an A100 80 GB and an H200 in L1, below 8 KiB."""
_BLEND = 2.0
"""How sharply Little's law meets the rate of a full device: between 1.5 and 2.5 on these."""

_TRIPS = 5.5
"""Trips to L2 that threads of all multiprocessors need to wait for each other and to load again: fence, arrival, polls, the
first load.  Fitted to passes of a looping kernel on an A40 (gpu-small-kernels), 0.8 us."""
ARRIVAL = 4.0
"""Clocks that each further thread block adds, whose arrivals L2 counts one by one: the same rows."""


def latency(profile: Profile, touched: int) -> float:
    """ns of a load that depends on the one before, at random among so many bytes."""
    points = profile.memory.latency_curve or tuple(_levels(profile))
    sizes, values = zip(*points, strict=True)
    return float(np.interp(np.log2(max(1, touched)), np.log2(sizes), values))


def _levels(profile: Profile) -> Iterator[tuple[int, float]]:
    """(bytes, ns) by the rules of the generation, between which the latency follows the logarithm of the size."""
    of, l2, cycle = generation(profile), profile.gpu.l2.value, 1e9 / profile.gpu.boost_clock.value
    yield of.l1, of.l1_cycles * cycle
    yield int(_L1_GONE * of.l1), of.near_cycles * cycle
    if halved(profile):
        yield int(_HALF[0] * l2), of.near_cycles * cycle
        yield int(_HALF[1] * l2), of.far_cycles * cycle
    held, gone = _WHOLE if halved(profile) else _UNDIVIDED
    yield int(held * l2), of.far_cycles * cycle
    yield int(gone * l2), of.memory_cycles * cycle


def memory_latency(profile: Profile) -> float:
    """ns of a load from the device's memory."""
    curve = profile.memory.latency_curve
    return curve[-1][1] if curve else list(_levels(profile))[-1][1]


def turnaround(profile: Profile, touched: int = 0, loading: bool = True) -> float:
    """ns from one load of a thread to its next in a kernel that streams through so many bytes, or through memory; or from one
    store to the next where it only stores."""
    memory, known = memory_latency(profile), profile.memory.turnaround
    waiting = min(memory, latency(profile, touched)) if touched else memory
    rule = _BETWEEN * float(_AT / profile.gpu.boost_clock.value) ** 0.5
    between = max(0.0, known.value - memory) if known else rule
    return (waiting + between) * (1.0 if loading else _STORES)


def reached(
    profile: Profile, full: float, width: float, threads: float, touched: int = 0, loading: bool = True
) -> float:
    """Bytes/s of a kernel that reaches `full` on a full device, with so many threads instead; see `little`."""
    most = generation(profile).threads * profile.gpu.sm_count.value
    return little(full, width, threads, most, turnaround(profile, touched, loading))


def narrower(profile: Profile, full: float, width: float, touched: int) -> float:
    """Bytes/s of a full device whose threads move half of `width` with each load, where they reach `full` with all of it."""
    alone = generation(profile).threads * profile.gpu.sm_count.value * width / turnaround(profile, touched) * 1e9
    return _meet(alone / 2, _without(full, alone))


def little(full: float, width: float, threads: float, most: float, turn: float) -> float:
    """Bytes/s of so many threads, each of which moves `width` bytes in `turn` ns, where `most` of them reach `full`.

    Little's law, and a limit that both meet smoothly: the one at which the most threads reach just `full`.
    """
    if threads >= most:
        return full
    limit = _without(full, most * width / turn * 1e9)
    return min(full, _meet(threads * width / turn * 1e9, limit))


def _meet(one: float, other: float) -> float:
    return float((one**-_BLEND + other**-_BLEND) ** (-1 / _BLEND))


def _without(both: float, one: float) -> float:
    """What meets `one` at `both`."""
    left = both**-_BLEND - one**-_BLEND
    return float(left ** (-1 / _BLEND)) if left > 0 else float("inf")


def barrier(profile: Profile, blocks: int) -> float:
    """ns from the last store of a pass to the first load of the next, when so many blocks wait for each other in between."""
    known = profile.launch.barrier
    if known:
        first = known.value
    else:
        of, cycle = generation(profile), 1e9 / profile.gpu.boost_clock.value
        first = _TRIPS * (of.near_cycles + of.far_cycles) / 2 * cycle
    return first + ARRIVAL * blocks / profile.gpu.boost_clock.value * 1e9


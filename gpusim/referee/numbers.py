"""The machine's numbers that times follow from, as its profile states them, for one program on it.

A *way* is how the bytes of an activity go: the links that they pass, the most they reach alone, the time before they move, and
the measured rate by size where there is one.  Rates in bytes/ns, times in ns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.machine.chain import GROW
from gpusim.machine.constants import Machine, machine
from gpusim.machine.kernels.alone import alone
from gpusim.machine.kernels.durations import SCALED, OperatorTimes, durations, model_error, shares
from gpusim.machine.kernels.needs import KernelNeeds, kernel_needs, with_collectives
from gpusim.machine.kernels.own_times import OwnTimes
from gpusim.machine.profile import Profile
from gpusim.machine.sharing import MEMORY, NOTHING, parse
from gpusim.machine.tiers import DEFAULT, Tier
from gpusim.machine.transfer_times import calls, host_bytes, waits
from gpusim.referee.activities import ActivityTimes
from gpusim.referee.report import Findings
from gpusim.referee.tiers import Tiers
from gpusim.trace.trace import COLLECTIVE, COPY_IN, COPY_OUT, COPY_PEER, HOST_WORK, I64, KERNEL, NVME_READ, NVME_WRITE, Trace

F64 = npt.NDArray[np.float64]
HOST_MEMORY = "host_memory"  # what the CPU's work and copies share
DEVICE_MEMORY = "memory"  # the link that stands for the bandwidth of the device's memory
FILLED = 128  # bytes of an access that fills the link; smaller ones fill it in proportion (EMOGI, VLDB 2020)


class Route(NamedTuple):
    """How the bytes of one kind of copy go."""

    links: tuple[str, ...]
    rate: float
    latency: int
    curve: tuple[tuple[float, float], ...]  # rate by size, the latency included; () where it is the same for all sizes

    def alone(self, size: I64) -> F64:
        """The rate that copies of these sizes reach on idle links once they move."""
        if not self.curve:
            return np.full(len(size), self.rate)
        at, rates = np.log2([x for x, _ in self.curve]), np.array([y for _, y in self.curve])
        x = np.log2(np.maximum(size, 1))
        whole = np.where(x < at[0], rates[0] * 2.0 ** (x - at[0]), np.interp(x, at, rates))
        moving = np.maximum(size / whole - self.latency, size / self.rate)
        out: F64 = size / np.maximum(moving, 1e-300)
        return out


@dataclass(frozen=True)
class Figures:
    """O operators."""

    duration: I64               # (O,) of each alone; of copies only where the trace recorded it, of host calls 0
    call: I64                   # (O,) that the host's thread spends on what it does itself; below 0: when the device is idle
    links: dict[str, float]
    operators: dict[int, Route]   # activity -> way
    into: tuple[Route, ...]       # of swaps to the device, by tier
    out: tuple[Route, ...]        # of swaps from it
    falls: Mapping[tuple[int, int], Route]  # from a lent memory to a tier below
    reads: Route                  # of kernels in the nearest tier
    writes: Route
    waits: tuple[bool, ...]     # of each tier: the host waits for its copies
    blocks: tuple[tuple[float, float, float], ...]  # and what it spends on memory there, by call, by byte, by byte given back
    kept: tuple[bool, ...]      # and a block that is given back is used again
    machine: Machine
    share: tuple[str, ...]      # what activities of the device share: words of machine.sharing
    needs: KernelNeeds          # multiprocessors and bandwidth of the operators
    known: dict[str, int | float]  # metrics that say how the times are known
    beside: bool = False        # other programs run on the device: when its kernels have multiprocessors follows from all


def numbers(
    spec: Mapping[str, Any], given: Trace, ran: Trace, profile: Profile, codec: Mapping[str, float],
    own: OwnTimes | None = None, met: Mapping[int, int] | None = None, below: tuple[Tier, ...] = (),
) -> Figures:  # fmt: skip
    """`given` is the experiment's program, `ran` what a plan policy made of it.

    codec  links of compressed swaps by name
    met    operators that meet those of other runs, and how many multiprocessors each takes
    below  the tiers where other devices lend some of them
    """
    m = machine(given, profile, spec.get("capacity"), str(spec.get("tiers", DEFAULT)), below)
    share, works = parse(spec.get("share", NOTHING)), bool(host_bytes(ran).any())
    links = _links(m) | dict(codec) | ({HOST_MEMORY: m.host} if works else {})
    beside = (HOST_MEMORY,) if works else ()
    both_ways = ("h2d", "d2h", "both", "both")  # GPUs without links of their own meet over those to the host
    between = tuple(name for name in links if name in ("peer", "peer_in")) if m.peer else both_ways

    def program(direction: str) -> tuple[str, ...]:
        return (direction, "both", *(name for name in (f"all_{direction}", "all_both") if name in links), *beside)

    def placed(curve: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
        return tuple((size, m.near * rate) for size, rate in curve)

    operators = {
        COPY_IN: Route(program("h2d"), m.near * m.h2d, m.latency, placed(m.curve)),
        COPY_OUT: Route(program("d2h"), m.near * m.d2h, m.latency, placed(m.curve_out)),
        COLLECTIVE: Route(between, m.collective, m.collective_latency, m.curve_collective),
        COPY_PEER: Route(between, m.peer or min(m.h2d, m.d2h, m.both / 2), m.peer_latency, ()),
        NVME_READ: Route(("nvme_read",), m.nvme_read, m.nvme_latency, ()),
        NVME_WRITE: Route(("nvme_write",), m.nvme_write, m.nvme_latency, ()),
        HOST_WORK: Route(beside, np.inf, 0, ()),
    }
    packed, unpacked = (tuple(name for name in codec if name == word) for word in ("compress", "decompress"))
    there = {tier: beside if tier.kind == "host" else () for tier in m.tiers}
    into = [_into(tier, unpacked, codec, there[tier]) for tier in m.tiers]
    out = [_out(tier, packed, codec, there[tier]) for tier in m.tiers]
    near, filled = m.tiers[0], min(1.0, spec.get("remote_access", FILLED) / FILLED)
    times = durations(alone(given, share), profile, own=own)
    took, own_calls = _slower(given, times.ns, spec) if ran is given else durations(ran, profile).ns, calls(ran)
    modelled = (ran.activity == HOST_WORK) & (ran.duration < 0)
    duration = np.where(own_calls, 0, np.where(modelled, np.rint(took / m.cpu).astype(np.int64), took))
    needs = with_collectives(kernel_needs(ran, duration, profile, spec.get("active_thread_percentage", 100)), ran, met or {})
    if MEMORY in share:
        links[DEVICE_MEMORY] = needs.bandwidth
        times_past = {COLLECTIVE: 2, HOST_WORK: 0}
        operators = {code: _past_memory(way, times_past.get(code, 1)) for code, way in operators.items()}
        into, out = [_past_memory(way) for way in into], [_past_memory(way) for way in out]
    return Figures(
        duration=duration,
        call=np.where(own_calls, np.where(waits(ran), -took, took), 0),
        links=links,
        operators=operators,
        into=tuple(into),
        out=tuple(out),
        falls=_falls(m.tiers, there),
        reads=Route((*_names(near.way_in), *there[near]), (near.kernel_read or near.read) * filled, near.read_latency, ()),
        writes=Route((*_names(near.way_out), *there[near]), (near.kernel_write or near.write) * filled, near.write_latency, ()),
        waits=tuple(tier.waits for tier in m.tiers),
        blocks=tuple((tier.take, tier.take_per_byte, tier.give_per_byte) for tier in m.tiers),
        kept=tuple(tier.pool == GROW for tier in m.tiers),
        machine=m,
        share=share,
        needs=needs,
        known=_known(spec, given, profile, times),
    )


def _slower(trace: Trace, took: I64, spec: Mapping[str, Any]) -> I64:
    """The times on a GPU whose kernels take so much longer; where that changes, as usual (`paced`)."""
    factor = spec.get("slower", 1.0)
    return took if isinstance(factor, list) else _times_as_long(trace, took, factor)


def _times_as_long(trace: Trace, took: I64, factor: Any) -> I64:
    return np.where(trace.activity == KERNEL, np.rint(took * factor), took).astype(np.int64)


def paced(
    n: Figures, spec: Mapping[str, Any], ran: Trace, profile: Profile, acts: ActivityTimes, met: Mapping[int, int] | None
) -> Figures:  # fmt: skip
    """The same where kernels take longer from some time on: each as its start says.  `met`: as of `numbers`."""
    if not isinstance(steps := spec.get("slower"), list):
        return n
    start = np.zeros(ran.ops, np.int64)
    operators = acts.op >= 0
    start[acts.op[operators]] = acts.start[operators]
    times, factors = np.array([time for time, _ in steps]), np.array([factor for _, factor in steps])
    duration = _times_as_long(ran, n.duration, factors[np.searchsorted(times, start, side="right") - 1])
    needs = kernel_needs(ran, duration, profile, spec.get("active_thread_percentage", 100))
    return replace(n, duration=duration, needs=with_collectives(needs, ran, met or {}))


def _past_memory(way: Route, times: int = 1) -> Route:
    """What is copied passes the device's memory; what a collective sends is read there, and as much is written."""
    return way._replace(links=(*way.links, *(DEVICE_MEMORY,) * times))


def _known(spec: Mapping[str, Any], trace: Trace, profile: Profile, times: OperatorTimes) -> dict[str, int | float]:
    out: dict[str, int | float] = {f"kernel_{name}_share": share for name, share in shares(times).items()}
    if spec.get("transform", "none") == "none" and (trace.duration > 0).any():
        out["recorded_ns"] = int(trace.time.max(initial=0))
    timed = (trace.device_time >= 0) & (trace.duration >= 0)
    begins, ends = trace.device_time[timed], (trace.device_time + trace.duration)[timed]
    out["recorded_device_ns"] = int(ends.max() - begins.min()) if len(ends) else 0
    error = None if (times.basis == SCALED).any() else model_error(trace, profile)
    return out if error is None else out | {"duration_error": float(error["median"])}


def _into(tier: Tier, codec: tuple[str, ...], rates: Mapping[str, float], beside: tuple[str, ...]) -> Route:
    rate = min([tier.read, *(rates[name] for name in codec)])
    return Route((*_names(tier.way_in), *codec, *beside), rate, tier.read_latency, tier.curve)


def _out(tier: Tier, codec: tuple[str, ...], rates: Mapping[str, float], beside: tuple[str, ...]) -> Route:
    rate = min([tier.write, *(rates[name] for name in codec)])
    return Route((*_names(tier.way_out), *codec, *beside), rate, tier.write_latency, tier.curve_out)


def _falls(tiers: Sequence[Tier], beside: Mapping[Tier, tuple[str, ...]]) -> dict[tuple[int, int], Route]:
    """How copies go that leave a lent memory for a tier further down."""
    number = {tier.name: m for m, tier in enumerate(tiers, 1)}
    return {
        (m, number[fall.to]): Route(
            (*_names(fall.way), *beside[tiers[number[fall.to] - 1]]), fall.rate, fall.latency, fall.curve
        ) for m, tier in enumerate(tiers, 1) for fall in tier.falls
    }  # fmt: skip


def _names(way: Any) -> tuple[str, ...]:
    """A collective sends where a copy to a peer goes."""
    return tuple("peer" if link.name == "peer_out" else link.name for link in way)


def _links(m: Machine) -> dict[str, float]:
    """The rates of all links by name; where tiers say more of one than the machine does, theirs."""
    found = {"h2d": m.h2d, "d2h": m.d2h, "both": m.both, "nvme_read": m.nvme_read, "nvme_write": m.nvme_write}
    if m.peer:
        found["peer"] = max(m.peer, m.collective)
    said: dict[str, float] = {}
    for tier in m.tiers:
        for link in (*tier.way_in, *tier.way_out, *(link for fall in tier.falls for link in fall.way)):
            (name,) = _names([link])
            said[name] = max(said.get(name, 0.0), link.rate)
    return found | said


def agree(spec: Mapping[str, Any], n: Figures, tiers: Tiers, found: Findings) -> None:
    """The links, tiers and slots that the result names, by which loads and turns are checked, are the machine's."""
    for name, rate in spec.get("rates", {}).items():
        real = n.links.get(name, 0.0) * 1e9
        if abs(rate - real) > 1e-9 * real:
            found.say(-1, f"the result's link {name} has {rate:g} bytes/s", f"{real:g}, as the machine's")
    real_tiers = n.machine.tiers
    kinds = tuple(tier.kind for tier in real_tiers)
    if tiers.kinds != kinds:
        found.say(-1, f"the result has the tiers {', '.join(tiers.kinds)}", f"{', '.join(kinds)}, as the machine")
        return
    for i, (tier, ways) in enumerate(zip(real_tiers, tiers.routes, strict=True)):
        passed = (list(_names(tier.way_in)), list(_names(tier.way_out)))
        if ways != passed and "memories" in spec:
            found.say(-1, f"the result's copies of tier {tier.name} pass {ways}", f"{passed}, as the machine's")
        nearest = next(t for t in real_tiers if t.queue == tier.queue)
        slots = tuple(tiers.slots[tiers.engine[i], way] for way in (0, 1))
        if slots != (nearest.slots_in, nearest.slots_out):
            found.say(-1, f"the result's engine of {tier.name} runs {slots} copies at once",
                      f"{nearest.slots_in, nearest.slots_out}, as the machine's")  # fmt: skip

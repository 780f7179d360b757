"""Ways that bytes go: the links of a machine, and which of them each kind of copy passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.base.tables import table
from gpusim.engine import state
from gpusim.machine.constants import Machine
from gpusim.machine.tiers import Tier
from gpusim.trace.codec import Codec
from gpusim.trace.trace import COLLECTIVE, HOST_WORK

# Accesses of so many bytes fill the link, smaller ones proportionally less: what limits them is how many the bus keeps under
# way.  S. Min et al., "EMOGI: Efficient memory-access for out-of-memory graph-traversal in GPUs", VLDB 2020: merged and aligned
# accesses of 128 bytes reach what cudaMemcpy does.
FULL = 128
HOST_MEMORY = "host_memory"  # the link that the CPU's work and copies share


def links(m: Machine) -> dict[str, float]:
    """Rates of all links by name, bytes/ns; what a tier says of a link that it passes holds for the program's copies too."""
    named: dict[str, float] = {}
    for tier in m.tiers:
        for link in (*tier.way_in, *tier.way_out, *(link for fall in tier.falls for link in fall.way)):
            named[_name(link.name)] = max(named.get(_name(link.name), 0.0), link.rate)
    known = {"h2d": m.h2d, "d2h": m.d2h, "both": m.both, "nvme_read": m.nvme_read, "nvme_write": m.nvme_write}
    return {**known, **({"peer": max(m.peer, m.collective)} if m.peer else {}), **named}


def passed(tier: Tier) -> tuple[list[str], list[str]]:
    """The links of the way to the device and of that from it, by name."""
    return [_name(link.name) for link in tier.way_in], [_name(link.name) for link in tier.way_out]


def _in_host_memory(tier: Tier, beside: list[str]) -> tuple[list[str], list[str]]:
    into, out = passed(tier)
    return (into + beside, out + beside) if tier.kind == "host" else (into, out)


def _slower(curve: tuple[tuple[float, float], ...], share: float) -> tuple[tuple[float, float], ...]:
    """A share of a curve's rates."""
    return tuple((size, share * rate) for size, rate in curve)


def _name(link: str) -> str:
    """A collective sends where a copy to a peer goes: that direction is the link that collectives have always had."""
    return "peer" if link == "peer_out" else link


def connections(
    m: Machine, codec: Codec | None, access: int = FULL, memory: float | None = None, works: bool = False
) -> tuple[Any, Any, Any, Any, tuple[str, ...]]:
    """(ways, links, routes, curves, names of the links).

    GPUs without links of their own send a collective over those to the host, both ways.

    access: bytes that kernels read or write below the device at once.
    memory: bytes/ns of the device's memory where that is shared: then each route is followed by it, as often as the way passes
    it; that of no way is that of kernels.
    works: the CPU works for the program, in host memory that copies over the GPU's link use as well.

    A codec is two links more on the ways of swaps: it works while the bytes flow, and copies side by side share it.
    """
    through = [codec.on_wire(rate) / 1e9 for rate in (codec.decompress, codec.compress)] if codec else [np.inf, np.inf]
    rates = {**links(m), **(dict(zip(("decompress", "compress"), through, strict=True)) if codec else {})}
    beside = [HOST_MEMORY] if works else []
    rates |= dict.fromkeys(beside, m.host) | ({} if memory is None else {"memory": memory})
    at = {name: i for i, name in enumerate(rates)}
    around = ["h2d", "d2h", "both", "both"]
    if m.peer:
        around = [name for name in at if name in ("peer", "peer_in")]

    def of_all(direction: str) -> list[str]:
        """What several GPUs have together holds for the program's copies as for swaps."""
        return [name for name in (direction, "all_both") if name in at]

    # Of each way: its route, its own rate, its latency, its curve.
    lone = m.peer or min(m.h2d, m.d2h, m.both / 2)
    ways: list[tuple[list[str], float, int, Any]] = [
        ([], np.inf, 0, None),
        (["h2d", "both", *of_all("all_h2d"), *beside], m.near * m.h2d, m.latency, _slower(m.curve, m.near) or None),
        (["d2h", "both", *of_all("all_d2h"), *beside], m.near * m.d2h, m.latency, _slower(m.curve_out, m.near) or None),
        (around, m.collective, m.collective_latency, m.curve_collective or None),
        (["nvme_read"], m.nvme_read, m.nvme_latency, None),
        (["nvme_write"], m.nvme_write, m.nvme_latency, None),
        (beside, np.inf, 0, None),  # work of the host
        (around, lone, m.peer_latency, None),
        ([], np.inf, 0, None),  # copies by their recorded times
    ]
    assert len(ways) == state.SWAPS
    for tier in m.tiers:
        into, out = _in_host_memory(tier, beside)
        coded = (["decompress"], ["compress"]) if codec else ([], [])
        ways.append((into + coded[0], min(tier.read, through[0]), tier.read_latency, tier.curve or None))
        ways.append((out + coded[1], min(tier.write, through[1]), tier.write_latency, tier.curve_out or None))
    falls = [fall for tier in m.tiers for fall in tier.falls]
    in_host = {tier.name for tier in m.tiers if tier.kind == "host"}
    for fall in falls:
        links_of_fall = [link.name for link in fall.way] + (beside if fall.to in in_host else [])
        ways.append((links_of_fall, fall.rate, fall.latency, fall.curve or None))
    near, share = m.tiers[0], min(1.0, access / FULL)
    into, out = _in_host_memory(near, beside)
    ways.append((into, (near.kernel_read or near.read) * share, near.read_latency, None))
    ways.append((out, (near.kernel_write or near.write) * share, near.write_latency, None))
    curves = list(dict.fromkeys(curve for *_, curve in ways if curve)) or [((1.0, 1.0),)]
    out_ways, link = table(len(ways), state.WAY), table(len(rates), state.LINK)
    link["rate"] = list(rates.values())
    out_ways["rate"], out_ways["latency"] = [w[1] for w in ways], [w[2] for w in ways]
    out_ways["curve"] = [curves.index(w[3]) if w[3] else -1 for w in ways]
    if memory is not None:
        mine = len(ways) - 2 - len(falls)  # what is called back passes other devices' memory
        out_ways["passes"] = [{COLLECTIVE: 2, HOST_WORK: 0}.get(kind, 1) for kind in range(mine)] + [0] * (len(falls) + 2)
    routes = [w[0] + ["memory"] * int(passes) for w, passes in zip(ways, out_ways["passes"], strict=True)]
    ends = np.cumsum([len(route) for route in routes])
    out_ways["route"][1:] = ends[:-1]
    out_ways["route_end"] = ends - out_ways["passes"]
    return out_ways, link, np.array([at[name] for route in routes for name in route], np.int64), _as_array(curves), tuple(at)


def _as_array(curves: list[Any]) -> Any:
    """float64[curves, 2, points]: log2 of the size and the rate; the last point of a shorter curve is repeated."""
    points = max(len(curve) for curve in curves)
    full = np.array([[*curve, *[curve[-1]] * (points - len(curve))] for curve in curves])
    return np.stack([np.log2(full[..., 0]), full[..., 1]], 1).copy()

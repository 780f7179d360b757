"""A copy along its route as flows that follow each other, and the time that it takes alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from gpusim.machine.topology.routes import TransferRoute
from gpusim.machine.topology.topology import Topology, TopologyLink


class LinkFlow(NamedTuple):
    """Bytes that start after `latency` ns and pass all links at one rate, `rate` bytes/ns at most.

    A link that each byte passes twice stands there twice.  `blocks`: multiprocessors that move them, of each GPU.
    """

    latency: float
    size: float
    rate: float
    links: tuple[str, ...]
    blocks: int = 0


def rates(machine: Topology) -> dict[str, float]:
    """bytes/ns of all links of the machine, of what both directions of a wire have together, and of its memories."""
    found = {link.name: link.rate / 1e9 for link in machine.links.values()}
    found |= {link.pair: link.both / 1e9 for link in machine.links.values() if link.both}
    return found | {node.name: node.bandwidth / 1e9 for node in machine.nodes.values() if node.bandwidth}


def passed(machine: Topology, links: Iterable[TopologyLink]) -> tuple[str, ...]:
    """Names of what bytes pass along these links: each, what its two directions share, and the memory in which they end."""
    names: list[str] = []
    for link in links:
        names += [link.name, link.pair] if link.both else [link.name]
    return (*names, *_memories(machine, links))


def _memories(machine: Topology, links: Iterable[TopologyLink]) -> list[str]:
    ends = [node for link in list(links)[-1:] for node in (link.b,)] + [link.a for link in list(links)[:1]]
    return [name for name in ends if machine.nodes[name].bandwidth]


def flows(machine: Topology, route: TransferRoute, size: int) -> tuple[LinkFlow, ...]:
    """The copy of so many bytes as flows, one after the other.

    A staged copy sends its first chunk to the host alone, its last one from there alone, and in between both ways at once.
    """
    if route.staged is None:
        return (LinkFlow(route.latency, size, route.rate / 1e9, passed(machine, route.links)),)
    chunk, first, last = min(size, route.staged.chunk), route.legs[0], route.legs[-1]
    alone = route.staged.hop / 1e9
    ends = [min(alone, *(link.rate / 1e9 for link in leg)) for leg in (first, last)]
    parts = [LinkFlow(route.latency, chunk, ends[0], passed(machine, first))]
    if size > chunk:
        among = tuple(name for leg in route.legs for name in passed(machine, leg))
        parts.append(LinkFlow(0.0, size - chunk, min(route.staged.rate, *(x.rate for x in route.links)) / 1e9, among))
    return (*parts, LinkFlow(0.0, chunk, ends[1], passed(machine, last)))


def alone(flow: LinkFlow, rate_of: dict[str, float]) -> float:
    """bytes/ns that the flow has where no other shares its links."""
    times = Counter(flow.links)
    return min([flow.rate, *(rate_of[name] / count for name, count in times.items())])


def time_alone(machine: Topology, route: TransferRoute, size: int) -> float:
    """ns of a copy of so many bytes along the route where nothing else uses its links."""
    rate_of = rates(machine)
    return sum(flow.latency + flow.size / alone(flow, rate_of) for flow in flows(machine, route, size) if flow.size)

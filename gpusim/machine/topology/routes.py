"""The route between any two ends of a machine, and why it is that one.

Copies go over links between GPUs only where they have some: a driver forwards nothing over a third GPU.  Without links they
pass below the least common switch where the machine lets GPUs reach each other there, else through pinned memory of the hosts.
Hosts reach each other over their network cards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gpusim.base.errors import GpusimError, suggest
from gpusim.base.units import RATE, show
from gpusim.machine import peers
from gpusim.machine.topology.spec import NodeKind
from gpusim.machine.topology.topology import DIRECT, INSIDE, Topology, TopologyLink

PACKET = 1 << 20
"""Bytes that a host copies on at once where no staging is stated."""
_REACH = {"none": 0, "switch": 1, "socket": 2, "all": 3}


class Staged(NamedTuple):
    """Bytes that arrive in the host before they leave it again, bytes/s of one of the two copies alone, and of both at once."""

    chunk: int
    hop: float
    rate: float


@dataclass(frozen=True)
class TransferRoute:
    """How bytes go from one end to the other.

    ends     from, to
    legs     links in order; of a staged one two lists, to the host's memory and from it
    rate     bytes/s that a copy alone reaches at most
    latency  ns beside the bytes
    staged   of a copy through the host's memory
    reason   one sentence
    """

    ends: tuple[str, str]
    legs: tuple[tuple[TopologyLink, ...], ...]
    rate: float
    latency: float
    reason: str
    staged: Staged | None = None

    @property
    def links(self) -> tuple[TopologyLink, ...]:
        return tuple(link for leg in self.legs for link in leg)

    @property
    def narrowest(self) -> str:
        """Name of the slowest link, "" where there is none."""
        return min(self.links, key=lambda link: link.rate).name if self.links else ""


def between(machine: Topology, a: str, b: str, *, direct: bool = True) -> TransferRoute:
    """The route of a copy from `a` to `b`; `direct`: GPUs have been told to reach each other where they can.

    Raises GpusimError where a node is unknown, or there is no route.
    """
    for name in (a, b):
        if name not in machine.nodes:
            raise GpusimError(f"machine '{machine.name}' has no node '{name}'", hint=suggest(name, machine.nodes))
    if a == b:
        return TransferRoute((a, b), (), _memory(machine, a), 0.0, "both ends are one node: the copy stays in its memory")
    gpus = [machine.nodes[name].kind == "gpu" for name in (a, b)]
    if all(gpus):
        return _of_gpus(machine, a, b, direct)
    return _through_hosts(machine, a, b)


def _memory(machine: Topology, name: str) -> float:
    node = machine.nodes[name]
    return node.profile.memory.copy_engine.value / 2 if node.profile else node.bandwidth or float("inf")


def _of_gpus(machine: Topology, a: str, b: str, direct: bool) -> TransferRoute:
    wired = walk(machine, a, b, lambda link: link.kind in DIRECT, ("nvswitch",))
    if wired and direct:
        how = "through NVSwitch" if len(wired) > 1 else f"{wired[0].count} {wired[0].kind} wire" + "s" * (wired[0].count > 1)
        if any(link.kind == "optical" for link in wired):
            how = "over the optical fabric"
        return _plain((a, b), wired, f"both GPUs are linked to each other ({how}), and the copy uses no other links")
    if machine.host[a] != machine.host[b]:
        return _over_network(machine, a, b)
    passed = walk(machine, a, b, lambda link: link.kind in INSIDE, ("switch", "socket"))
    if passed is None:
        raise GpusimError(f"no wire of machine '{machine.name}' leads from '{a}' to '{b}'")
    sockets = [link.b for link in passed if machine.nodes[link.b].kind == "socket"]
    needs, meet = (("switch", "one switch"), ("socket", f"'{'+'.join(sockets)}'"), ("all", "two sockets"))[min(2, len(sockets))]
    reach = machine.file_of(a).peers.pcie
    if direct and _REACH[reach] >= _REACH[needs]:
        return _plain((a, b), passed, f"no link between them; both are below {meet}, past which GPUs of this machine copy")
    if wired:
        why = "direct access is off"
    elif not direct or reach == "none":
        why = "no link between them and no direct access"
    else:
        why = f"no link between them (nothing is forwarded over a third GPU), and no direct access past {meet}"
    return _staged(machine, a, b, f"{why}: the driver stages the copy through pinned memory of the host")


def _plain(ends: tuple[str, str], links: tuple[TopologyLink, ...], reason: str) -> TransferRoute:
    return TransferRoute(ends, (links,), min(link.rate for link in links), max(link.latency for link in links), reason)


def staging(machine: Topology, gpu: str) -> tuple[Staged, float]:
    """How a copy of this GPU is staged, and its ns: as the machine's file says, else as on machines with that GPU."""
    said, profile = machine.file_of(gpu).staging, machine.profile(gpu)
    if said:
        return Staged(said.chunk.value, said.hop.value, said.rate.value), said.latency.value
    rate, latency = peers.staged(profile)
    return Staged(PACKET, min(profile.link.h2d.value, profile.link.d2h.value), rate), latency


def _staged(machine: Topology, a: str, b: str, reason: str) -> TransferRoute:
    """To the memory of the socket next to the first, and from there."""
    socket = nearest(machine, a, "socket")
    legs = [walk(machine, x, y, lambda link: link.kind in INSIDE, ("switch", "socket")) for x, y in ((a, socket), (socket, b))]
    assert legs[0] is not None and legs[1] is not None
    how, latency = staging(machine, a)
    rate = min(how.rate, *(link.rate for leg in legs if leg for link in leg), *_shared(legs))
    return TransferRoute((a, b), (legs[0], legs[1]), rate, latency, f"{reason} at '{socket}'", how)


def _shared(legs: Iterable[tuple[TopologyLink, ...] | None]) -> list[float]:
    """Half of what both directions of a wire have together, where the two legs use both."""
    links = [link for leg in legs for link in leg or ()]
    pairs = [link.pair for link in links]
    return [link.both / 2 for link in links if link.both and pairs.count(link.pair) > 1]


def _over_network(machine: Topology, a: str, b: str) -> TransferRoute:
    network = machine.network
    cards = [card(machine, end) for end in (a, b)]
    if network is None or not all(cards):
        raise GpusimError(f"'{a}' and '{b}' are in two hosts, which no network of machine '{machine.name}' joins")
    x, y = str(cards[0]), str(cards[1])
    inner = [walk(machine, p, q, lambda link: link.kind in INSIDE, ("switch", "socket")) for p, q in ((a, x), (y, b))]
    outer = walk(machine, x, y, lambda link: link.kind == "network", ("network",))
    if None in (*inner, outer):
        raise GpusimError(f"no wire leads from '{a}' to '{b}' over their network cards")
    links = [link for leg in (inner[0], outer, inner[1]) for link in leg or ()]
    rate, latency = min(link.rate for link in links), network.latency.value
    far = [end for end, leg in zip((a, b), inner, strict=True) if any(link.kind == "socket" for link in leg or ())]
    if network.rdma:
        reason = f"two hosts: card '{x}' reads the GPU's memory and '{y}' writes it ({machine.network_name}, RDMA)"
        if far:
            rate *= network.rdma.across_sockets.value
            left = f"{100 * network.rdma.across_sockets.value:.0f} %"
            reason += f"; the card of {' and '.join(far)} is below another socket, which leaves {left} of the rate"
        return TransferRoute((a, b), (tuple(links),), rate, latency, reason)
    sockets = [nearest(machine, end, "socket") for end in (a, b)]
    legs = [
        walk(machine, p, q, lambda link: link.kind in (*INSIDE, "network"), ("switch", "socket", "nic", "network"))
        for p, q in ((a, sockets[0]), (sockets[0], sockets[1]), (sockets[1], b))
    ]
    reason = f"two hosts and no RDMA ({machine.network_name}): through the memory of '{sockets[0]}' and '{sockets[1]}'"
    how, start = staging(machine, a)
    whole = tuple(leg for leg in legs if leg)
    rate = min(how.rate, *(link.rate for leg in whole for link in leg), *_shared(whole))
    return TransferRoute((a, b), whole, rate, latency + start, reason, how)


def _through_hosts(machine: Topology, a: str, b: str) -> TransferRoute:
    """To or from a host's memory, a disk, a card or a pool."""
    memories: tuple[NodeKind, ...] = ("switch", "socket", "nic", "network")
    links = walk(machine, a, b, lambda link: link.kind not in DIRECT, memories)
    if links is None:
        links = walk(machine, a, b, lambda link: True, (*memories, "nvswitch"))
    if links is None:
        raise GpusimError(f"no wire of machine '{machine.name}' leads from '{a}' to '{b}' that does not pass a GPU or a memory")
    passed = [f"'{link.b}'" for link in links[:-1]]
    reason = f"the shortest way past {', '.join(passed)}" if passed else "they are wired to each other"
    found = _plain((a, b), links, reason)
    limits = [rate for name in (a, b) if (rate := machine.nodes[name].bandwidth)]
    return TransferRoute((a, b), found.legs, min(found.rate, *limits) if limits else found.rate, found.latency, reason)


def nearest(machine: Topology, name: str, kind: NodeKind) -> str:
    """The node of that kind with the fewest links to it inside the host; the first of equals."""
    here = machine.host.get(name)  # wires of a host lead nowhere else
    found = [
        (len(links), i, other)
        for i, other in enumerate(machine.of_kind(kind) if here is None else machine.of_host.get((here, kind), ()))
        if (links := walk(machine, name, other, lambda link: link.kind in INSIDE, ("switch", "socket"))) is not None
    ]
    if not found:
        raise GpusimError(f"'{name}' of machine '{machine.name}' reaches no {kind}")
    return min(found)[2]


def card(machine: Topology, gpu: str) -> str | None:
    """The network card that copies of a GPU use: the nearest; GPUs to which the same ones are nearest take turns."""
    if gpu not in machine.cards:
        machine.cards[gpu] = _card(machine, gpu)
    return machine.cards[gpu]


def _card(machine: Topology, gpu: str) -> str | None:
    if not (cards := _distances(machine, gpu)):
        return None
    equals = _nearest_of(cards)
    mates = machine.of_host[machine.host[gpu], "gpu"]
    same = [other for other in mates if _nearest_of(_distances(machine, other)) == equals]
    return equals[same.index(gpu) * len(equals) // len(same)] if len(same) >= len(equals) else equals[same.index(gpu)]


def _nearest_of(cards: list[tuple[int, str]]) -> list[str]:
    least = min(length for length, _ in cards)
    return [name for length, name in cards if length == least]


def _distances(machine: Topology, gpu: str) -> list[tuple[int, str]]:
    """(links, card) of each card of the GPU's host; a link between sockets counts as more than all others."""
    found = []
    for other in machine.of_host.get((machine.host[gpu], "nic"), ()):
        links = walk(machine, gpu, other, lambda link: link.kind in INSIDE, ("switch", "socket"))
        if links is not None:
            found.append((sum(100 if link.kind == "socket" else 1 for link in links), other))
    return found


def walk(
    machine: Topology, a: str, b: str, usable: Callable[[TopologyLink], bool], past: tuple[NodeKind, ...]
) -> tuple[TopologyLink, ...] | None:
    """The fewest usable links from `a` to `b`, past nodes of these kinds only; None: there are none."""
    came: dict[str, TopologyLink | None] = {a: None}
    edge = [a]
    while edge and b not in came:
        following = []
        for name in edge:
            if name != a and machine.nodes[name].kind not in past:
                continue
            for link in machine.neighbours[name]:
                if link.b not in came and usable(link):
                    came[link.b] = link
                    following.append(link.b)
        edge = following
    if b not in came:
        return None
    links: list[TopologyLink] = []
    last = came[b]
    while last is not None:
        links.append(last)
        last = came[last.a]
    return tuple(reversed(links))


def told(route: TransferRoute) -> str:
    """The route as a line: nodes, rate and the link that limits it."""
    nodes = [route.ends[0], *(link.b for link in route.links)]
    rate = "" if route.rate == float("inf") else f", {show(route.rate, RATE, 4)}"
    limit = f" (limited by {route.narrowest})" if route.links and route.rate == min(link.rate for link in route.links) else ""
    return " > ".join(nodes) + rate + limit

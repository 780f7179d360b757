"""Which GPUs the replicas of a service have, and how large copies go between two nodes of its machine and to remote memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from gpusim.base.errors import GpusimError
from gpusim.engine.serving.tiering import CopyWay
from gpusim.machine.topology import routes, transfers
from gpusim.machine.topology.topology import INSIDE, Topology, TopologyLink

LARGE = 1 << 30
"""Bytes of a copy by which ways are judged."""


def groups_of(machine: Topology, tensor: int) -> tuple[tuple[str, ...], ...]:
    """GPUs of each replica: as many as there are, in the order of the machine, none over GPUs of two kinds."""
    runs = [list(run) for _, run in groupby(machine.gpus, lambda gpu: machine.profile(gpu).name)]
    return tuple(tuple(run[i : i + tensor]) for run in runs for i in range(0, len(run) - tensor + 1, tensor))


def kinds_of(machine: Topology, groups: Sequence[tuple[str, ...]]) -> list[tuple[str, int]]:
    """What tells kinds of replicas apart: the GPU, and of several GPUs also which part of the machine has their links."""
    runs = [(name, list(run)) for name, run in groupby(machine.gpus, lambda gpu: machine.profile(gpu).name)]
    part = {gpu: (name, i if len(groups[0]) > 1 else 0) for i, (name, run) in enumerate(runs) for gpu in run}
    return [part[group[0]] for group in groups]


def way(machine: Topology, a: str, b: str) -> CopyWay:
    """The way of large copies; of a staged one the first and the last chunk, which go alone, are part of the latency."""
    route = routes.between(machine, a, b)
    parts = transfers.flows(machine, route, LARGE)
    flow = max(parts, key=lambda part: part.size)
    latency, rate = route.latency, transfers.alone(flow, transfers.rates(machine))
    if len(parts) > 1:
        latency = transfers.time_alone(machine, route, LARGE) - LARGE / rate
    return CopyWay(round(latency), rate, flow.links)


def socket_of(machine: Topology, gpu: str) -> str:
    """The node of the host's memory that is next to it."""
    return routes.nearest(machine, gpu, "socket")


def of_group(ways: Iterable[CopyWay], rates: Mapping[str, float]) -> CopyWay:
    """The slowest of ways that GPUs of a group take at once, each with as many bytes: what several pass they divide.

    A link that so many of them pass stands there so many times.
    """
    each = list(ways)
    times = Counter(link for one in each for link in one.links)
    slowest, rate = min(
        ((one, min([one.rate, *(rates[link] / times[link] for link in one.links)])) for one in each), key=lambda found: found[1]
    )
    links = tuple(link for link in dict.fromkeys(slowest.links) for _ in range(times[link]))
    return CopyWay(max(one.latency for one in each), rate, links)


def group_way(machine: Topology, a: Sequence[str], b: Sequence[str]) -> CopyWay:
    """The way of one GPU's part while all GPUs of a replica copy theirs to those of another."""
    return of_group((way(machine, x, y) for x, y in zip(a, b, strict=True)), transfers.rates(machine))


class NetworkCards(NamedTuple):
    """A network and what the machine's file, or a profile, says of it: bytes/s of a card, ns one way, share across sockets."""

    name: str
    rate: float
    latency: float
    across: float
    nodes: bool  # the cards are nodes of the machine


def network(machine: Topology, gpu: str, rdma: bool) -> NetworkCards:
    """The network over which a GPU's host reaches remote memory.  Raises GpusimError where nothing is known of one."""
    known = {machine.network_name: machine.network} if machine.network else {}
    for name, spec in (known | dict(machine.file.networks)).items():
        if spec is not None and bool(spec.rdma) == rdma and machine.of_kind("nic"):
            across = spec.rdma.across_sockets.value if spec.rdma else 1.0
            return NetworkCards(name, spec.rate.value, spec.latency.value, across, True)
    own = machine.profile(gpu).network
    if rdma and own is not None:
        return NetworkCards("network", own.rate.value, own.latency.value, 1.0, False)
    what = "card for RDMA" if rdma else "TCP over a network"
    said = f"machine '{machine.name}' says nothing of a {what}" if rdma else f"machine '{machine.name}' says nothing of {what}"
    raise GpusimError(said, hint="name a whole machine with cards, as hgx-h100")


def remote_ways(machine: Topology, gpu: str, rdma: bool, from_host: bool) -> tuple[CopyWay, CopyWay, dict[str, float]]:
    """(to remote memory, from it to the GPU, rates of links that the machine has not); `from_host`: what goes there comes
    from the host's memory.

    With RDMA a card reads and writes the memory of the GPU; a read is asked for first.  Over TCP the host's CPU copies
    through its memory.
    """
    cards, socket = network(machine, gpu, rdma), socket_of(machine, gpu)
    card = routes.card(machine, gpu) if cards.nodes else socket
    assert card is not None
    wires = (f"{card}>network", f"network>{card}") if cards.nodes else (f"network of {gpu}, out", f"network of {gpu}, in")
    rates = dict.fromkeys(wires, cards.rate / 1e9)
    ends = [(*_part(machine, socket, card), 0.0) if from_host else _to_card(machine, gpu, card, socket, rdma, False)]
    ends.append(_to_card(machine, gpu, card, socket, rdma, True))
    found = []
    for (links, rate, late), wire, trips in zip(ends, wires, (1, 2), strict=True):
        far = any(machine.links[pair].kind == "socket" for pair in machine.links if machine.links[pair].name in links)
        most = min(rate, cards.rate / 1e9) * (cards.across if far else 1.0)
        order = (*links, wire) if trips == 1 else (wire, *links)
        found.append(CopyWay(round(trips * cards.latency + late), most, order))
    return found[0], found[1], rates


LinksTaken = tuple[tuple[str, ...], float, float]


def _to_card(machine: Topology, gpu: str, card: str, socket: str, rdma: bool, back: bool) -> LinksTaken:
    """(links, bytes/ns, ns) between the memory of a GPU and its card."""
    if rdma:
        ends = (card, gpu) if back else (gpu, card)
        links, rate = _part(machine, *ends)
        bare = tuple(name for name in links if name not in machine.nodes)  # a card reads no host's memory on its way
        return bare, rate, 0.0
    legs = ((card, socket), (socket, gpu)) if back else ((gpu, socket), (socket, card))
    how, late = routes.staging(machine, gpu)
    parts = [_part(machine, *leg) for leg in legs]
    return tuple(name for links, _ in parts for name in links), min(how.rate / 1e9, *(part[1] for part in parts)), late


def _part(machine: Topology, a: str, b: str) -> tuple[tuple[str, ...], float]:
    """Links from one node to another within a host, and the slowest one's rate."""
    links: tuple[TopologyLink, ...] = ()
    if a != b:
        walked = routes.walk(machine, a, b, lambda link: link.kind in INSIDE, ("switch", "socket"))
        if walked is None:
            raise GpusimError(f"no wire of machine '{machine.name}' leads from '{a}' to '{b}' within a host")
        links = walked
    rate = min([link.rate / 1e9 for link in links], default=float("inf"))
    memory = () if links or not machine.nodes[a].bandwidth else (a,)
    return (*transfers.passed(machine, links), *memory), rate

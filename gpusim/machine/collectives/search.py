"""The rings, trees and NVLS channels that collectives use on a machine: the inputs of NCCL's estimate.

A channel is an order of the node's GPUs, and takes a speed from each link that it passes.  The search goes through NCCL's list
of speeds and packs as many channels as the links hold; the most bytes/s win.  Links have the rates that NCCL assumes, not those
that are reached.  Rules: src/graph/search.cc of github.com/NVIDIA/nccl @5067397c (Apache-2.0); the search is another one: it
packs orders of one node, the same on all nodes, where NCCL tries GPU after GPU until its time is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from math import inf

from gpusim.base.errors import GpusimError, suggest
from gpusim.machine.collectives import nccl_constants as constants
from gpusim.machine.collectives.nccl import Channels, Communicator
from gpusim.machine.collectives.nccl_constants import Protocol
from gpusim.machine.topology import routes
from gpusim.machine.topology.topology import DIRECT, INSIDE, Topology, TopologyLink

Order = tuple[int, ...]  # GPUs of a node by their place in its list
Uses = Mapping[str, int]  # link -> how often a channel passes it
ORDERS = 2000
"""Orders of a node's GPUs that are tried."""
TRIES = 5000
"""Placements of channels, and withdrawals, that are tried at one speed."""
ENOUGH = 0.49
"""Speeds below this share of the best one are not tried."""


@dataclass(frozen=True)
class CollectiveGraph:
    """What was found for the GPUs of a collective.

    nodes   GPUs that reach each other without a network, node by node
    orders  of each channel: the order of the GPUs on every node
    ring, tree, nvls   how many channels, and what each of them gets
    nvlink  neighbours of a ring are linked to each other
    near    no GPU's network card is below another socket
    """

    machine: Topology
    nodes: tuple[tuple[str, ...], ...]
    orders: tuple[Order, ...]
    ring: Channels
    tree: Channels
    nvls: Channels | None
    nvlink: bool
    near: bool = True

    @property
    def ranks(self) -> int:
        return sum(map(len, self.nodes))

    @cached_property
    def communicator(self) -> Communicator:
        """As NCCL's estimate sees it."""
        cpu = self.machine.file_of(self.nodes[0][0]).cpu
        return Communicator(
            capability=_capability(self.machine, self.nodes), nodes=len(self.nodes), ranks_per_node=len(self.nodes[0]),
            ring=self.ring, tree=self.tree, nvls=self.nvls, cpu="amd" if cpu == "amd" else "intel",
            nvlink=self.nvlink, ll128=self.nvlink and self.near, same_rings=len(set(self.orders)) == 1,
        )  # fmt: skip

    def path(self, channel: int) -> tuple[tuple[str, ...], ...]:
        """GPUs of each node in the order of a channel."""
        order = self.orders[channel % len(self.orders)]
        return tuple(tuple(node[i] for i in order) for node in self.nodes)

    @property
    def channels(self) -> int:
        """Channels of a communicator: each that was found stands twice."""
        return min(constants.MOST_CHANNELS, 2 * self.ring.count)

    def blocks(self, algorithm: str, protocol: Protocol, size: int) -> int:
        """Multiprocessors of each GPU that a collective of so many bytes takes: one for each channel that it uses."""
        if algorithm in ("NVLS", "NVLSTree"):
            return constants.SWITCH_BLOCKS[self.communicator.generation][len(self.nodes) > 1]
        each = constants.THREADS[protocol] * constants.THREAD_BYTES[protocol]
        if (algorithm, protocol) == ("Ring", "LL"):
            each *= self.ranks
        return max(1, min(self.channels, size // each))


@dataclass
class PackedChannels:
    """Channels that are being placed: what is left on each link, how often each order was taken, and the best so far."""

    left: dict[str, int]
    taken: list[int]
    best: list[int]
    tries: int = TRIES


@dataclass(frozen=True)
class SearchedNode:
    """A node on which channels are searched.

    gpus     of the node
    several  it is one of several nodes: channels come in and leave over network cards
    direct   only links between GPUs, not those of the host
    limits   GB/s of all links, as NCCL assumes them
    """

    machine: Topology
    gpus: tuple[str, ...]
    several: bool
    direct: bool
    limits: Mapping[str, float]

    def hop(self, a: str, b: str) -> tuple[TopologyLink, ...] | None:
        return hop(self.machine, a, b, self.direct)

    def chain(self, order: Order) -> Counter[str]:
        """Links that a chain in this order passes."""
        path = [self.gpus[i] for i in order]
        return Counter(link.name for a, b in pairwise(path) for link in self.hop(a, b) or ())

    def ring(self, order: Order) -> Counter[str]:
        """Links of a node that a ring in this order passes."""
        first, last = self.gpus[order[0]], self.gpus[order[-1]]
        if self.several:
            return self.chain(order) + Counter(self.to_network(first, True) + self.to_network(last, False))
        return self.chain(order) + Counter(link.name for link in self.hop(last, first) or ())

    def to_network(self, gpu: str, inward: bool) -> list[str]:
        """Links between a GPU and its network."""
        card = routes.card(self.machine, gpu)
        if card is None:
            raise GpusimError(f"no network of machine '{self.machine.name}' joins the hosts of this collective")
        ends = (card, gpu) if inward else (gpu, card)
        inside = routes.walk(self.machine, *ends, lambda link: link.kind in INSIDE, ("switch", "socket")) or ()
        every = self.machine.links.values()
        return [link.name for link in inside] + [
            link.name for link in every if link.kind == "network" and card == (link.b if inward else link.a)
        ]


def search(machine: Topology, gpus: Sequence[str]) -> CollectiveGraph:
    """Rings, trees and NVLS channels of a collective among these GPUs.

    Raises GpusimError for fewer than two GPUs, one that is not there or is named twice, and nodes with unequally many.
    """
    nodes = nodes_of(machine, gpus)
    capability, several = _capability(machine, nodes), len(nodes) > 1
    limits = {link.name: _speed(machine, link) for link in machine.links.values()}
    speeds = constants.newest(constants.SPEEDS_BETWEEN if several else constants.SPEEDS_WITHIN, capability)
    for direct in (True, False):
        node = SearchedNode(machine, nodes[0], several, direct, limits)
        if found := _best(node, speeds):
            break
    else:
        raise GpusimError(f"no ring leads through {', '.join(nodes[0])} of machine '{machine.name}'")
    orders, speed = _twice(*found, capability)
    return CollectiveGraph(
        machine, nodes, tuple(orders), Channels(len(orders), speed), _trees(node, orders, speed, speeds),
        _switches(node, speeds, capability), node.direct, _near(node),
    )  # fmt: skip


def nodes_of(machine: Topology, gpus: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The GPUs node by node: those of one host, or of one NVLink domain, are a node.  Raises GpusimError."""
    if len(gpus) < 2:
        raise GpusimError(f"a collective needs at least two GPUs, not {len(gpus)}")
    nodes: list[list[str]] = []
    for i, gpu in enumerate(gpus):
        if gpu not in machine.gpus:
            raise GpusimError(f"machine '{machine.name}' has no GPU '{gpu}'", hint=suggest(gpu, machine.gpus))
        if gpu in gpus[:i]:
            raise GpusimError(f"'{gpu}' is in the collective twice")
        mine = next((n for n in nodes if _together(machine, n[0], gpu)), None)
        if mine is None:
            nodes.append([gpu])
        else:
            mine.append(gpu)
    if len({len(node) for node in nodes}) > 1:
        counts = ", ".join(str(len(node)) for node in nodes)
        raise GpusimError(f"a collective needs equally many GPUs on each node, not {counts}")
    return tuple(map(tuple, nodes))


def hop(machine: Topology, a: str, b: str, direct: bool = False) -> tuple[TopologyLink, ...] | None:
    """Links of a step from one GPU of a node to another: their own, else, unless `direct`, those of the host."""
    return routes.walk(machine, a, b, lambda link: link.kind in DIRECT, ("nvswitch",)) or (
        None if direct else routes.walk(machine, a, b, lambda link: link.kind in INSIDE, ("switch", "socket"))
    )


def _together(machine: Topology, a: str, b: str) -> bool:
    return machine.host[a] == machine.host[b] or hop(machine, a, b, direct=True) is not None


def _capability(machine: Topology, nodes: Sequence[Sequence[str]]) -> int:
    return min(_of(machine, gpu) for node in nodes for gpu in node)


def _of(machine: Topology, gpu: str) -> int:
    major, _, minor = machine.profile(gpu).gpu.compute_capability.partition(".")
    return 10 * int(major) + int(minor or 0)


def _speed(machine: Topology, link: TopologyLink) -> float:
    """GB/s of a link as NCCL assumes them; where nominal is not known, what is reached."""
    if link.nominal is None or link.kind == "socket":
        return link.rate / 1e9
    if link.kind == "nvlink":
        gpu = next((end for end in (link.a, link.b) if machine.nodes[end].profile), machine.gpus[0])
        return link.nominal / 1e9 * constants.newest(constants.NVLINK_SHARE, _of(machine, gpu))
    return link.nominal / 1e9 * (constants.PCIE_SHARE if link.kind == "pcie" else 1)


def _best(node: SearchedNode, speeds: Sequence[float]) -> tuple[list[Order], float] | None:
    """The orders of the best channels and their speed; None: there is no ring."""
    by_links: dict[frozenset[tuple[str, int]], tuple[Order, Uses]] = {}
    for order in _orders(node):
        used = node.ring(order)
        by_links.setdefault(frozenset(used.items()), (order, used))
    tried = list(by_links.values())
    if not (node.direct or node.several):  # channels past a host have one order, which NCCL tries first and finds to be enough
        tried = tried[:1]
    best: tuple[list[Order], float] | None = None
    for speed in speeds:
        if best and speed / best[1] <= ENOUGH:
            break
        room = {name: int(limit / speed + 1e-6) for name, limit in node.limits.items()}
        channels = [tried[i][0] for i in _pack([used for _, used in tried], room)]
        if channels and (best is None or len(channels) * speed > len(best[0]) * best[1] + 1e-9):
            best = channels, speed
    if best is None and tried:
        return [tried[0][0]], min(node.limits[name] for name in tried[0][1])
    return best


def _orders(node: SearchedNode) -> Iterator[Order]:
    """Orders in which a ring may pass the GPUs of a node; of those that an NVSwitch makes equal one for each beginning."""
    count, machine = len(node.gpus), node.machine
    begins = count if node.several else 1
    steps = {(i, j): node.hop(node.gpus[i], node.gpus[j]) for i in range(count) for j in range(count) if i != j}
    if all(links and any(machine.nodes[link.b].kind == "nvswitch" for link in links) for links in steps.values()):
        yield from (tuple((i + k) % count for k in range(count)) for i in range(begins))
        return
    cost = {pair: _cost(links) for pair, links in steps.items()}
    for first in range(begins):
        rings = (order for order in _walks([first], count, cost) if node.several or cost[order[-1], first] < inf)
        yield from islice(rings, ORDERS // begins)


def _cost(links: Sequence[TopologyLink] | None) -> float:
    return inf if links is None else sum(100 if link.kind == "socket" else 1 for link in links)


def _walks(begun: list[int], count: int, cost: Mapping[tuple[int, int], float]) -> Iterator[Order]:
    if len(begun) == count:
        yield tuple(begun)
        return
    last = begun[-1]
    ahead = sorted((cost[last, i], i) for i in range(count) if i not in begun and cost[last, i] < inf)
    for _, i in ahead:
        yield from _walks([*begun, i], count, cost)


def _pack(uses: Sequence[Uses], room: dict[str, int]) -> list[int]:
    """The most channels that fit, as places in `uses`; the same may be taken again."""
    state = PackedChannels(dict(room), [], [])
    _place(state, uses, 0)
    return state.best


def _place(state: PackedChannels, uses: Sequence[Uses], start: int) -> None:
    if len(state.taken) > len(state.best):
        state.best = list(state.taken)
    for i in range(start, len(uses)):  # channels are a set: an earlier order than the last one brings nothing new
        if len(state.best) >= constants.MOST_CHANNELS // 2 or state.tries <= 0:
            return
        if all(state.left[name] >= times for name, times in uses[i].items()):
            state.tries -= 1
            _take(state, uses[i], -1)
            state.taken.append(i)
            _place(state, uses, i)
            state.taken.pop()
            _take(state, uses[i], 1)


def _take(state: PackedChannels, uses: Uses, sign: int) -> None:
    for name, times in uses.items():
        state.left[name] += sign * times


def _twice(orders: list[Order], speed: float, capability: int) -> tuple[list[Order], float]:
    """NCCL's rule: few fast channels become twice as many of half the speed."""
    if speed < 25 or (capability > 80 and speed < 50 and len(orders) > 4):
        return orders, speed
    return orders * 2, speed / 2


def _trees(node: SearchedNode, orders: Sequence[Order], speed: float, speeds: Sequence[float]) -> Channels:
    """Trees have the rings' orders and cards; on the nodes their chains may be faster, but no more than twice and a step."""
    passed = sum((node.chain(order) for order in orders), Counter[str]())
    within = speed
    for faster in sorted(each for each in speeds if each > speed):
        if passed and within < 2 * speed and all(n * faster <= node.limits[name] + 1e-6 for name, n in passed.items()):
            within = faster
    one_card = node.several and len(node.gpus) > 1 and len({routes.card(node.machine, gpu) for gpu in node.gpus}) == 1
    return Channels(len(orders), within, one_card, speed if node.several else None)


def _switches(node: SearchedNode, speeds: Sequence[float], capability: int) -> Channels | None:
    """NVLS: each GPU is the head of a channel, which takes its speed from every GPU's port and once more from its own."""
    machine, limits = node.machine, node.limits
    ports = [link for gpu in node.gpus for link in machine.neighbours[gpu] if machine.nodes[link.b].kind == "nvswitch"]
    if capability < 90 or len(node.gpus) < 3 or len(ports) < len(node.gpus):
        return None
    heads = min(constants.MOST_HEADS, len(node.gpus))
    room, outside = min(limits[link.name] for link in ports) / (heads + 1), inf
    if node.several:
        cards = [node.to_network(gpu, True)[-1] for gpu in node.gpus]
        outside = min(limits[name] / count for name, count in Counter(cards).items())
    within = max((speed for speed in speeds if speed <= min(room, outside) + 1e-6), default=0.0)
    between = max((speed for speed in speeds if speed <= outside + 1e-6 and speed < 4 * within), default=within)
    return Channels(heads, within, between=between) if within else None


def _near(node: SearchedNode) -> bool:
    """No GPU's network card is below another socket."""
    kinds = {link.name: link.kind for link in node.machine.links.values()}
    return not node.several or all(kinds[name] != "socket" for gpu in node.gpus for name in node.to_network(gpu, True))

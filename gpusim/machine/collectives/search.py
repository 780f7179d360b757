"""The rings, trees and NVLS channels that collectives use on a machine: the inputs of NCCL's estimate.

A channel is an order of the node's GPUs, and takes a speed from each link that it passes.  The search goes through NCCL's list of
speeds and packs as many channels as the links hold; the most bytes/s win.  Links have the rates that NCCL assumes, not those
that are reached.  Rules: src/graph/search.cc of github.com/NVIDIA/nccl @5067397c (Apache-2.0); the search itself is another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
"""Channels that are placed and taken back at one speed."""
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
        return Communicator(
            capability=_capability(self.machine, self.nodes), nodes=len(self.nodes), ranks_per_node=len(self.nodes[0]),
            ring=self.ring, tree=self.tree, nvls=self.nvls, cpu="amd" if self.machine.file.cpu == "amd" else "intel",
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
class Packing:
    """Channels that are being placed: what is left on each link, how often each order was taken, and the best so far."""

    left: dict[str, int]
    taken: list[int]
    best: list[int]
    tries: int = TRIES


def search(machine: Topology, gpus: Sequence[str]) -> CollectiveGraph:
    """Rings, trees and NVLS channels of a collective among these GPUs.

    Raises GpusimError for fewer than two GPUs, one that is not there or is named twice, and nodes with unequally many.
    """
    nodes = nodes_of(machine, gpus)
    capability, first = _capability(machine, nodes), nodes[0]
    limits = {link.name: _speed(machine, link) for link in machine.links.values()}
    several = len(nodes) > 1
    speeds = constants.newest(constants.SPEEDS_BETWEEN if several else constants.SPEEDS_WITHIN, capability)
    for direct in (True, False):
        found = _best(machine, first, limits, speeds, several, direct)
        if found is not None:
            break
    else:
        raise GpusimError(f"no ring leads through {', '.join(first)} of machine '{machine.name}'")
    orders, speed = found
    orders, speed = _twice(orders, speed, capability)
    return CollectiveGraph(
        machine, nodes, tuple(orders), Channels(len(orders), speed), _trees(machine, nodes, limits, orders, speed, speeds),
        _switches(machine, nodes, limits, speeds, capability), (direct and len(first) > 1) or len(first) == 1, _near(machine, nodes),
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


def _best(
    machine: Topology, node: Sequence[str], limits: Mapping[str, float], speeds: Sequence[float], several: bool, direct: bool
) -> tuple[list[Order], float] | None:
    """The orders of the best channels and their speed; None: there is no ring."""
    by_use = {}
    for order in _orders(machine, node, direct, closed=not several):
        used = _uses(machine, node, order, direct, several)
        by_use.setdefault(frozenset(used.items()), (order, used))
    if not direct and len(node) > 1:  # channels past hosts all have one order, which NCCL tries first and finds to be enough
        by_use = dict(list(by_use.items())[:1])
    orders, uses = [order for order, _ in by_use.values()], [used for _, used in by_use.values()]
    best: tuple[list[Order], float] | None = None
    for speed in speeds:
        if best and speed / best[1] <= ENOUGH:
            break
        channels = [orders[i] for i in _pack(uses, {name: int(limit / speed + 1e-6) for name, limit in limits.items()})]
        if channels and (best is None or len(channels) * speed > len(best[0]) * best[1] + 1e-9):
            best = channels, speed
    if best is None and orders:
        return [orders[0]], min(limits[name] for name in uses[0])
    return best


def _orders(machine: Topology, node: Sequence[str], direct: bool, closed: bool) -> Iterator[Order]:
    """Orders in which a ring may pass the GPUs of a node; of those that an NVSwitch makes equal one for each beginning."""
    count = len(node)
    steps = {(i, j): hop(machine, node[i], node[j], direct) for i in range(count) for j in range(count) if i != j}
    through = all(links and any(machine.nodes[link.b].kind == "nvswitch" for link in links) for links in steps.values())
    if count == 1 or through:
        yield from (tuple((i + k) % count for k in range(count)) for i in range(1 if closed else count))
        return
    found = 0
    cost = {pair: _cost(links) for pair, links in steps.items()}
    for first in range(1 if closed else count):
        for order in _walks([first], count, cost):
            if not closed or cost[order[-1], first] < inf:
                yield order
                found += 1
                if found >= ORDERS * (first + 1) / (1 if closed else count):
                    break


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


def _uses(machine: Topology, node: Sequence[str], order: Order, direct: bool, several: bool) -> Counter[str]:
    """Links of a node that a channel of a ring passes; on several nodes it comes in and leaves over network cards."""
    path = [node[i] for i in order]
    passed: Counter[str] = Counter()
    for a, b in zip(path, path[1:] if several else [*path[1:], path[0]], strict=False):
        passed.update(link.name for link in hop(machine, a, b, direct) or ())
    if several:
        for gpu, inward in ((path[0], True), (path[-1], False)):
            passed.update(_to_network(machine, gpu, inward))
    return passed


def _to_network(machine: Topology, gpu: str, inward: bool) -> list[str]:
    """Links between a GPU and its network."""
    card = routes.card(machine, gpu)
    if card is None:
        raise GpusimError(f"no network of machine '{machine.name}' joins the hosts of this collective")
    ends = (card, gpu) if inward else (gpu, card)
    inside = routes.walk(machine, *ends, lambda link: link.kind in INSIDE, ("switch", "socket")) or ()
    outside = [link for link in machine.links.values() if link.kind == "network" and card == (link.b if inward else link.a)]
    return [link.name for link in (*inside, *outside)]


def _pack(uses: Sequence[Uses], room: dict[str, int]) -> list[int]:
    """The most channels that fit, as places in `uses`; the same may be taken again."""
    state = Packing(dict(room), [], [])
    _place(state, uses, 0)
    return state.best


def _place(state: Packing, uses: Sequence[Uses], start: int) -> None:
    if len(state.taken) > len(state.best):
        state.best = list(state.taken)
    for i in _in_turn(len(uses), start):
        if len(state.best) >= constants.MOST_CHANNELS // 2 or state.tries <= 0:
            return
        if all(state.left[name] >= times for name, times in uses[i].items()):
            state.tries -= 1
            _take(state, uses[i], -1)
            state.taken.append(i)
            _place(state, uses, i)
            state.taken.pop()
            _take(state, uses[i], 1)


def _in_turn(count: int, start: int) -> Iterator[int]:
    """Channels are a set, so that an earlier order than the last one brings nothing new."""
    yield from range(start, count)


def _take(state: Packing, uses: Uses, sign: int) -> None:
    for name, times in uses.items():
        state.left[name] += sign * times


def _twice(orders: list[Order], speed: float, capability: int) -> tuple[list[Order], float]:
    """NCCL's rule: few fast channels become twice as many of half the speed."""
    if speed < 25 or (capability > 80 and speed < 50 and len(orders) > 4):
        return orders, speed
    return orders * 2, speed / 2


def _trees(
    machine: Topology, nodes: Sequence[Sequence[str]], limits: Mapping[str, float], orders: Sequence[Order], speed: float,
    speeds: Sequence[float],
) -> Channels:  # fmt: skip
    """Trees have the rings' orders and cards; on the nodes their chains may be faster, but no more than twice and a step."""
    passed: Counter[str] = Counter()
    for order in orders:
        path = [nodes[0][i] for i in order]
        for a, b in zip(path, path[1:], strict=False):
            passed.update(link.name for link in hop(machine, a, b) or ())
    within = speed
    for faster in sorted(each for each in speeds if each > speed):
        if passed and within < 2 * speed and all(n * faster <= limits[name] + 1e-6 for name, n in passed.items()):
            within = faster
    one_card = len(nodes) > 1 and len(nodes[0]) > 1 and len({routes.card(machine, gpu) for gpu in nodes[0]}) == 1
    return Channels(len(orders), within, one_card, speed if len(nodes) > 1 else None)


def _switches(
    machine: Topology, nodes: Sequence[Sequence[str]], limits: Mapping[str, float], speeds: Sequence[float], capability: int
) -> Channels | None:
    """NVLS: each GPU is the head of a channel, which takes its speed from every GPU's port and once more from its own."""
    node = nodes[0]
    ports = [link for gpu in node for link in machine.neighbours[gpu] if machine.nodes[link.b].kind == "nvswitch"]
    if capability < 90 or len(node) < 3 or len(ports) < len(node):
        return None
    heads = min(constants.MOST_HEADS, len(node))
    room, outside = min(limits[link.name] for link in ports) / (heads + 1), inf
    if len(nodes) > 1:
        cards = Counter(routes.card(machine, gpu) for gpu in node)
        outside = min(limits[_to_network(machine, gpu, True)[-1]] / cards[routes.card(machine, gpu)] for gpu in node)
    within = max((speed for speed in speeds if speed <= min(room, outside) + 1e-6), default=0.0)
    between = max((speed for speed in speeds if speed <= outside + 1e-6 and speed < 4 * within), default=within)
    return Channels(heads, within, between=between) if within else None


def _near(machine: Topology, nodes: Sequence[Sequence[str]]) -> bool:
    if len(nodes) == 1:
        return True
    kinds = {link.name: link.kind for link in machine.links.values()}
    return not any(kinds[name] == "socket" for gpu in nodes[0] for name in _to_network(machine, gpu, True))

"""What checkpoints cost on a machine: times of copies over its links, and what these leave of the work beside them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpusim.base.calls import split
from gpusim.base.errors import GpusimError, suggest
from gpusim.base.units import show_bytes
from gpusim.engine.failures.run import CheckpointCost
from gpusim.machine.topology import routes, transfers
from gpusim.machine.topology.topology import INSIDE, Topology, TopologyLink
from gpusim.machine.topology.transfers import LinkFlow
from gpusim.studies.failures.ranks import SavingRanks
from gpusim.studies.failures.steps import SimulatedSteps

CHECKPOINTS = ("sync", "two_phase", "peers")
_BESIDE = ("two_phase", "peers")
PARAMETERS: dict[str, tuple[float, tuple[str, ...]]] = {
    "full": (1.0, CHECKPOINTS), "share": (1.0, CHECKPOINTS), "each": (1.0, _BESIDE), "speed": (1.0, _BESIDE),
    "agent": (0.0, _BESIDE), "pageable": (0.0, _BESIDE), "copies": (1.0, ("peers",)), "rebalance": (0.0, ("peers",)),
    "tensor": (0.0, CHECKPOINTS), "pipeline": (0.0, CHECKPOINTS), "weights": (SavingRanks().weights, CHECKPOINTS),
}  # fmt: skip
"""What may stand in the brackets: its default, of which kinds."""
_WHOLE = ("copies", "each", "full", "tensor", "pipeline")
ENDLESS = 1e15
"""Bytes of a copy that is on its way as long as a step is watched."""


@dataclass(frozen=True)
class CheckpointWords:
    """`--checkpoint` as numbers.

    speed     of the work while a copy is on its way; None: the machine says it
    pageable  the host's copy is not pinned (shared memory, ordinary tensors): the driver stages it
    rebalance  after a failure the copies in neighbours' memory are spread anew over the nodes that there are
    ranks     which rank saves how much
    """

    name: str
    copies: int = 0
    each: int = 1
    full: int = 1
    share: float = 1.0
    speed: float | None = None
    agent: bool = False
    pageable: bool = False
    rebalance: bool = False
    ranks: SavingRanks = field(default_factory=SavingRanks)


def words(word: str) -> CheckpointWords:
    """"peers(copies=2)".  Raises GpusimError."""
    name, said = split(word, "a kind of checkpoint")
    if name not in CHECKPOINTS:
        raise GpusimError(f"there is no checkpoint '{name}'", hint=suggest(name, CHECKPOINTS) or ", ".join(CHECKPOINTS))
    numbers = {key: value for key, (value, kinds) in PARAMETERS.items() if name in kinds}
    numbers |= {"each": 10.0} if name == "peers" else {}
    for key, text in said.items():
        if key not in numbers:
            raise GpusimError(f"a {name} checkpoint has no '{key}'", hint=suggest(key, numbers) or ", ".join(numbers))
        try:
            numbers[key] = float(text)
        except ValueError:
            raise GpusimError(f"'{text}' is no number for {key}", hint=f"write {key}={numbers[key]:g}") from None
    for key, value in numbers.items():
        if key in ("share", "speed", "weights") and not 0 < value <= 1:
            raise GpusimError(f"{key} of a checkpoint is {value:g}", hint="a share above 0, 1 at most")
        least = int(key in ("copies", "full") or (key in said and key != "each"))
        if key in _WHOLE and (value < least or value % 1):
            hint = f"a whole number, {least} or more"
            raise GpusimError(f"{key} of a checkpoint is {value:g}", hint=hint)
    whole: dict[str, Any] = {key: int(numbers[key]) for key in ("copies", "each", "full") if key in numbers}
    flags: dict[str, Any] = {key: bool(numbers[key]) for key in ("agent", "pageable", "rebalance") if key in numbers}
    speed = numbers["speed"] if "speed" in said else None
    ranks = SavingRanks(int(numbers["tensor"]), int(numbers["pipeline"]), numbers["weights"])
    if ranks.alike and "weights" in said:
        hint = f"name its degrees: {name}(tensor=8, weights=0.25)"
        raise GpusimError("weights= is what the first replica alone saves, and no replica is named", hint=hint)
    return CheckpointWords(name, share=numbers["share"], speed=speed, ranks=ranks, **whole, **flags)


@dataclass(frozen=True)
class CopyTime:
    """Equal copies that begin together: ns at first, and for each byte of one of them."""

    first: float
    of_a_byte: float

    def __call__(self, size: float) -> float:
        return self.first + size * self.of_a_byte


def at_once(machine: Topology, flows: Sequence[LinkFlow]) -> CopyTime:
    """Until all have ended: the fullest link decides."""
    rates, loads = transfers.rates(machine), Counter(link for flow in flows for link in flow.links)
    slowest = max((load / rates[link] for link, load in loads.items()), default=0.0)
    return CopyTime(max(flow.latency for flow in flows), max(slowest, *(1.0 / flow.rate for flow in flows)))


def until_all(machine: Topology, flows: Sequence[LinkFlow], sizes: Sequence[float]) -> float:
    """ns until copies of these sizes, which begin together, have all ended."""
    rates, loads = transfers.rates(machine), defaultdict[str, float](float)
    for flow, size in zip(flows, sizes, strict=True):
        for link in flow.links:
            loads[link] += size
    ends = [size / flow.rate for flow, size in zip(flows, sizes, strict=True)]
    return max(flow.latency for flow in flows) + max(*ends, *(load / rates[link] for link, load in loads.items()))


def host_flows(machine: Topology, gpus: int, back: bool = False, pageable: bool = False) -> list[LinkFlow]:
    """Of each GPU of a node to the memory of its socket, or from there."""
    flows, host = [], machine.profile(machine.gpus[0]).host
    most = (host.pageable_h2d if back else host.pageable_d2h).value / 1e9 if pageable else math.inf
    for gpu in machine.gpus[:gpus]:
        ends = (gpu, routes.nearest(machine, gpu, "socket"))
        route = routes.between(machine, *(reversed(ends) if back else ends))
        flow = max(transfers.flows(machine, route, 1 << 30), key=lambda part: part.size)
        flows.append(flow._replace(rate=min(flow.rate, most)))
    return flows


def network_flows(machine: Topology, gpus: int, to: int = 1, back: int = 0) -> list[LinkFlow]:
    """From the host memory beside each GPU of node `back` to that of node `to`, over the card of the GPU.

    Raises GpusimError without a network.
    """
    if len(machine.gpus) < 2 * gpus or machine.network is None:
        raise GpusimError("there are no neighbours to keep copies", hint="name several nodes: 4 x hgx-h100")
    flows = []
    for a, b in zip(machine.gpus[back * gpus : (back + 1) * gpus], machine.gpus[to * gpus : (to + 1) * gpus], strict=True):
        links = [*_to_card(machine, a), *_over(machine, a, b), *_from_card(machine, b)]
        rate = min(link.rate for link in links) / 1e9
        flows.append(LinkFlow(machine.network.latency.value, ENDLESS, rate, transfers.passed(machine, links)))
    return flows


def _to_card(machine: Topology, gpu: str) -> tuple[TopologyLink, ...]:
    card = routes.card(machine, gpu)
    if card is None:
        raise GpusimError(f"'{gpu}' of machine '{machine.name}' reaches no network card")
    socket = routes.nearest(machine, gpu, "socket")
    return routes.walk(machine, socket, card, lambda link: link.kind in INSIDE, ("switch", "socket")) or ()


def _from_card(machine: Topology, gpu: str) -> Iterator[TopologyLink]:
    for link in reversed(_to_card(machine, gpu)):
        yield machine.links[link.b, link.a]


def _over(machine: Topology, a: str, b: str) -> tuple[TopologyLink, ...]:
    ends = str(routes.card(machine, a)), str(routes.card(machine, b))
    return routes.walk(machine, *ends, lambda link: link.kind == "network", ("network",)) or ()


@dataclass(frozen=True)
class CheckpointCosts:
    """Costs of checkpoints of a state, by the nodes that share it.

    storage  bytes/ns that the storage takes from all nodes together
    keeps    parts of the state that a host keeps: its own, and those of its neighbours
    """

    machine: Topology
    gpus: int
    words: CheckpointWords
    state: int
    storage: float

    @property
    def keeps(self) -> int:
        return 1 + self.words.copies

    @cached_property
    def _out(self) -> list[LinkFlow]:
        """To the host."""
        return host_flows(self.machine, self.gpus, pageable=self.words.pageable)

    @cached_property
    def _back(self) -> CopyTime:
        """From there."""
        return at_once(self.machine, host_flows(self.machine, self.gpus, True, self.words.pageable))

    @cached_property
    def _over(self) -> CopyTime:
        """From a host's memory to another's."""
        return at_once(self.machine, network_flows(self.machine, self.gpus))

    def of(self, nodes: int, all_nodes: int) -> CheckpointCost:
        """A job of so many nodes, of at most `all_nodes`.  Raises GpusimError for copies that do not fit a host."""
        said, ranks, by_nodes = self.words, nodes * self.gpus, self.words.ranks.saved(self.state, nodes, self.gpus)
        part, own = max(max(sizes) for sizes in by_nodes), said.ranks.loaded(self.state, ranks)
        stop, back = max(until_all(self.machine, self._out, sizes) for sizes in by_nodes), self._back
        over = self._over if all_nodes > 1 or said.copies else CopyTime(0.0, 0.0)
        stored = max(self.state / self.storage, over(part))
        read = max(said.ranks.read(self.state, ranks) / self.storage, over(own))
        if said.name == "sync":
            return CheckpointCost(stop=stop + stored, load=(0.0, 0.0, read + back(own)), full=said.full,
                                  share=said.share, join=over(own))  # fmt: skip
        self._check_host(max(sum(sizes) for sizes in by_nodes))
        to_peers = over(part) * said.copies if said.name == "peers" else 0.0
        return CheckpointCost(
            stop=stop, to_peers=to_peers, to_storage=stored,
            load=(back(own), over(own) + back(own) if said.name == "peers" else back(own), read + back(own)), host=True,
            agent=said.agent, copies=said.copies, rebalance=said.rebalance, each=said.each, full=said.full, share=said.share,
            join=over(own), speed=(said.speed or 1.0,) * 2,
        )  # fmt: skip

    def _check_host(self, node: float) -> None:
        there = self.machine.host_memory(self.machine.gpus[0])
        wanted = int(2 * node * self.keeps)  # the copy at hand must not overwrite the one that is safe
        if wanted > there:
            raise GpusimError(
                f"two checkpoints in a host's memory, {self.keeps} part{'s' if self.keeps > 1 else ''} each, take "
                f"{show_bytes(wanted)} of {show_bytes(there)}",
                hint="fewer copies, more nodes, or checkpoint=sync",
            )

    def beside(self, steps: SimulatedSteps, nodes: int) -> tuple[float, float]:
        """Shares of its pace that the work keeps while copies are on their way: to neighbours, to storage.

        Each GPU's part flows from the host's memory over the GPU's card for as long as the steps are watched.
        """
        if self.words.name == "sync":
            return 1.0, 1.0
        to_peers = 1.0
        if self.words.copies:
            out, back = network_flows(self.machine, self.gpus), network_flows(self.machine, self.gpus, 0, 1)
            rate = 1.0 / at_once(self.machine, out).of_a_byte
            to_peers = steps.keeps(beside=tuple(flow._replace(latency=0.0, rate=rate) for flow in (*out, *back)))
        leaving = leaving_flows(self.machine, self.gpus)
        if not leaving:
            return to_peers, 1.0
        rate = min(self.storage / nodes / self.gpus, 1.0 / at_once(self.machine, leaving).of_a_byte)
        return to_peers, steps.keeps(beside=tuple(flow._replace(rate=rate) for flow in leaving))


def leaving_flows(machine: Topology, gpus: int) -> list[LinkFlow]:
    """From the host memory beside each GPU of the first node out over its card; none where GPUs have no cards."""
    flows = []
    for gpu in machine.gpus[:gpus]:
        if (card := routes.card(machine, gpu)) is None:
            return []
        links = [*_to_card(machine, gpu), *(link for link in machine.neighbours[card] if link.kind == "network")]
        flows.append(LinkFlow(0.0, ENDLESS, min(link.rate for link in links) / 1e9, transfers.passed(machine, links)))
    return flows

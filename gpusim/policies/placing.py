"""What a placement policy sees: the machine, and what the ranks of a program exchange.

It answers the GPU of each rank, before anything runs.  A built-in is one file `policies/placement/<name>.py` with

    name(view, **parameters) -> list[str]    names of GPUs, in the order of ranks
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.machine.collectives.passes import Kind
from gpusim.machine.collectives.times import CollectiveTime, CollectiveTimes
from gpusim.machine.topology import routes, transfers
from gpusim.machine.topology.topology import Topology

F64 = npt.NDArray[np.float64]


class GroupExchange(NamedTuple):
    """What a group of ranks exchanges, `calls` times; of a send the sender, then the receiver.

    name    of all such groups, which exchange at the same time: "tensor", "data"
    kind    and size as in `trace.exchanges`
    beside  kernels go on meanwhile: it has a stream of its own
    """

    name: str
    kind: Kind
    size: int
    ranks: tuple[int, ...]
    beside: bool = False
    calls: int = 1


class PlacementEstimate(NamedTuple):
    """ns of the program; and of exchanges, of each group by itself and added up: those that kernels wait for, the others."""

    total: float
    waited_for: float
    beside: float


@dataclass
class PlacementView:
    """What a placement policy may look at.

    machine    its GPUs (`machine.gpus`), the host of each (`machine.host`), links
    ranks      how many are to be placed
    exchanges  of the whole program
    kernels    ns of those of a rank, of the one that has most
    times      of collectives on the machine
    """

    machine: Topology
    ranks: int
    exchanges: tuple[GroupExchange, ...]
    kernels: float
    times: CollectiveTimes
    _known: dict[tuple[Kind, int, tuple[str, ...]], CollectiveTime] = field(default_factory=dict)

    @property
    def gpus(self) -> tuple[str, ...]:
        """All of the machine, by name."""
        return tuple(self.machine.gpus)

    def traffic(self) -> F64:
        """(ranks, ranks) bytes that each rank exchanges with each other; of a collective each pair the whole message."""
        found = np.zeros((self.ranks, self.ranks))
        for each in self.exchanges:
            who = np.array(each.ranks)
            found[np.ix_(who, who)] += each.size * each.calls
        np.fill_diagonal(found, 0.0)
        return found

    def rate(self, a: str, b: str) -> float:
        """bytes/ns of a copy between two GPUs, alone.  Raises GpusimError where no wire leads from one to the other."""
        return routes.between(self.machine, a, b).rate / 1e9

    def estimate(self, gpus: Sequence[str]) -> PlacementEstimate:
        """What exchanges and kernels add up to with the ranks on these GPUs.

        Groups of one name go on at the same time, over links that they share; groups of different names one after the other.
        Those with streams of their own go on beside kernels and count where they take longer.
        Raises GpusimError for GPUs among which a collective cannot be.
        """
        rates = transfers.rates(self.machine)
        alone: defaultdict[tuple[bool, str], defaultdict[tuple[int, ...], float]] = defaultdict(lambda: defaultdict(float))
        loads: defaultdict[tuple[bool, str], defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for each in self.exchanges:
            time, group = self._of(each, gpus), (each.beside, each.name)
            alone[group][each.ranks] += each.calls * time.ns
            for link, passes in Counter(time.flow.links).items():
                loads[group][link] += each.calls * passes * time.flow.size / rates[link]
        takes, summed = [0.0, 0.0], [0.0, 0.0]
        for group, of in alone.items():
            takes[group[0]] += max(*of.values(), *loads[group].values(), 0.0)
            summed[group[0]] += sum(of.values())
        return PlacementEstimate(takes[False] + max(self.kernels, takes[True]), *summed)

    def _of(self, each: GroupExchange, gpus: Sequence[str]) -> CollectiveTime:
        group = tuple(gpus[rank] for rank in each.ranks)
        if each.kind not in ("send", "broadcast", "reduce"):  # the order of others does not matter
            group = tuple(sorted(group, key=self.machine.gpus.index))
        key = each.kind, each.size, group
        if key not in self._known:
            self._known[key] = self.times.of(each.kind, group, each.size)
        return self._known[key]

"""Rows of measured collectives on the machines of ours that stand for theirs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from gpusim.calibrate.collectives.rows import CollectiveRow
from gpusim.machine.collectives import fabrics
from gpusim.machine.collectives.fabrics import CollectiveFabric
from gpusim.machine.collectives.times import CollectiveTime, CollectiveTimes
from gpusim.machine.topology import build
from gpusim.machine.topology.topology import Topology


@cache
def _machine(word: str) -> Topology:
    return build.load(word)


def gpus_of(row: CollectiveRow) -> tuple[str, ...]:
    """The first GPUs of each of its nodes."""
    each = row.gpus // row.nodes
    if row.nodes == 1:
        return _machine(row.on).gpus[:each]
    return tuple(f"n{node}.gpu{i}" for node in range(row.nodes) for i in range(each))


class SimulatedRows:
    """Times of rows; graphs of their machines are searched once, whatever the numbers of the fabrics are."""

    def __init__(self, known: Mapping[str, CollectiveFabric] | None = None) -> None:
        self.known = dict(fabrics.shipped() if known is None else known)
        self._times: dict[str, CollectiveTimes] = {}

    def of(self, row: CollectiveRow) -> CollectiveTime:
        """The row's collective."""
        if row.on not in self._times:
            self._times[row.on] = CollectiveTimes(_machine(row.on), self.known)
        return self._times[row.on].of(row.kind, gpus_of(row), row.size)

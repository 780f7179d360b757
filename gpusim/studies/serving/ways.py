"""Which GPUs the replicas of a service have, and how large copies go between two nodes of its machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from gpusim.engine.serving.tiering import CopyWay
from gpusim.machine.topology import routes, transfers
from gpusim.machine.topology.topology import Topology

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


def group_way(machine: Topology, a: Sequence[str], b: Sequence[str]) -> CopyWay:
    """The way of one GPU's part while all GPUs of a replica copy theirs to those of another: that of the slowest pair.

    A link that several pairs pass stands there as many times.
    """
    ways = [way(machine, x, y) for x, y in zip(a, b, strict=True)]
    passed, rate_of = Counter(name for one in ways for name in one.links), transfers.rates(machine)
    rates = [min(one.rate, *(rate_of[name] / passed[name] for name in one.links)) for one in ways]
    slowest = ways[rates.index(min(rates))]
    links = tuple(name for name in dict.fromkeys(slowest.links) for _ in range(passed[name]))
    return CopyWay(slowest.latency, min(rates), links)


def socket_of(machine: Topology, gpu: str) -> str:
    """The node of the host's memory that is next to it."""
    return routes.nearest(machine, gpu, "socket")

"""How large copies of a service go between two nodes of its machine."""

from __future__ import annotations

from gpusim.engine.serving.tiering import CopyWay
from gpusim.machine.topology import routes, transfers
from gpusim.machine.topology.topology import Topology


def way(machine: Topology, a: str, b: str) -> CopyWay:
    """The way of large copies; a staged one goes at the rate of all its stages at once."""
    route = routes.between(machine, a, b)
    flow = max(transfers.flows(machine, route, 1 << 30), key=lambda part: part.size)
    return CopyWay(round(route.latency), flow.rate, flow.links)


def socket_of(machine: Topology, gpu: str) -> str:
    """The node of the host's memory that is next to it."""
    return routes.nearest(machine, gpu, "socket")

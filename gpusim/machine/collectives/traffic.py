"""What a collective's bytes are on the links of a machine: one flow, and the rates that each kind of link allows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import gcd, inf
from typing import NamedTuple

from gpusim.machine.collectives.fabrics import CollectiveFabric, fabric_of
from gpusim.machine.collectives.passes import Passed, Ways
from gpusim.machine.topology import transfers
from gpusim.machine.topology.topology import DIRECT


class CollectiveTraffic(NamedTuple):
    """The flow of a message of one byte, whatever collectives reach of its links.

    unit    bytes of the flow
    links   in the flow as often as it passes them
    routes  fabric -> bytes/ns of the flow that its routes allow
    ports, direct, others  the same of ports of NVSwitches that reduce, of links between GPUs, and of all other links
    """

    unit: float
    links: tuple[str, ...]
    routes: dict[str, float]
    ports: float
    direct: float
    others: float


def traffic(found: Passed, ways: Ways, rates: Mapping[str, float], known: Mapping[str, CollectiveFabric]) -> CollectiveTraffic:
    """Of what passes for a byte; `rates`: of links in bytes/ns; `known`: fabrics, whose names tell networks apart."""
    machine = ways.machine
    kinds = {link.name: link.kind for link in machine.links.values()}
    links: Counter[str] = Counter()
    routes: dict[str, float] = {}
    for pair, times in found.hops.items():
        route = ways.route(pair)
        name = fabric_of(machine, route, known)
        routes[name] = min(routes.get(name, inf), route.rate / 1e9 / times)
        for leg in route.legs:
            links.update({link: times * n for link, n in Counter(transfers.passed(machine, leg)).items()})
    links.update(found.ports)
    most = gcd(*links.values())  # as large a unit as there is
    allowed = {"ports": inf, "direct": inf, "others": inf}
    for name, times in links.items():
        group = "ports" if name in found.ports else "direct" if kinds.get(name) in DIRECT else "others"
        allowed[group] = min(allowed[group], rates[name] / times * most)
    return CollectiveTraffic(
        found.unit * most, tuple(name for name, n in links.items() for _ in range(n // most)),
        {name: rate * most for name, rate in routes.items()}, **allowed,
    )  # fmt: skip

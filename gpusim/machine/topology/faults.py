"""Machines some of whose links are slow or gone: the same machine with other links.

A collective divides its bytes evenly over cards and wires and ends with the slowest of them, so one slow link is as bad as if
all of its kind were: `slower` makes them so.  Without a link the graph of collectives is searched anew; hosts stay alike.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gpusim.base.errors import GpusimError
from gpusim.machine.topology.spec import WireKind
from gpusim.machine.topology.topology import DIRECT, Topology, TopologyLink

NETWORK: tuple[WireKind, ...] = ("network",)


def slower(machine: Topology, kinds: Collection[WireKind], factor: float) -> Topology:
    """Links of these kinds at so large a share of their rate.  Raises GpusimError where there are none."""
    if not any(link.kind in kinds for link in machine.links.values()):
        raise GpusimError(f"machine '{machine.name}' has no {' or '.join(kinds)} links that could be slow")
    links = {ends: _at(link, factor) if link.kind in kinds else link for ends, link in machine.links.items()}
    return replace(machine, links=links)


def without_card(machine: Topology) -> Topology:
    """Each host without its first network card.  Raises GpusimError for hosts that have no other."""
    cards: dict[int, list[str]] = {}
    for card in machine.of_kind("nic"):
        cards.setdefault(machine.host[card], []).append(card)
    if min(map(len, cards.values()), default=0) < 2:
        raise GpusimError(f"a host of '{machine.name}' has no second network card", hint="write nic(then=replace)")
    gone = {names[0] for names in cards.values()}
    nodes = {name: node for name, node in machine.nodes.items() if name not in gone}
    return replace(machine, nodes=nodes, links={ends: link for ends, link in machine.links.items() if not gone & set(ends)})


def without_wire(machine: Topology) -> Topology:
    """Each host without one of the wires between its first two GPUs that have any; GPUs that have links of their own."""
    links = dict(machine.links)
    for host in sorted({machine.host[gpu] for gpu in machine.gpus}):
        pair = next(
            ((link.a, link.b) for link in machine.links.values()
             if link.kind in DIRECT and machine.nodes[link.b].kind == "gpu" and machine.host.get(link.a) == host), None,
        )  # fmt: skip
        if pair is None:
            raise GpusimError(f"GPUs of '{machine.name}' have no wires to each other", hint="write link(then=replace)")
        for ends in (pair, pair[::-1]):
            link = links[ends]
            if link.count > 1:
                links[ends] = replace(_at(link, 1 - 1 / link.count), count=link.count - 1)
            else:
                del links[ends]
    return replace(machine, links=links)


def _at(link: TopologyLink, factor: float) -> TopologyLink:
    return replace(link, rate=link.rate * factor, both=None if link.both is None else link.both * factor)

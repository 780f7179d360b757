"""Bytes that pass each link of a machine in a run of ranks: what their exchanges send, and what they copy from and to hosts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.topology.sharing import shared
from gpusim.policies.placing import GroupExchange
from gpusim.results.result import Result

_COPIES = {"h2d": ("h2d_bytes", "program_h2d_bytes"), "d2h": ("d2h_bytes", "program_d2h_bytes")}
"""A device's own link -> metrics whose bytes pass it."""


def link_bytes(
    collectives: CollectiveTimes, gpus: Sequence[str], exchanges: Iterable[GroupExchange], ranks: Sequence[Result]
) -> dict[str, int]:
    """Name of a link, of what both directions of a wire share, or of a host's memory -> bytes, where any pass.

    gpus       of the ranks, by name; exchanges: of all of them, in the whole program
    """
    found: defaultdict[str, float] = defaultdict(float)
    for each in exchanges:
        flow = collectives.of(each.kind, [gpus[rank] for rank in each.ranks], each.size).flow
        for name, passes in Counter(flow.links).items():
            found[name] += each.calls * passes * flow.size
    links = shared(collectives.machine, gpus)
    for i, rank in enumerate(ranks):
        own = {name: link for link, (device, name) in links.own.items() if device == i}
        for way, metrics in _COPIES.items():
            copied = sum(rank.metrics.get(metric, 0) for metric in metrics)
            for passed in (*filter(None, (own.get(way), own.get("both"))), *links.beyond[i].get(way, ())):
                found[passed] += copied
    return {name: round(size) for name, size in sorted(found.items()) if size}

"""Whole machines of several GPUs: their list, one of them, the route between two of its nodes, collectives of its GPUs."""

from __future__ import annotations

from typing import Any, cast

from gpusim.base.errors import GpusimError
from gpusim.machine.collectives import told as collectives_told
from gpusim.machine.collectives.passes import Kind
from gpusim.machine.topology import build, routes, told


def machines(
    name: str = "", a: str = "", b: str = "", *, peers: bool = True, collective: str = "", gpus: str = ""
) -> Any:
    """What `gpusim machines` prints.

    name   a machine, `4 x hgx-h100`, `2 x hgx-h100 over tcp`, or a file; none: all that are known, a row each
    a, b   two of its nodes: the route of a copy, its reason, its links, and its time by size (rate in bytes/s, latency in ns)
    peers  GPUs were told to reach each other where they can
    collective, gpus  "all_reduce" and the like, and of which GPUs ("8", the first eight; names with commas between; none: all):
           the channels that they have, and times by size

    Raises ProfileError, ConfigError; GpusimError where a node is unknown, or there is no route or collective.

    >>> import gpusim
    >>> gpusim.machines("dgx-1-p100", "gpu0", "gpu1")["rate"]
    18480000000.0
    """
    if not name:
        return told.overview()
    made = build.load(name)
    if collective:
        members = collectives_told.gpus_named(made, gpus)
        return {"name": made.name, **collectives_told.collective(made, cast(Kind, collective), members)}
    if not (a or b):
        return {
            "name": made.name, "summary": made.file.summary, "estimate": made.file.estimate, "nodes": list(made.nodes),
            "tree": list(told.tree(made)), "wires": told.wires(made), "between_gpus": (rows := told.matrix(made)),
            "letters": told.letters(rows), "sources": made.file.sources,
        }  # fmt: skip
    if not (a and b):
        raise GpusimError("a route has two ends", hint=f"{a or b} and {made.gpus[-1]}, for example")
    route = routes.between(made, a, b, direct=peers)
    return {
        "from": a, "to": b, "told": routes.told(route), "reason": route.reason, "staged": route.staged is not None,
        "rate": route.rate, "latency_ns": route.latency, "links": told.hops(route), "copies": told.copies(made, route),
    }  # fmt: skip

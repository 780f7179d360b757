"""Whole machines of several GPUs: their list, one of them, the route between two of its nodes."""

from __future__ import annotations

from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.machine.topology import build, routes, told


def machines(name: str = "", a: str = "", b: str = "", *, peers: bool = True) -> Any:
    """What `gpusim machines` prints.

    name   a machine, `4 x hgx-h100`, `2 x hgx-h100 over tcp`, or a file; none: all that are known, a row each
    a, b   two of its nodes: the route of a copy, its reason, its links, and its time by size (rate in bytes/s, latency in ns)
    peers  GPUs were told to reach each other where they can

    Raises ProfileError, ConfigError; GpusimError where a node is unknown, or there is no route.

    >>> import gpusim
    >>> gpusim.machines("dgx-1-p100", "gpu0", "gpu1")["rate"]
    18480000000.0
    """
    if not name:
        return told.overview()
    made = build.load(name)
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

"""How long a request waits for a model that is not on the GPU: its weights come in groups of layers, one behind the other.

A group is copied, the host waits for it and tells the program that computes.  Pipelined, a group's layers are computed as soon
as it is there and the group before is computed; else computing begins when all are there (PipeSwitch, OSDI 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class LayerGroup(NamedTuple):
    """Layers that are copied together: bytes, and ns to compute them."""

    size: float
    compute: float


def loaded(groups: Sequence[LayerGroup], rate: float, each: float = 0.0, *, pipelined: bool = True) -> float:
    """ns until all groups are computed.

    rate  of the copies, bytes/s
    each  ns that a group costs beside its bytes, before the next one is copied
    """
    there = done = 0.0
    for group in groups:
        there += group.size / rate * 1e9 + each
        done = max(done, there) + group.compute
    return done if pipelined else there + sum(group.compute for group in groups)

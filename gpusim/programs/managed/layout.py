"""Where the allocations of a managed program lie in virtual memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.machine.driver_parameters import BLOCK_BYTES
from gpusim.programs.managed.steps import Array


@dataclass(frozen=True)
class Span:
    """Where an allocation lies: its first byte, windows of 2 MiB standing one after the other, and its bytes."""

    first: int
    bytes: int
    freed: bool = False


def lay_out(arrays: Sequence[Array]) -> dict[str, Span]:
    spans, window = {}, 0
    for a in arrays:
        spans[a.name] = Span(window * BLOCK_BYTES + a.at, a.bytes)
        window += -(-(a.at + a.bytes) // BLOCK_BYTES)
    return spans

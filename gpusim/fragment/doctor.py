"""The OOM doctor: why a program ran out of memory, what holds it, and what would help."""

from __future__ import annotations

from pathlib import Path

from gpusim.fragment.answer import Answer
from gpusim.trace.trace import Trace


def examine(path_or_trace: str | Path | Trace, *, capacity: int | None = None, device: int | None = None) -> Answer:
    """The answer for one program on one device.

    capacity  bytes that the allocator could hold were it alone on the device; None: as far as the recording tells
    device    which GPU of a snapshot of several; None: the one where a request failed, else the first
    """
    return Answer()

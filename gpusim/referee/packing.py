"""What compression makes of swapped tensors, by the trace's meta."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpusim.trace.trace import I64, Trace


class Compression(NamedTuple):
    """Bytes of each tensor, and the most bytes per second of swaps that the codec lets through, as they cross the link."""

    wire: I64
    stored: I64
    rates: dict[str, float]
    on_wire: float  # bytes that cross the link for a byte of a tensor, not rounded


def packing(trace: Trace) -> Compression:
    """Without a codec a tensor crosses the link, and lies in host memory, as it is."""
    said = trace.meta.get("swap")
    if not said:
        return Compression(trace.size, trace.size, {}, 1.0)
    stored = np.ceil(trace.size / said["ratio"]).astype(np.int64)
    before_link = said["on"] == "gpu"
    shrinks = said["ratio"] if before_link else 1.0
    rates = {name: said[name] / shrinks for name in ("compress", "decompress")}
    return Compression(stored if before_link else trace.size, stored, rates, 1 / shrinks)

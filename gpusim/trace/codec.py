"""What swapped tensors are compressed with, as a trace's `meta["swap"]` says it; the transform `compressed_swap` writes it.

    on gpu    device ─codec─▶ link ─▶ host     what crosses the link is compressed already
    on cpu    device ─▶ link ─codec─▶ host     the link carries all of it, only host memory is saved
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from gpusim.base.errors import TraceError
from gpusim.trace.trace import I64, Trace

KEY = "swap"  # of the meta
PLACES = ("gpu", "cpu")


@dataclass(frozen=True)
class Codec:
    """Rates in uncompressed bytes per second; a codec packs and unpacks at once without slowing itself down."""

    ratio: float  # bytes before / bytes after, of any tensor
    compress: float
    decompress: float
    on: str

    def stored(self, size: I64) -> I64:
        """Bytes that copies of tensors of these sizes take in host memory."""
        return np.ceil(size / self.ratio).astype(np.int64)

    def wire(self, size: I64) -> I64:
        """Bytes that cross the link for them."""
        return self.stored(size) if self.on == "gpu" else size

    def on_wire(self, amount: float) -> float:
        """Bytes, or bytes per second, of tensors as they cross the link, not rounded."""
        return amount / self.ratio if self.on == "gpu" else amount

    def meta(self) -> dict[str, Any]:
        """The entry of a trace's meta that says so."""
        return {KEY: asdict(self)}


def swap_codec(trace: Trace) -> Codec | None:
    """The codec of the trace's swaps, None without one.  TraceError when the meta does not describe one."""
    if KEY not in trace.meta:
        return None
    try:
        said = trace.meta[KEY]
        codec = Codec(**{field.name: said[field.name] for field in fields(Codec)})
        sound = 1 <= codec.ratio < np.inf and codec.compress > 0 and codec.decompress > 0 and codec.on in PLACES
    except (TypeError, KeyError):
        sound = False
    if not sound:
        raise TraceError(
            f"{trace.name}: the meta's '{KEY}' is {trace.meta[KEY]}",
            hint="wanted: ratio (at least 1), compress and decompress (bytes/s), on (gpu or cpu)",
        )
    return codec

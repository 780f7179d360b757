"""Compressed swapping: what leaves for the host is made smaller, and costs the time of the codec."""

from __future__ import annotations

from dataclasses import replace

from gpusim.base.errors import GpusimError, suggest
from gpusim.base.units import RATE, parse
from gpusim.trace.codec import KEY, PLACES, Codec
from gpusim.trace.trace import Trace


def compressed_swap(
    trace: Trace, ratio: float = 1.5, compress: str = "0.35 GB/s", decompress: str = "1.2 GB/s", on: str = "cpu"
) -> Trace:
    """Compress tensors on their way to host memory and restore them on their way back.

    ratio       bytes before / bytes after, the same for every tensor; 8 bits instead of bf16: 2, instead of fp32: 4
    compress    uncompressed bytes per second that the codec takes in
    decompress  uncompressed bytes per second that it gives back
    on          gpu: compressed bytes cross the link; cpu: all bytes do, and are compressed after it

    A swapped tensor takes 1 / ratio of its bytes in host memory.  The codec works while the copy flows, in pieces small beside
    the tensor, so that the slower of both sets the pace; copies side by side share it.  It takes nothing from kernels, and both
    directions run at once.  Only swaps are compressed, not the program's own copies.
    The defaults: zstd -1 on one core, bf16 activations of a transformer, byte-shuffled, as measured (docs/transforms.md).
    """
    if KEY in trace.meta:
        raise GpusimError(f"{trace.name}: its swaps are compressed already")
    if on not in PLACES:
        hint = suggest(on, PLACES) or "known: " + ", ".join(PLACES)
        raise GpusimError(f"parameter 'on' of transform 'compressed_swap' is '{on}'", hint=hint)
    if ratio < 1:
        raise GpusimError(f"parameter 'ratio' of transform 'compressed_swap' is {ratio}", hint="it is at least 1")
    rates = {name: float(parse(text, RATE)) for name, text in (("compress", compress), ("decompress", decompress))}
    for name, rate in rates.items():
        if not rate:
            raise GpusimError(f"parameter '{name}' of transform 'compressed_swap' is 0", hint="a codec takes its time")
    return replace(trace, meta={**trace.meta, **Codec(ratio, **rates, on=on).meta()})

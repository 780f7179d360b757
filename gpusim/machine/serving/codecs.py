"""Codecs of keys and values that lie below the device: how many bytes they make of them, and how long that takes.

On the GPU a codec is a kernel that reads one form and writes the other, as fast as the memory lets it.  On the CPU it has rates
of its own: zstd and LZ4 as measured on one core on bf16 activations, byte-shuffled (`machine/data/codecs.csv`); keys and
values were not measured.  What a codec does to the quality of answers is not modelled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.base.calls import split
from gpusim.base.errors import GpusimError
from gpusim.base.text import join
from gpusim.base.units import RATE, parse
from gpusim.machine.serving.shape import ServedModel

GPU, CPU = PLACES = ("gpu", "cpu")
GROUP = 64
"""Elements of int4 that have a scale and an offset of 16 bits each together."""
BITS = ("fp8", "int8", "int4")
"""fp8: one scale for all; int8: a scale of 16 bits for each head of a token; int4: groups."""
MEASURED: Mapping[str, tuple[float, float, float]] = {"zstd": (1.563, 0.350, 1.253), "lz4": (1.262, 0.406, 2.463)}
"""Ratio, GB/s of one core to encode and to decode: the rows of a residual stream in bf16."""
OWN = "codec"
CODECS = (*BITS, *MEASURED, OWN)
_KNOWN: Mapping[str, tuple[str, ...]] = {"zstd": ("cores",), "lz4": ("cores",), OWN: ("ratio", "encode", "decode", "on")}


@dataclass(frozen=True)
class KvCodec:
    """Bytes before over bytes after; bytes/ns before that are encoded, and that come out of decoding."""

    word: str
    ratio: float
    encode: float
    decode: float
    on: str

    @property
    def passes(self) -> int:
        """How often a byte on the wire has passed the memory of the device: it is copied, and on the GPU written or read by the
        kernel as well, which reads or writes `ratio` bytes for it."""
        return 2 + math.ceil(self.ratio) if self.on == GPU else 1

    @property
    def wire(self) -> float:
        """Bytes that flow to and from the device for each byte of keys and values."""
        return 1 / self.ratio if self.on == GPU else 1.0


def is_codec(word: str) -> bool:
    """Whether the word names a codec."""
    return word.partition("(")[0].strip() in CODECS


def codec_of(word: str, model: ServedModel) -> KvCodec:
    """fp8, int8, int4; zstd(cores=8), lz4(cores=8); codec(ratio=3, encode=50 GB/s, decode=90 GB/s, on=gpu).

    Raises GpusimError for another, and for one that makes keys and values no smaller.
    """
    name, given = split(word, "a codec")
    if name not in CODECS:
        raise GpusimError(f"there is no codec '{name}' of keys and values", hint=join(CODECS))
    known = _KNOWN.get(name, ())
    if wrong := next((key for key in given if key not in known), None):
        raise GpusimError(f"codec '{name}' has no parameter '{wrong}'", hint=join(known) or f"write {name}")
    if name == OWN:
        found = _own(word, given)
    elif name in MEASURED:
        ratio, encode, decode = MEASURED[name]
        cores = _number(word, given.get("cores", "1"))
        if model.cache != "bf16":
            raise GpusimError(f"{name} of {model.cache} was not measured", hint=f"--cache bf16, or {OWN}(ratio=..., ...)")
        found = KvCodec(word, ratio, cores * encode, cores * decode, CPU)
    else:
        bits = {"fp8": 8.0, "int8": 8 + 16 / model.head_size, "int4": 4 + 32 / GROUP}[name]
        found = KvCodec(word, (16 if model.cache == "bf16" else 8) / bits, math.inf, math.inf, GPU)
    if found.ratio <= 1:
        raise GpusimError(f"keys and values in {model.cache} are no larger than in {name}", hint="leave the codec out")
    return found


def _own(word: str, given: Mapping[str, str]) -> KvCodec:
    if missing := next((key for key in ("ratio", "encode", "decode") if key not in given), None):
        raise GpusimError(f"'{word}' does not say its {missing}", hint="codec(ratio=3, encode=50 GB/s, decode=90 GB/s, on=gpu)")
    on = given.get("on", GPU)
    if on not in PLACES:
        raise GpusimError(f"a codec works on no '{on}'", hint=join(PLACES))
    encode, decode = (float(parse(given[key], RATE)) / 1e9 for key in ("encode", "decode"))
    if not (encode and decode):
        raise GpusimError(f"'{word}' takes for ever", hint="a rate above 0")
    return KvCodec(word, _number(word, given["ratio"]), encode, decode, on)


def _number(word: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < math.inf:
        raise GpusimError(f"'{text}' in '{word}' is no number above 0")
    return found

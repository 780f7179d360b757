"""The tape of a serving program: weights, a pass over a prompt, a decoding step, and what happens to one cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from gpusim.programs.generate import llama
from gpusim.programs.generate.tape import AffineSize, RequestTape, Section
from gpusim.programs.generate.transformer import Dimensions


@dataclass(frozen=True)
class Serving:
    """Sections of one tape.

    prompt  2 * layers + 1 sections, affine in the tokens of one prompt; a layer's caches grow between its two
    decode  the same, affine in the sequences under way
    make    caches of one layer and sequence, affine in the tokens that they have room for
    grow    [p]: larger ones in their place when they have grown p times, modulo its length
    drop    [p]: they die when they have grown p times, modulo its length
    """

    rows: Any
    units: int        # of the weights and of what is temporary
    cache_units: int  # of the caches of one layer and sequence, or of one page
    start: Section
    prompt: list[Section]
    decode: list[Section]
    make: Section
    grow: list[Section]
    drop: list[Section]
    end: Section


@cache
def tape(shape: Dimensions, page: int) -> Serving:
    """page  tokens whose keys and values are one tensor, a page; 0: a tensor of all keys and one of all values"""
    t = RequestTape()
    for size in llama.parameters(shape) + llama.buffers(shape):
        t.new(size)
    start = t.cut()
    prompt, decode = _forward(t, shape, of_prompt=True), _forward(t, shape, of_prompt=False)
    t.free_all()
    end, units = t.cut(), t.units
    # From here on units count from 0 again: those of one cache.
    make, grow, drop = _page(t, shape, page) if page else _whole(t, shape)
    return Serving(t.rows(), units, 1 if page else 3, start, prompt, decode, make, grow, drop, end)


def _forward(t: RequestTape, m: Dimensions, of_prompt: bool) -> list[Section]:
    sections = []
    ids = t.new(m.tokens(1, 8))
    words, place, rotary = llama.embed(t, m)
    x = t.share(words)
    for _ in range(m.layers):
        normed, query, key, value = llama.attend(t, m, x)
        sections.append(t.cut())
        t.free(key, value)
        x = llama.finish(t, m, x, normed, query)
        sections.append(t.cut())
    hidden = llama.last(t, m, x, place, words, rotary)
    logits = t.new(m.weight(m.vocabulary) if of_prompt else m.tokens(m.vocabulary))
    t.free(hidden)
    chosen = t.new(AffineSize(8) if of_prompt else m.tokens(1, 8))
    t.free(ids, logits, chosen)
    return [*sections, t.cut()]


def _page(t: RequestTape, m: Dimensions, page: int) -> tuple[Section, list[Section], list[Section]]:
    kept = t.new(AffineSize(2 * page * m.tokens(m.kv_width).per))
    make = t.cut()
    t.free(kept)
    return make, [make], [t.cut()]


def _whole(t: RequestTape, m: Dimensions) -> tuple[Section, list[Section], list[Section]]:
    """As by torch.cat: the new tensor is there before the old one dies.  Three units take turns."""
    size, drop = m.tokens(m.kv_width), []
    for grown in range(4):
        key, value = t.new(size), t.new(size)
        make, grow = t.cut(), []
        for _ in range(grown):
            larger = t.new(size)
            t.free(key)
            key, larger = larger, t.new(size)
            t.free(value)
            value = larger
            grow.append(t.cut())
        t.free(key, value)
        drop.append(t.cut())
    return make, grow, drop[:3]

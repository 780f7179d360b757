"""Inference of an LLM whose key and value caches grow while requests come and go: continuous batching."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import typeof, types

from gpusim.base.compiled import entry, outlined
from gpusim.base.errors import GpusimError, suggest
from gpusim.base.tables import table
from gpusim.programs.generate import serving
from gpusim.programs.generate.schedule import PLAY, RequestSchedule, play
from gpusim.programs.generate.transformer import Dimensions
from gpusim.programs.lengths import draw as distributions

i8 = np.int64
CACHES = ("contiguous", "pages")
WAITING = np.dtype([("arrival", i8), ("prompt", i8), ("output", i8)])  # step, tokens, tokens
SLOT = np.dtype([("left", i8), ("tokens", i8), ("grown", i8)])  # tokens to come (0: free), in the caches; growths so far
STATE = np.dtype([("step", i8), ("next", i8)])  # next: of those waiting
SETTINGS = np.dtype(
    [("steps", i8), ("layers", i8), ("chunk", i8), ("pages", i8),  # pages: of one layer and sequence, 0: contiguous
     ("base", i8), ("graphs", i8), ("ms", np.float64), ("ends", i8)]
)  # fmt: skip


def growing_cache(
    *, hours: float = 1.0, requests_per_hour: float = 3600.0, steps_per_second: float = 20.0, cache: str = "contiguous",
    chunk: int = 0, lengths: str = "azure-conv", prompt: int = 1000, output: int = 130, spread: float = 1.0,
    longest: int = 8192, batch: int = 16, graphs: bool = False, layers: int = 16, width: int = 2048, heads: int = 32,
    kv_heads: int = 8, hidden: int = 8192, vocabulary: int = 128256, dtype_bytes: int = 2, ends: bool = False,
    seed: int = 0,
) -> RequestSchedule:  # fmt: skip
    """LLM inference with continuous batching: each sequence has caches of its own, which grow as it is decoded.

    Requests arrive at random (Poisson) and wait while `batch` sequences are under way.  A prompt is one forward pass; every
    step then makes one token for each sequence.  All is PyTorch's in eager mode, of Llama: with 16 layers a
    step is 1,358 requests, and 64 for each sequence whose caches grow.

    hours               how long it serves
    requests_per_hour   prompts that arrive in an hour, on average
    steps_per_second    decoding steps in a second
    cache               contiguous: a tensor of keys and one of values per layer, made anew to grow, as by torch.cat;
                        pages: one tensor for each `chunk` tokens of a layer
    chunk               tokens by which a cache grows at once; 0: 1 when contiguous, 16 in pages
    lengths             of prompt and output: azure-conv, azure-code, mooncake (recorded), lognormal, fixed, uniform, zipf
    prompt, output      tokens: medians of lognormal lengths, values of fixed ones
    spread              standard deviation of the logarithm of lognormal lengths, exponent of zipf ones
    longest             tokens of prompt and output together: longer ones are cut
    batch               sequences at once
    graphs              1: decoding runs as a CUDA graph and asks for nothing but caches
    layers, width, heads, kv_heads, hidden, vocabulary
                        the transformer's shape: Llama 3.2 1B
    dtype_bytes         of parameters, activations and caches: 2 or 4
    ends                1: gives everything back when its time is over
    seed                of arrivals and lengths
    """
    if cache not in CACHES:
        raise GpusimError(f"there is no cache '{cache}'", hint=suggest(cache, CACHES))
    if longest < 2:
        raise GpusimError(f"sequences of {longest} token have no output", hint="longest is 2 or more")
    paged = cache == "pages"
    chunk = chunk or (16 if paged else 1)
    shape = Dimensions(layers, width, heads, kv_heads, hidden, vocabulary, longest, 1, dtype_bytes)
    tape = serving.tape(shape, chunk if paged else 0)
    waiting = _arrivals(
        np.random.Generator(np.random.PCG64(seed)), requests_per_hour * hours, hours * 3600 * steps_per_second, lengths,
        prompt=prompt, output=output, spread=spread, longest=longest,
    )  # fmt: skip
    settings = table(1, SETTINGS)
    pages = -(-longest // chunk) if paged else 0
    settings[0] = (
        int(hours * 3600 * steps_per_second), layers, chunk, pages, tape.units, graphs, 1000 / steps_per_second, ends
    )  # fmt: skip
    sections = np.array([*tape.prompt, *tape.decode, tape.make, *tape.grow, *tape.drop])
    per_slot = layers * max(1, pages) * tape.cache_units
    room = 2 * batch * layers * (2 * max(1, pages) + 3) + 2 * layers + 2  # plays of one step, at most

    def plays() -> Iterator[Any]:
        state, slots = table(1, STATE), table(batch, SLOT)
        yield play(tape.start)
        made = table(room + (1 << 15), PLAY)
        while count := run(settings, sections, waiting, slots, state, made, room):
            yield made[:count]
        if ends:
            ending = play(tape.end)
            ending["time"] = round(hours * 3_600_000)
            yield ending

    return RequestSchedule("growing_cache", tape.rows, plays, tape.units + batch * per_slot)


def _arrivals(
    rng: np.random.Generator, requests: float, steps: float, lengths: str, *, prompt: int, output: int, spread: float,
    longest: int,
) -> Any:  # fmt: skip
    """A table of WAITING in order of arrival: about so many requests, over so many steps."""
    made = table(int(rng.poisson(requests)), WAITING)
    count = len(made)
    made["arrival"] = np.sort(rng.random(count)) * steps
    made["prompt"] = distributions.draw(
        rng, count, lengths, typical=prompt, spread=spread, longest=longest - 1, part="prompt"
    )  # fmt: skip
    drawn = distributions.draw(rng, count, lengths, typical=output, spread=spread, longest=longest, part="output")
    made["output"] = np.minimum(drawn, longest - made["prompt"])
    return made


I64 = types.Array(types.int64, 2, "C")


@outlined
def emit(out: Any, n: int, time: int, sections: Any, which: int, number: int, base: int) -> int:
    row = out[n]
    row.time, row.number, row.base = time, number, base
    row.first, row.end = sections[which, 0], sections[which, 1]
    return n + 1


@outlined
def drop(c: Any, sections: Any, slots: Any, i: int, out: Any, n: int, time: int) -> int:
    """Sequence i is done."""
    grows = 1 if c.pages else 3
    which = 4 * c.layers + 3 + grows + slots[i].grown % grows
    for layer in range(c.layers):
        at = i * c.layers + layer
        if c.pages:
            for page in range(-(-slots[i].tokens // c.chunk)):
                n = emit(out, n, time, sections, which, 0, c.base + at * c.pages + page)
        else:
            n = emit(out, n, time, sections, which, 0, c.base + 3 * at)
    slots[i].left = 0
    return n


@outlined
def admit(c: Any, sections: Any, slots: Any, i: int, waiting: Any, out: Any, n: int, time: int) -> int:
    """The prompt of a new sequence i: all of it in one pass, which makes the first token."""
    tokens = waiting.prompt
    slots[i].left, slots[i].tokens, slots[i].grown = waiting.output - 1, tokens, 0
    make, chunks = 4 * c.layers + 2, -(-tokens // c.chunk)
    for layer in range(c.layers):
        at = i * c.layers + layer
        n = emit(out, n, time, sections, 2 * layer, tokens, 0)
        if c.pages:
            for page in range(chunks):
                n = emit(out, n, time, sections, make, 0, c.base + at * c.pages + page)
        else:
            n = emit(out, n, time, sections, make, chunks * c.chunk, c.base + 3 * at)
        n = emit(out, n, time, sections, 2 * layer + 1, tokens, 0)
    n = emit(out, n, time, sections, 2 * c.layers, tokens, 0)
    if slots[i].left == 0:
        n = drop(c, sections, slots, i, out, n, time)
    return n


@outlined
def decode(c: Any, sections: Any, slots: Any, active: int, out: Any, n: int, time: int) -> int:
    """One more token for each sequence; what the latest one left is added to the caches."""
    first, grow = 2 * c.layers + 1, 4 * c.layers + 3
    for layer in range(c.layers):
        if not c.graphs:
            n = emit(out, n, time, sections, first + 2 * layer, active, 0)
        for i in range(slots.size):
            slot = slots[i]
            if slot.left and slot.tokens % c.chunk == 0:
                at = i * c.layers + layer
                if c.pages:
                    n = emit(out, n, time, sections, grow, 0, c.base + at * c.pages + slot.tokens // c.chunk)
                else:
                    n = emit(out, n, time, sections, grow + slot.grown % 3, slot.tokens + c.chunk, c.base + 3 * at)
        if not c.graphs:
            n = emit(out, n, time, sections, first + 2 * layer + 1, active, 0)
    if not c.graphs:
        n = emit(out, n, time, sections, first + 2 * c.layers, active, 0)
    for i in range(slots.size):
        slot = slots[i]
        if slot.left:
            if slot.tokens % c.chunk == 0:
                slot.grown += 1
            slot.tokens += 1
            slot.left -= 1
            if slot.left == 0:
                n = drop(c, sections, slots, i, out, n, time)
    return n


@entry(
    types.int64(
        typeof(table(1, SETTINGS)), I64, typeof(table(1, WAITING)), typeof(table(1, SLOT)), typeof(table(1, STATE)),
        typeof(table(1, PLAY)), types.int64,
    )
)  # fmt: skip
def run(settings: Any, sections: Any, waiting: Any, slots: Any, state: Any, out: Any, room: int) -> int:
    """Plays of the next steps, as long as another step (`room` plays) has room in `out`; returns how many, 0: no more.

    sections are those of Serving: prompt, decode, make, grow, drop.
    """
    c, s, n = settings[0], state[0], 0
    while s.step <= c.steps and out.size - n >= room:
        time = i8(s.step * c.ms)
        if s.step == c.steps:
            for i in range(slots.size):
                if c.ends and slots[i].left:
                    n = drop(c, sections, slots, i, out, n, time)
            s.step += 1
            break
        for i in range(slots.size):
            if s.next < waiting.size and waiting[s.next].arrival <= s.step and slots[i].left == 0:
                n = admit(c, sections, slots, i, waiting[s.next], out, n, time)
                s.next += 1
        active = 0
        for i in range(slots.size):
            active += slots[i].left > 0
        if active:
            n = decode(c, sections, slots, active, out, n, time)
            s.step += 1
        else:  # until the next prompt
            s.step = min(c.steps, max(s.step + 1, waiting[s.next].arrival)) if s.next < waiting.size else c.steps
    return n

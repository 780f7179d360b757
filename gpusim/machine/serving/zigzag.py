"""One step of FlexGen: a block of batches goes through the layers batch by batch, so that a layer's weights serve all of them.

Parts (the embedding, attention and feed-forward part of each layer, the head) follow each other; within one, batches do.  While
a batch of a part is computed, what others need moves; then the GPU is waited for.  Of each batch of each part

    ns = staged + max(in, out, read, written, memory, GPU + CPU)        without overlap the sum of all but memory

    in       over the link: the batch's activations, keys and values that the GPU attends to; beside the first batch
             of a part all of the next part's weights that are not on the GPU
    out      the batch's activations, its new keys and values
    read     from disk: shares of the above; keys and values that the CPU attends to
    written  to disk: new keys and values
    memory   of the host: bytes of all of these, and of the CPU's attention
    GPU      products, norms; scores of prompts, and of tokens whose keys it attends to; 4-bit weights unpacked for each batch
    CPU      scores of tokens whose keys lie below, 9 bytes moved for each of them: it copies 16-bit numbers to 32-bit ones
             (3 bytes for 1), transposes those (4), and multiplies (2)
    staged   bytes that are not pinned are copied to a pinned buffer by the thread that launches everything else

Source: FMInference/FlexLLMGen @004ffef8 (Apache-2.0), flexllmgen/flex_opt.py, pytorch_backend.py, compression.py, in own words.
What the GPU's kernels other than products take are the bytes that they move, six to eight passes where the code has as many.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from gpusim.base.compiled import entry, kernel

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

EMBEDDING, ATTENTION, MLP, HEAD = range(4)
KINDS = 4
ON_GPU, ON_HOST, ON_DISK = range(3)
# The numbers of a plan first; then of each kind of part its weights' bytes in each place, ns to unpack them, and ns of products
# and norms of 1, 2**(1/4), ... tokens.
(
    LAYERS, ROWS, WIDTH, HEADS, OVERLAP, PINNED, ON_CPU, PEAK, BANDWIDTH, UP, DOWN, READ, WRITE, MEMORY, CACHE_BITS,
    CACHE_GPU, CACHE_HOST, CACHE_DISK, HIDDEN_AWAY, BEGINS,
) = range(20)  # fmt: skip
STORED, UNPACK, GRID = BEGINS, BEGINS + 3 * KINDS, BEGINS + 4 * KINDS
NODES, AN_OCTAVE = 81, 4
GPU, CPU, WAITED = range(3)  # of what `step_ns` says

SCORE, HEADED, UNPACKED, CACHE_UNPACKED, PACKED, TURNED, CPU_PASSES = 12.0, 12.0, 13.0, 15.0, 25.0, 6.0, 9.0
"""Bytes that move: for each score of a prompt, and each of its elements; to unpack an element of weights, and of the cache,
where every second number is written alone, which takes a whole sector twice; to pack one; for each cached element that the
GPU attends to (it is copied in another order, then read); by the CPU for each byte of the cache."""

_F = types.Array(types.float64, 1, "C")
_I = types.Array(types.int64, 1, "C")


@kernel
def _products(z: F64, kind: int, tokens: float) -> float:
    """ns, between nodes in logarithms; on in a straight line."""
    u = max(np.log2(tokens) * AN_OCTAVE, 0.0)
    i = min(int(u), NODES - 2)
    at = GRID + kind * NODES + i
    return float(np.exp(z[at] * (1 - (u - i)) + z[at + 1] * (u - i)))


@kernel
def _batch(z: F64, kind: int, beside: int, tokens: float, pairs: float, seen: float, into: F64) -> None:
    """Adds ns of one batch of a part to the second half of `into`; `beside`: the part whose weights come, -1: none."""
    moved, width = 2.0 * z[WIDTH] * tokens, z[WIDTH]
    gpu, cpu, staged, loaded, sent = _products(z, kind, tokens) + z[UNPACK + kind], 0.0, 0.0, 0.0, 0.0
    read, written = 0.0, 0.0
    if kind > EMBEDDING:
        loaded += moved * z[HIDDEN_AWAY]
    if kind < HEAD:
        sent += moved * z[HIDDEN_AWAY]
    if kind == ATTENTION:
        new, kept = 2.0 * width * tokens, 2.0 * width * seen  # elements that are new, and that decoding tokens attend to
        stored, below = z[CACHE_BITS] / 8.0, z[CACHE_HOST] + z[CACHE_DISK]
        if pairs > 0:
            gpu += 4.0 * width * pairs / z[PEAK] + (SCORE * z[HEADS] * pairs + HEADED * width * tokens) / z[BANDWIDTH]
        if z[CACHE_BITS] < 16.0:
            gpu += PACKED * new / z[BANDWIDTH]
        mine = z[CACHE_GPU] if z[ON_CPU] > 0 else 1.0
        gpu += (TURNED + (CACHE_UNPACKED if z[CACHE_BITS] < 16.0 else 0.0)) * kept * mine / z[BANDWIDTH]
        cpu = CPU_PASSES * 2.0 * kept * (1.0 - mine) / z[MEMORY]
        read += kept * stored * z[CACHE_DISK]
        sent += new * stored * below
        written += new * stored * z[CACHE_DISK]
        if z[ON_CPU] == 0:
            loaded += kept * stored * below
            staged += 2.0 * kept * stored * z[CACHE_HOST] / z[MEMORY]
    if beside >= 0:
        host, disk = z[STORED + 3 * beside + ON_HOST], z[STORED + 3 * beside + ON_DISK]
        loaded += host + disk
        read += disk
        if z[PINNED] == 0:
            staged += 2.0 * host / z[MEMORY]
    in_, out, from_, to = loaded / z[UP], sent / z[DOWN], read / z[READ], written / z[WRITE]
    if z[OVERLAP] > 0:
        memory = (loaded + sent + read + written) / z[MEMORY] + cpu
        whole = staged + max(max(max(in_, out), max(from_, to)), max(memory, gpu + cpu))
    else:
        whole = staged + in_ + out + from_ + to + gpu + cpu
    into[3 + GPU] += gpu
    into[3 + CPU] += cpu
    into[3 + WAITED] += whole - gpu - cpu


@kernel
def _part(z: F64, kind: int, beside: int, before: I64, tokens: I64, count: int, times: float, into: F64) -> None:
    """Adds ns of `times` parts of a kind, all batches, to the first half of `into`."""
    rows = int(z[ROWS])
    into[3:] = 0.0
    for first in range(0, count, rows):
        new, pairs, seen = 0.0, 0.0, 0.0
        for i in range(first, min(first + rows, count)):
            new += tokens[i]
            if tokens[i] > 1:
                pairs += tokens[i] * (before[i] + tokens[i])
            else:
                seen += (before[i] + 1) * tokens[i]
        _batch(z, kind, beside if first == 0 else -1, max(new, 1.0), pairs, seen, into)
    for which in range(3):
        into[which] += times * into[3 + which]


@entry(types.float64(_F, _I, _I, types.int64, _F))
def step_ns(z: F64, before: I64, tokens: I64, count: int, into: F64) -> float:
    """ns of a step; `into` (6,) gets those of the GPU, of the CPU, and what they waited for copies, first.

    z       a plan's numbers (`machine.serving.zigzag_plan`)
    before  (N,) tokens of each request that are computed already; tokens: (N,) of this step; count: how many are looked at
    """
    into[:] = 0.0
    layers = z[LAYERS]
    _part(z, EMBEDDING, ATTENTION, before, tokens, count, 1.0, into)
    _part(z, ATTENTION, MLP, before, tokens, count, layers, into)
    _part(z, MLP, ATTENTION, before, tokens, count, layers - 1.0, into)
    _part(z, MLP, HEAD, before, tokens, count, 1.0, into)
    _part(z, HEAD, EMBEDDING, before, tokens, count, 1.0, into)
    return float(into[GPU] + into[CPU] + into[WAITED])


def plan_ns(z: F64, rows: int, prompt: int, output: int) -> tuple[float, Any]:
    """(ns, (2, 3) of the prompt's step and of all others) of `rows` requests alike; decoding as at its mean context."""
    parts = np.zeros((2, 6))
    both = []
    for i, (seen, new) in enumerate(((0, prompt), (prompt + output // 2, 1))):
        before, tokens = np.full(rows, seen, np.int64), np.full(rows, new, np.int64)
        both.append(step_ns(z, before, tokens, rows, parts[i]))
    parts[1] *= output - 1
    return both[0] + (output - 1) * both[1], parts[:, :3]

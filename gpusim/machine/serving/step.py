"""One step of a served model: flat tables, and a compiled function that looks a step up in them.

A step computes `tokens[i]` tokens of request i, which has `before[i]` tokens computed already: one token of a running request,
a whole prompt, or a chunk of one.  The parts of its time:

    gemm         products with weights and experts, by all tokens of the step; the head, by requests
    attention    decode (requests with one token): by their number and mean context, no less than the longest alone;
                 prompts: by pairs of tokens that see each other, at the rate of a batch of so many prompts of that length
    collectives  of tensor parallelism, by tokens
    other        norms, activations, rotations, writing keys and values, sampling; by tokens and requests
    host         what the CPU adds: all of its time where it does not overlap with the GPU, else what it takes longer; without
                 CUDA graphs, what launching takes longer than the GPU

Inside a CUDA graph a step is computed as of the next captured number of tokens.

The table is one float64 array, which compiled code reads by the offsets in its first numbers; it is never written.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from gpusim.base.compiled import entry, kernel

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

PARTS = ("gemm", "attention", "collectives", "other", "host")
GEMM, ATTENTION, COLLECTIVES, OTHER, HOST = range(5)
HIDDEN = 5
"""Behind the parts: ns of the CPU that a step takes no time for, as the GPU computes the step before."""

# What the first numbers of a table say: by token and by request the offset of three arrays, of which each has a number for
# 0, 1, ... count, then that count and the slope of each beyond; of grids the offset, rows and columns.
(
    BY_TOKEN, TOKENS, TOKEN_SLOPE, BY_REQUEST, REQUESTS, REQUEST_SLOPE, DECODE, DECODE_ROWS, DECODE_COLUMNS, PREFILL,
    PREFILL_ROWS, PREFILL_COLUMNS, CAPTURED, CAPTURES, MIXED, HOST_STEP, HOST_REQUEST, HOST_TOKEN, OVERLAP, LAUNCHES,
    LOW, HIGH,
) = (0, 1, 2, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 29)  # fmt: skip
HEADER = 40
STEPS = 4
"""Nodes an octave of the grids of attention."""

_F = types.Array(types.float64, 1, "C")
_I = types.Array(types.int64, 1, "C")


@kernel
def _line(table: F64, first: int, count: int, slope: int, part: int, at: int) -> float:
    """A number of one of three arrays, beyond its end in a straight line."""
    base = first + part * (count + 1)
    if at <= count:
        return float(table[base + at])
    return float(table[base + count] + table[slope + part] * (at - count))


@kernel
def grid_ns(table: F64, first: int, rows: int, columns: int, x: float, y: float) -> float:
    """ns at x of the rows and y of the columns, both from 1, between nodes in logarithms; edges go on in a straight line."""
    u, v = max(math.log2(x) * STEPS, 0.0), max(math.log2(y) * STEPS, 0.0)
    i, j = min(int(u), rows - 2), min(int(v), columns - 2)
    p, q = u - i, v - j
    at = first + i * columns + j
    low = table[at] * (1 - q) + table[at + 1] * q
    high = table[at + columns] * (1 - q) + table[at + columns + 1] * q
    return math.exp(low * (1 - p) + high * p)


@kernel
def _captured(table: F64, total: int, only_decode: bool) -> int:
    """The captured number of tokens that a step of so many is padded to; 0: it is not in a CUDA graph."""
    first, count = int(table[CAPTURED]), int(table[CAPTURES])
    if count == 0 or (table[MIXED] == 0 and not only_decode) or total > table[first + count - 1]:
        return 0
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        if table[first + middle] >= total:
            high = middle
        else:
            low = middle + 1
    return int(table[first + low])


@kernel
def _attention(table: F64, before: I64, tokens: I64, count: int) -> float:
    """ns of the attention of all layers."""
    decodes, context, longest, prompts = 0, 0, 0, 0
    for i in range(count):
        if tokens[i] == 1:
            decodes += 1
            context += before[i] + 1
            longest = max(longest, before[i] + 1)
        elif tokens[i] > 1:
            prompts += 1
    first, rows, columns = int(table[DECODE]), int(table[DECODE_ROWS]), int(table[DECODE_COLUMNS])
    ns = 0.0
    if decodes > 0:
        ns = grid_ns(table, first, rows, columns, float(decodes), context / decodes)
        ns = max(ns, grid_ns(table, first, rows, columns, 1.0, float(longest)))
    if prompts > 0:
        start, high, wide = int(table[PREFILL]), int(table[PREFILL_ROWS]), int(table[PREFILL_COLUMNS])
        for i in range(count):
            if tokens[i] > 1:
                new, seen = float(tokens[i]), float(before[i] + tokens[i])
                pairs = new * before[i] + new * (new + 1) / 2
                alone = grid_ns(table, start, high, wide, float(prompts), seen) / prompts * pairs / (seen * (seen + 1) / 2)
                ns += max(alone, grid_ns(table, first, rows, columns, 1.0, seen) / prompts)
    return ns


@entry(types.int64(_F, _I, _I, types.int64, _I))
def step_time(table: F64, before: I64, tokens: I64, count: int, parts: I64) -> int:
    """ns of a step; `parts`, of five numbers, gets its parts in ns, in the order of PARTS, and of six also what is HIDDEN.

    before  (N,) tokens of each scheduled request that are computed already
    tokens  (N,) tokens of each in this step; 0: not in it
    count   how many of the requests are looked at, the first ones
    """
    total, requests, only_decode = 0, 0, True
    for i in range(count):
        total += tokens[i]
        requests += 1 if tokens[i] > 0 else 0
        only_decode = only_decode and tokens[i] <= 1
    for part in range(5):
        parts[part] = 0
    if total == 0:
        return 0
    padded = _captured(table, total, only_decode)
    computed = max(padded, total)
    of_tokens, of_requests = int(table[BY_TOKEN]), int(table[BY_REQUEST])
    n, m = int(table[TOKENS]), int(table[REQUESTS])
    gpu = 0.0
    for part, i in ((GEMM, 0), (COLLECTIVES, 1), (OTHER, 2)):
        ns = _line(table, of_tokens, n, TOKEN_SLOPE, i, computed) + _line(table, of_requests, m, REQUEST_SLOPE, i, requests)
        parts[part] = round(ns)
        gpu += ns
    ns = _attention(table, before, tokens, count)
    parts[ATTENTION] = round(ns)
    gpu += ns
    host = table[HOST_STEP] + table[HOST_REQUEST] * requests + table[HOST_TOKEN] * total
    launched = gpu if padded > 0 else max(gpu, table[LAUNCHES])
    whole = max(launched, host) if table[OVERLAP] > 0 else launched + host
    parts[HOST] = round(whole - gpu)
    if parts.size > HIDDEN:
        parts[HIDDEN] = round(launched + host - whole)
    return int(parts[GEMM] + parts[ATTENTION] + parts[COLLECTIVES] + parts[OTHER] + parts[HOST])


@entry(types.int64(_F, _I, _F))
def step_interval(table: F64, parts: I64, bounds: F64) -> int:
    """Between which ns the step of these parts is, four times out of five; into `bounds`.  Errors of all parts go together."""
    low, high = 0.0, 0.0
    for part in range(5):
        low += parts[part] * table[LOW + part]
        high += parts[part] * table[HIGH + part]
    bounds[0], bounds[1] = low, high
    return 0


def paced(table: F64, factors: F64) -> F64:
    """The table of steps whose parts take these multiples of their time, (5,) in the order of PARTS."""
    made = table.copy()
    for first, count, slope in ((BY_TOKEN, TOKENS, TOKEN_SLOPE), (BY_REQUEST, REQUESTS, REQUEST_SLOPE)):
        width = int(table[count]) + 1
        for row, part in enumerate((GEMM, COLLECTIVES, OTHER)):
            begin = int(table[first]) + row * width
            made[begin : begin + width] *= factors[part]
            made[slope + row] *= factors[part]
    for first, rows, columns in ((DECODE, DECODE_ROWS, DECODE_COLUMNS), (PREFILL, PREFILL_ROWS, PREFILL_COLUMNS)):
        begin = int(table[first])
        made[begin : begin + int(table[rows] * table[columns])] += math.log(factors[ATTENTION])
    for number in (HOST_STEP, HOST_REQUEST, HOST_TOKEN, LAUNCHES):
        made[number] *= factors[HOST]
    return made


def launched(table: F64, ns: float) -> F64:
    """The table of an engine whose steps with prompts are in no CUDA graph, and which launches a step in at least `ns`."""
    made = table.copy()
    made[MIXED], made[LAUNCHES] = 0.0, max(made[LAUNCHES], ns)
    return made


def packed(numbers: dict[str, Any]) -> F64:
    """A table of by_token and by_request (3, count + 1), decode and prefill grids of log ns, captured sizes, single numbers."""
    head, body, at = np.zeros(HEADER), [], HEADER

    def put(values: F64) -> int:
        nonlocal at
        body.append(np.ascontiguousarray(values, np.float64).reshape(-1))
        at += body[-1].size
        return at - body[-1].size

    lines = (("by_token", BY_TOKEN, TOKENS, TOKEN_SLOPE), ("by_request", BY_REQUEST, REQUESTS, REQUEST_SLOPE))
    for name, first, count, slope in lines:
        values = numbers[name]
        head[first], head[count] = put(values), values.shape[1] - 1
        behind = max(values.shape[1] - 1 - (values.shape[1] - 1) // 2, 1)
        head[slope : slope + 3] = (values[:, -1] - values[:, -1 - behind]) / behind
    for name, first in (("decode", DECODE), ("prefill", PREFILL)):
        head[first] = put(numbers[name])
        head[first + 1 : first + 3] = numbers[name].shape
    head[CAPTURED], head[CAPTURES] = put(np.array(numbers["captured"], np.float64)), len(numbers["captured"])
    for name, where in (
        ("mixed", MIXED), ("host_step", HOST_STEP), ("host_request", HOST_REQUEST), ("host_token", HOST_TOKEN),
        ("overlap", OVERLAP), ("launches", LAUNCHES),
    ):  # fmt: skip
        head[where] = numbers[name]
    head[LOW : LOW + 5], head[HIGH : HIGH + 5] = numbers["low"], numbers["high"]
    return np.concatenate([head, *body])

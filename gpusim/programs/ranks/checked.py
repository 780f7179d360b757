"""Whether a program can be divided as asked, and whether its ranks' exchanges can all come about: asked before a run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from gpusim.base.errors import GpusimError, TraceError
from gpusim.programs.ranks.layout import RankLayout
from gpusim.programs.ranks.matching import Matched
from gpusim.trace.edit import issued
from gpusim.trace.model_blocks import blocks
from gpusim.trace.roles import FORWARD, phase_kinds
from gpusim.trace.trace import OP, Trace

_HEADS = re.compile(r"\d+x(\d+)x\d+x\d+ ")
"""Of an attention's shapes the first: batch, heads, tokens, width of a head."""


def check_degrees(trace: Trace, layout: RankLayout) -> None:
    """Raises GpusimError for a degree that does not divide what it divides: attention heads, the model's blocks.

    What a trace does not record is not asked.
    """
    heads = attention_heads(trace)
    for count in heads if layout.tensor > 1 else ():
        if count % layout.tensor:
            raise GpusimError(
                f"tensor={layout.tensor} does not divide the {count} attention heads of {trace.name}", hint=_divisors(count)
            )
    if layout.pipeline > 1:
        number = model_blocks(trace)
        if number % layout.pipeline:
            raise GpusimError(
                f"pipeline={layout.pipeline} does not divide the {number} blocks of {trace.name}", hint=_divisors(number)
            )


def attention_heads(trace: Trace) -> list[int]:
    """Of the attentions whose shapes are recorded, ascending; none where none are."""
    names = [i for i, name in enumerate(trace.op_names) if "scaled_dot_product" in name and "backward" not in name]
    used = np.unique(trace.shape[np.isin(trace.op, names) & (trace.shape >= 0)]).tolist()
    found = {int(match[1]) for number in used if (match := _HEADS.match(trace.shapes[number]))}
    return sorted(found)


def model_blocks(trace: Trace) -> int:
    """The numbered blocks of the model that its forward pass goes through; 0 where none are recorded."""
    kinds = phase_kinds(trace)[issued(trace)]
    return int(blocks(trace, np.flatnonzero(kinds == FORWARD)).max(initial=-1)) + 1


def _divisors(count: int) -> str:
    return "one of " + ", ".join(str(n) for n in range(2, count + 1) if count % n == 0) if count else ""


def check_order(programs: Sequence[Trace], found: Sequence[Matched]) -> None:
    """Raises TraceError, naming ranks and collectives, where some wait for each other for ever.

    A stream does one thing after the other: a collective comes after those before it on a stream of any of its ranks.
    """
    follows: list[list[int]] = [[] for _ in found]
    before = np.zeros(len(found), np.int64)
    for first, second in _pairs(programs, found):
        follows[first].append(second)
        before[second] += 1
    ready = np.flatnonzero(before == 0).tolist()
    while ready:
        for other in follows[ready.pop()]:
            before[other] -= 1
            if before[other] == 0:
                ready.append(other)
    if stuck := np.flatnonzero(before > 0).tolist():
        raise TraceError(_told(programs, found, _cycle(follows, set(stuck))))


def _pairs(programs: Sequence[Trace], found: Sequence[Matched]) -> Iterator[tuple[int, int]]:
    """(earlier, later) of two that follow each other on a stream of a rank."""
    mine: list[list[tuple[int, int]]] = [[] for _ in programs]
    for k, one in enumerate(found):
        for rank, operator in zip(one.ranks, one.operators, strict=True):
            mine[rank].append((operator, k))
    for program, calls in zip(programs, mine, strict=True):
        stream = program.stream[program.kind == OP]
        last: dict[int, int] = {}
        for operator, k in sorted(calls):
            on = int(stream[operator])
            if last.get(on, k) != k:
                yield last[on], k
            last[on] = k


def _cycle(follows: Sequence[Sequence[int]], stuck: set[int]) -> list[int]:
    """Some of those that wait for each other, each for the next, the last for the first."""
    waits = {later: first for first in stuck for later in follows[first] if later in stuck}
    at, seen = next(iter(sorted(waits))), list[int]()
    while at not in seen:
        seen.append(at)
        at = waits[at]
    return seen[seen.index(at) :]


def _told(programs: Sequence[Trace], found: Sequence[Matched], cycle: Sequence[int]) -> str:
    """Each waits for the next on a rank that they share, whose stream comes to that one first."""
    parts = []
    for k, other in pairwise([*cycle, cycle[0]]):
        rank = next(r for r in found[k].ranks if r in found[other].ranks)
        absent = next((r for r in found[k].ranks if r != rank), rank)
        is_in = _call(found[other], rank)
        parts.append(f"rank {absent} waits in {_call(found[k], absent)} for rank {rank}, which is in {is_in}")
    return f"the ranks wait for each other for ever: {'; '.join(parts)}"


def _call(one: Matched, rank: int) -> str:
    return f"{one.kind} of {one.size} bytes (its operator {one.operators[one.ranks.index(rank)]})"

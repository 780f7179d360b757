"""Which operators and tensors of a program are of which of two number formats, and where casts stand between them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from gpusim.base.compiled import kept
from gpusim.trace.roles import BACKWARD, FORWARD, GRADIENT, PARAMETER, STEP
from gpusim.trace.trace import I64, Trace

# Levels of tensors and operators: of another type than is converted, of the lower format, of the higher one.
OTHER, LOW, HIGH = 0, 1, 2
# Classes of operators: LOW and HIGH run in that format; MATCH in the lowest that is read, FOLLOW in the highest.
MATCH, FOLLOW = 3, 4


class Retyped(NamedTuple):
    """C casts, each with a new tensor T + c: it is made of source[c], or (result) it is what the operator makes in its own
    format, cast to source[c] afterwards.

    level, op_level     of tensors and operators
    cast_level, at      of the tensor that a cast makes, and the operator for which it does
    last                the last operator that accesses each tensor, T + C
    """

    level: Any
    op_level: Any
    read_id: I64
    write_id: I64
    source: I64
    cast_level: I64
    at: I64
    result: Any
    last: I64


class _Program(NamedTuple):
    """What is given: operators with their reads and writes, and what `retype` says of them and of the tensors."""

    read_start: Any
    read_id: Any
    write_start: Any
    write_id: Any
    convert: Any    # bool[T]
    parameter: Any  # bool[T]
    gradient: Any   # bool[T]
    kind: Any       # int[O] phase
    classes: Any    # int[O]
    key: Any        # int[O]
    module: Any     # int[O]
    before: int
    state: int


class _Casts(NamedTuple):
    """What is found, with room for a cast at every read and write; `made` of them so far."""

    reads: Any       # int64[reads] what is read now
    writes: Any      # int64[writes] what is written now
    level: Any       # int8[T]
    op_level: Any    # int8[O]
    forward: Any     # int8[keys] level of the forward operators of a key, MIXED where they differ
    newest: Any      # int64[T] its latest cast; the others follow
    source: Any
    cast_level: Any
    at: Any
    result: Any
    following: Any   # the cast before of the same tensor, -1: none
    passes: Any      # the forward pass that it was made in
    made: Any        # int64[1]


MIXED = 4


def retype(trace: Trace, convert: Any, role: Any, kind: Any, classes: Any, key: I64, before: int, state: int) -> Retyped:
    """convert   (T,) tensors of the type that is converted
    kind, classes  (O,) of phase, and of operator
    key       (O,) equal for a forward operator and its backward
    before    level of what is older than the recording
    state     level of what optimizer steps make, 0: as they read
    """
    p = _Program(
        trace.read_start, trace.read_id, trace.write_start, trace.write_id, convert, role == PARAMETER, role == GRADIENT,
        kind, classes, key, trace.module, before, state,
    )  # fmt: skip
    tensors, most = convert.size, trace.read_id.size + trace.write_id.size + 1
    c = _Casts(
        reads=trace.read_id.copy(), writes=trace.write_id.copy(),
        level=np.zeros(tensors, np.int8), op_level=np.zeros(kind.size, np.int8),
        forward=np.zeros(int(key.max(initial=0)) + 1, np.int8), newest=np.full(tensors, -1, np.int64),
        source=np.empty(most, np.int64), cast_level=np.empty(most, np.int8), at=np.empty(most, np.int64),
        result=np.zeros(most, np.bool_), following=np.full(most, -1, np.int64), passes=np.zeros(most, np.int64),
        made=np.zeros(1, np.int64),
    )  # fmt: skip
    last = _each_operator(p, c)
    made = int(c.made[0])
    return Retyped(
        c.level, c.op_level, c.reads, c.writes, c.source[:made], c.cast_level[:made], c.at[:made], c.result[:made], last
    )


@kept()
def _each_operator(p: _Program, c: _Casts) -> Any:
    """Levels and casts of all operators in their order; returns the last use of each tensor."""
    current = 0  # forward pass
    for o in range(p.kind.size):
        if o and p.kind[o] == FORWARD and p.kind[o - 1] != FORWARD:
            current += 1
        casts, wanted = _format(p, c, o)
        c.op_level[o] = wanted
        if p.kind[o] == FORWARD:
            said = c.forward[p.key[o]]
            c.forward[p.key[o]] = wanted if said in (OTHER, wanted) else MIXED
        if casts:
            _cast_reads(p, c, o, wanted, current)
        _cast_writes(p, c, o, wanted, casts)
    last = _last_uses(p, c)
    _keep_for_the_pass(p, c, last)
    return last


@njit
def _format(p: _Program, c: _Casts, o: int) -> tuple[bool, int]:
    """(whether the operator casts what it reads, the level that it runs in)."""
    lowest, highest = 9, 0
    for i in range(p.read_start[o], p.read_start[o + 1]):
        t = p.read_id[i]
        if p.convert[t] and c.level[t] == OTHER:
            c.level[t] = p.before
        if c.level[t]:
            lowest, highest = min(lowest, c.level[t]), max(highest, c.level[t])
    wanted = p.classes[o]
    before = c.forward[p.key[o]]
    if wanted == FOLLOW and p.kind[o] == BACKWARD and before in (LOW, HIGH):
        wanted = before
    casts = wanted != FOLLOW and p.kind[o] != STEP
    if wanted == MATCH:
        wanted = lowest if highest else p.before
    elif wanted == FOLLOW:
        wanted = highest if highest else p.before
    if p.kind[o] == STEP and p.state:
        wanted = p.state
    return casts, wanted


@njit
def _cast_reads(p: _Program, c: _Casts, o: int, wanted: int, current: int) -> None:
    """What the operator reads in another format it reads from a cast, an earlier one where that is kept."""
    for i in range(p.read_start[o], p.read_start[o + 1]):
        t = p.read_id[i]
        if c.level[t] == OTHER or c.level[t] == wanted:
            continue
        found = _kept_cast(p, c, o, t, wanted, current)
        if found < 0:
            found = _make(c, t, wanted, o)
            c.passes[found] = current
            c.following[found], c.newest[t] = c.newest[t], found
        c.reads[i] = c.level.size + found


@njit
def _kept_cast(p: _Program, c: _Casts, o: int, t: int, wanted: int, current: int) -> int:
    """An earlier cast of tensor t that operator o finds, -1: none.

    Autocast keeps those of parameters for the pass; backward uses what forward saved, in its own module first.
    """
    found, k = -1, c.newest[t]
    while k >= 0:
        if c.cast_level[k] == wanted and not c.result[k]:
            if p.parameter[t]:
                return k if c.passes[k] == current else -1
            if p.kind[o] == BACKWARD and (found < 0 or p.module[c.at[k]] == p.module[o]):
                found = k
        k = c.following[k]
    return found


@njit
def _make(c: _Casts, t: int, level: int, o: int) -> int:
    """A cast from or to tensor t at operator o; its number."""
    k = c.made[0]
    c.source[k], c.cast_level[k], c.at[k] = t, level, o
    c.made[0] += 1
    return int(k)


@njit
def _cast_writes(p: _Program, c: _Casts, o: int, wanted: int, casts: bool) -> None:
    """What the operator makes is of its format; gradients are cast to that of their parameters."""
    for i in range(p.write_start[o], p.write_start[o + 1]):
        t = p.write_id[i]
        if not p.convert[t] or c.level[t]:
            continue
        if p.gradient[t] and wanted != p.before and casts:
            c.level[t] = p.before
            made = _make(c, t, wanted, o)
            c.result[made] = True
            c.writes[i] = c.level.size + made
        else:
            c.level[t] = wanted


@njit
def _last_uses(p: _Program, c: _Casts) -> Any:
    """(T + C,) the last operator that accesses each tensor, -1: none; a cast reads its source."""
    last = np.full(c.level.size + c.made[0], -1, np.int64)
    for o in range(p.kind.size):
        for i in range(p.read_start[o], p.read_start[o + 1]):
            last[c.reads[i]] = o
        for i in range(p.write_start[o], p.write_start[o + 1]):
            last[c.writes[i]] = o
    for k in range(c.made[0]):
        if not c.result[k]:
            last[c.source[k]] = max(last[c.source[k]], c.at[k])
    return last


@njit
def _keep_for_the_pass(p: _Program, c: _Casts, last: Any) -> None:
    """Casts of parameters are kept until the forward pass ends."""
    ops = p.kind.size
    final = ops
    for o in range(ops - 1, -1, -1):
        if p.kind[o] != FORWARD:
            continue
        if o + 1 == ops or p.kind[o + 1] != FORWARD:
            final = o
        for i in range(p.read_start[o], p.read_start[o + 1]):
            if c.reads[i] >= c.level.size and p.parameter[p.read_id[i]]:
                last[c.reads[i]] = max(last[c.reads[i]], final)


@kept()
def moved(start: Any, old_id: Any, new_id: Any, old: Any, new: Any, bytes_: Any) -> Any:
    """What operators move when their tensors are others: the new ones whole, or as large a part as before."""
    found = bytes_.copy()
    for o in range(found.size):
        before, after = 0, 0
        for i in range(start[o], start[o + 1]):
            before += old[old_id[i]]
            after += new[new_id[i]]
        if before == bytes_[o]:
            found[o] = after
        elif before:
            found[o] = np.int64(np.rint(bytes_[o] * (after / before)))
    return found

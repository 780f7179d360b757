"""Which operators and tensors of a program are of which of two number formats, and where casts stand between them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

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


def retype(trace: Trace, convert: Any, role: Any, kind: Any, classes: Any, key: I64, before: int, state: int) -> Retyped:
    """convert   (T,) tensors of the type that is converted
    kind, classes  (O,) of phase, and of operator
    key       (O,) equal for a forward operator and its backward
    before    level of what is older than the recording
    state     level of what optimizer steps make, 0: as they read
    """
    arrays = _retype(
        trace.read_start, trace.read_id, trace.write_start, trace.write_id, convert, role == PARAMETER, role == GRADIENT,
        kind, classes, key, trace.module, int(key.max(initial=0)) + 1, before, state,
    )  # fmt: skip
    return Retyped(*arrays)


@kept()
def _retype(read_start: Any, read_id: Any, write_start: Any, write_id: Any, convert: Any, parameter: Any, gradient: Any,
            kind: Any, classes: Any, key: Any, module: Any, keys: int, before: int, state: int) -> Any:  # fmt: skip
    ops, tensors = kind.size, convert.size
    reads, writes = read_id.copy(), write_id.copy()
    level, op_level = np.zeros(tensors, np.int8), np.zeros(ops, np.int8)
    most = reads.size + writes.size + 1
    source, cast_level, at = np.empty(most, np.int64), np.empty(most, np.int8), np.empty(most, np.int64)
    result, following = np.zeros(most, np.bool_), np.full(most, -1, np.int64)
    newest = np.full(tensors, -1, np.int64)  # its latest cast; the others follow
    forward = np.zeros(keys, np.int8)  # level of the forward operators of a key, 4 where they differ
    passes = np.zeros(most, np.int64)
    count, current = 0, 0
    for o in range(ops):
        if o and kind[o] == FORWARD and kind[o - 1] != FORWARD:
            current += 1
        lowest, highest = 9, 0
        for i in range(read_start[o], read_start[o + 1]):
            t = read_id[i]
            if convert[t] and level[t] == OTHER:
                level[t] = before
            if level[t]:
                lowest, highest = min(lowest, level[t]), max(highest, level[t])
        wanted = classes[o]
        if wanted == FOLLOW and kind[o] == BACKWARD and (forward[key[o]] == LOW or forward[key[o]] == HIGH):
            wanted = forward[key[o]]
        casts = wanted != FOLLOW and kind[o] != STEP
        if wanted == MATCH:
            wanted = lowest if highest else before
        elif wanted == FOLLOW:
            wanted = highest if highest else before
        if kind[o] == STEP and state:
            wanted = state
        op_level[o] = wanted
        if kind[o] == FORWARD:
            forward[key[o]] = wanted if forward[key[o]] == 0 or forward[key[o]] == wanted else 4
        for i in range(read_start[o], read_start[o + 1]):
            t = read_id[i]
            if not casts or level[t] == OTHER or level[t] == wanted:
                continue
            found, c = -1, newest[t]
            while c >= 0:  # autocast keeps those of parameters for the pass; backward uses what forward saved
                if cast_level[c] == wanted and not result[c]:
                    if parameter[t]:
                        if passes[c] == current:
                            found = c
                        break
                    elif kind[o] == BACKWARD and (found < 0 or module[at[c]] == module[o]):
                        found = c
                c = following[c]
            if found < 0:
                found = count
                source[count], cast_level[count], at[count], passes[count] = t, wanted, o, current
                following[count], newest[t] = newest[t], count
                count += 1
            reads[i] = tensors + found
        for i in range(write_start[o], write_start[o + 1]):
            t = write_id[i]
            if not convert[t] or level[t]:
                continue
            if gradient[t] and wanted != before and casts:
                level[t] = before
                source[count], cast_level[count], at[count], result[count] = t, wanted, o, True
                writes[i] = tensors + count
                count += 1
            else:
                level[t] = wanted
    last = np.full(tensors + count, -1, np.int64)
    for o in range(ops):
        for i in range(read_start[o], read_start[o + 1]):
            last[reads[i]] = o
        for i in range(write_start[o], write_start[o + 1]):
            last[writes[i]] = o
    for c in range(count):
        if not result[c]:
            last[source[c]] = max(last[source[c]], at[c])
    final = ops
    for o in range(ops - 1, -1, -1):  # casts of parameters are kept until the forward pass ends
        if kind[o] == FORWARD and (o + 1 == ops or kind[o + 1] != FORWARD):
            final = o
        if kind[o] == FORWARD:
            for i in range(read_start[o], read_start[o + 1]):
                if reads[i] >= tensors and parameter[read_id[i]]:
                    last[reads[i]] = max(last[reads[i]], final)
    return (level, op_level, reads, writes, source[:count], cast_level[:count], at[:count], result[:count], last)


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

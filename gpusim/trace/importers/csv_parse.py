"""Lines of plain CSV as events, compiled: one pass over the bytes, names numbered in a hash table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import from_dtype, types

from gpusim.base.compiled import entry, kept, kernel
from gpusim.trace.importers.csv_tables import (
    ADDR,
    AT,
    BYTES,
    CATEGORIES,
    CATEGORY,
    DONE,
    DTYPE,
    DTYPES,
    DURATION,
    EVENT,
    EVENTS,
    FALLS,
    FLOPS,
    FROM,
    FULL,
    GONE,
    HASH,
    HASH_SPACES,
    IN_PHASE,
    LATEST,
    LINE,
    LIVE_TWICE,
    LONG_LINE,
    LONGEST_LINE,
    MANY_STREAMS,
    MODULE,
    MODULES,
    NAME,
    NEGATIVE,
    NEW,
    NO_TENSOR,
    NOT_LIVE,
    NOT_WHOLE,
    ODD,
    OP_NAMES,
    OPS,
    ORIGIN,
    PHASES,
    READ_BYTES,
    READ_IDS,
    READS,
    ROLE,
    SHAPE,
    SHAPES,
    SIZE,
    STAMP,
    START,
    STREAM,
    SUM,
    SYMBOLS,
    TENSOR,
    TENSOR_NAMES,
    TENSORS,
    TEXT,
    TIME,
    TO,
    TOO_LARGE,
    UNKNOWN_EVENT,
    UNNAMED,
    VALUE,
    VALUES,
    WRITE_IDS,
    WRITES,
    WRITTEN_BYTES,
    CsvTables,
)
from gpusim.trace.trace import ALLOC, COLUMNS, FREE, OP, PHASE

_MOST = 2**63 - 1
_SAFE_DIGITS = 18  # a number of so many fits
_MOST_STREAM = 2**15 - 1
_EXACT = 2**53  # whole numbers below are doubles
_NEWLINE, _RETURN, _BLANK, _TAB, _SHARP, _PLUS, _MINUS, _ZERO = 10, 13, 32, 9, 35, 43, 45, 48
_ALLOC, _FREE, _OP, _PHASE = (int.from_bytes(word, "big") for word in (b"alloc", b"free", b"op", b"phase"))


def _flat(dtype: Any) -> Any:
    return types.Array(from_dtype(np.dtype(dtype)), 1, "C")


_PIECE = types.Array(types.uint8, 1, "C", readonly=True)
_ROWS = types.Array(types.int64, 2, "C")
_OTHER = {"slots": _flat("int32"), "text": _flat("uint8"), "symbols": _ROWS, "odd": _ROWS} | {
    name: _flat(dtype) for name, dtype in COLUMNS.items()
}
_TYPES: Any = types  # numba types its own types only in part
_TABLES = _TYPES.NamedTuple([_OTHER.get(name, _flat("int64")) for name in CsvTables._fields], CsvTables)


@kernel
def _blank(byte):  # type: ignore[no-untyped-def]
    return byte in (_BLANK, _TAB, _RETURN)


@kernel
def _split(piece, separator, start, t):  # type: ignore[no-untyped-def]
    """(end of the line that begins at start, columns): its fields, without blanks around them, by role."""
    at = field = start
    column = 0
    while True:
        byte = piece[at]
        while byte > separator:  # letters and digits; a newline is below any separator
            at += 1
            byte = piece[at]
        if byte == separator or byte == _NEWLINE:  # noqa: SIM109
            if column < len(t.roles):
                first, last = field, at
                while first < last and _blank(piece[first]):
                    first += 1
                while last > first and _blank(piece[last - 1]):
                    last -= 1
                t.first[t.roles[column]], t.last[t.roles[column]] = first, last
            column += 1
            field = at + 1
            if byte == _NEWLINE:
                return at, column
        at += 1


@kernel
def _whole(piece, first, last):  # type: ignore[no-untyped-def]
    """(verdict, value) of a decimal number."""
    at, negative = first, False
    if at < last and (piece[at] == _PLUS or piece[at] == _MINUS):
        negative = piece[at] == _MINUS
        at += 1
    if at == last:
        return NOT_WHOLE, 0
    value: Any = 0
    too_large = False
    for i in range(at, last):
        digit = np.int64(piece[i]) - _ZERO
        if digit < 0 or digit > 9:
            return NOT_WHOLE, 0
        if i - at >= _SAFE_DIGITS and value > (_MOST - digit) // 10:
            too_large = True
            value = 0
        value = value * 10 + digit
    return (TOO_LARGE if too_large else DONE), -value if negative else value


@kernel
def _number(piece, role, missing, t):  # type: ignore[no-untyped-def]
    """(verdict, value) of a role's field."""
    if t.first[role] == t.last[role]:
        return DONE, missing
    verdict, value = _whole(piece, t.first[role], t.last[role])
    if verdict != DONE:
        t.state[ROLE] = role
    return verdict, value


@kernel
def _find(piece, first, last, space, t):  # type: ignore[no-untyped-def]
    """(slot, hash): where the name stands, or the empty slot where it belongs."""
    code = np.int64(2166136261)
    for i in range(first, last):
        code = ((code ^ np.int64(piece[i])) * 16777619) & 0xFFFFFFFF  # FNV-1a
    code = (code ^ (code >> 15)) * HASH_SPACES + space
    mask = len(t.slots) - 1
    slot = (code // HASH_SPACES) & mask
    while t.slots[slot] >= 0:
        s = t.slots[slot]
        if t.symbols[s, HASH] == code:
            start = t.symbols[s, START]
            same = t.symbols[s + 1, START] - start == last - first
            for i in range(last - first):
                if not same:
                    break
                same = t.text[start + i] == piece[first + i]
            if same:
                break
        slot = (slot + 1) & mask
    return slot, code


@kernel
def _add(piece, first, last, slot, code, t):  # type: ignore[no-untyped-def]
    """A new symbol in the slot that _find found for it."""
    s = t.state[SYMBOLS]
    t.slots[slot] = np.int32(s)
    t.symbols[s, HASH], t.symbols[s, STAMP], t.symbols[s, VALUE] = code, -1, GONE
    text = t.symbols[s, START]
    for i in range(last - first):
        t.text[text + i] = piece[first + i]
    t.symbols[s + 1, START] = t.state[TEXT] = text + last - first
    t.state[SYMBOLS] += 1
    return s


@kernel
def _name(piece, role, space, missing, t):  # type: ignore[no-untyped-def]
    """The index of the name in a role's field."""
    first, last = t.first[role], t.last[role]
    if first == last:
        return missing
    slot, code = _find(piece, first, last, space, t)
    s = np.int64(t.slots[slot])
    if s < 0:
        s = _add(piece, first, last, slot, code, t)
        t.symbols[s, VALUE] = t.names[space]
        t.names[space] += 1
    return t.symbols[s, VALUE]


@kernel
def _live(piece, first, last, role, t):  # type: ignore[no-untyped-def]
    """(verdict, symbol) of a tensor that must be there."""
    slot, _ = _find(piece, first, last, TENSOR_NAMES, t)
    s = np.int64(t.slots[slot])
    if s >= 0 and t.symbols[s, VALUE] != GONE:
        return DONE, s
    t.state[ROLE], t.state[FROM], t.state[TO] = role, first, last
    return NOT_LIVE, s


@kernel
def _access(piece, role, bytes_role, into, count, stamp, t):  # type: ignore[no-untyped-def]
    """(verdict, bytes moved) of the tensors that a field names; their ids go to `into`.  Without a number of its own the
    operator moves all of them, each once."""
    total, first, end = 0, t.first[role], t.last[role]
    verdict, given = _number(piece, bytes_role, -1, t)
    while verdict == DONE and first < end:
        last = first
        while last < end and not _blank(piece[last]):
            last += 1
        verdict, s = _live(piece, first, last, role, t)
        if verdict == DONE:
            into[t.state[count]] = t.symbols[s, VALUE]
            t.state[count] += 1
            if t.symbols[s, STAMP] != stamp:
                t.symbols[s, STAMP] = stamp
                if total <= _MOST - t.symbols[s, BYTES]:
                    total += t.symbols[s, BYTES]
                elif t.first[bytes_role] == t.last[bytes_role]:
                    verdict = SUM
        first = last
        while first < end and _blank(piece[first]):
            first += 1
    return verdict, total if t.first[bytes_role] == t.last[bytes_role] else given


@kernel
def _alloc(piece, t):  # type: ignore[no-untyped-def]
    """(verdict, tensor, bytes)"""
    tensor, first, last = t.state[TENSORS], t.first[TENSOR], t.last[TENSOR]
    if first == last:
        return NO_TENSOR, tensor, 0
    slot, code = _find(piece, first, last, TENSOR_NAMES, t)
    s = np.int64(t.slots[slot])
    if s >= 0 and t.symbols[s, VALUE] != GONE:
        return LIVE_TWICE, tensor, 0
    verdict, size = _whole(piece, t.first[SIZE], t.last[SIZE])
    if verdict == DONE and size < 0:
        verdict = NEGATIVE
    if verdict != DONE:
        t.state[ROLE] = SIZE
        return verdict, tensor, 0
    if s < 0:
        s = _add(piece, first, last, slot, code, t)
    t.symbols[s, VALUE], t.symbols[s, BYTES], t.symbols[s, STAMP] = tensor, size, -1
    t.size[tensor], t.category[tensor] = size, _name(piece, CATEGORY, CATEGORIES, UNNAMED, t)
    t.state[TENSORS] += 1
    return DONE, tensor, size


@kernel
def _free(piece, t):  # type: ignore[no-untyped-def]
    """(verdict, tensor)"""
    verdict, s = _live(piece, t.first[TENSOR], t.last[TENSOR], TENSOR, t)
    if verdict != DONE:
        return verdict, s
    tensor = t.symbols[s, VALUE]
    t.symbols[s, VALUE] = GONE
    return DONE, tensor


@kernel
def _op(piece, t):  # type: ignore[no-untyped-def]
    """(verdict, operator)"""
    state, op = t.state, t.state[OPS]
    verdict, t.read_bytes[op] = _access(piece, READS, READ_BYTES, t.read_id, READ_IDS, 2 * op, t)
    if verdict == DONE:
        verdict, t.written_bytes[op] = _access(piece, WRITES, WRITTEN_BYTES, t.write_id, WRITE_IDS, 2 * op + 1, t)
    if verdict == DONE:
        verdict, t.duration[op] = _number(piece, DURATION, -1, t)
    if verdict != DONE:
        return verdict, op
    t.op[op] = _name(piece, NAME, OP_NAMES, UNNAMED, t)
    t.module[op] = _name(piece, MODULE, MODULES, -1, t)
    t.dtype[op] = _name(piece, DTYPE, DTYPES, -1, t)
    t.shape[op] = _name(piece, SHAPE, SHAPES, -1, t)
    t.phase[op] = state[IN_PHASE]
    t.read_start[op + 1], t.write_start[op + 1] = state[READ_IDS], state[WRITE_IDS]
    t.flops[op] = 0.0
    first, last = t.first[FLOPS], t.last[FLOPS]
    if first < last:
        verdict, value = _whole(piece, first, last)
        t.flops[op] = value
        if verdict != DONE or abs(value) >= _EXACT:
            row = state[ODD]
            t.odd[row, 0], t.odd[row, 1], t.odd[row, 2], t.odd[row, 3] = op, first, last, state[LINE]
            state[ODD] += 1
    state[OPS] += 1
    return DONE, op


@entry(types.int64(_PIECE, types.int64, _TABLES))
def parse(piece, separator, t):  # type: ignore[no-untyped-def]
    """The verdict on the lines from state[AT] to the end of the piece, which is the end of a line."""
    state = t.state
    while state[AT] < len(piece):
        start = state[AT]
        end, columns = _split(piece, separator, start, t)
        state[LINE] += 1
        state[AT] = end + 1
        if end - start > LONGEST_LINE:
            return LONG_LINE
        if piece[start] == _SHARP or (columns == 1 and t.first[t.roles[0]] == t.last[t.roles[0]]):
            continue
        if columns != len(t.roles):
            state[ROLE] = columns
            return VALUES
        if state[SYMBOLS] + NEW >= len(t.symbols) or state[TEXT] + end - start > len(t.text):
            state[AT] = start
            state[LINE] -= 1
            return FULL
        word: Any = 0
        for i in range(t.first[EVENT], t.last[EVENT]):
            word = (word * 256 + np.int64(piece[i])) & 0xFFFFFFFFFFFF  # of a longer one the end
        stream, addr, size = 0, -1, 0
        verdict, time = _number(piece, TIME, -1, t)
        if verdict == DONE and word != _PHASE:
            verdict, stream = _number(piece, STREAM, 0, t)
        if verdict == DONE and word == _ALLOC:
            verdict, addr = _number(piece, ADDR, -1, t)
        if verdict != DONE:
            return verdict
        if abs(stream) > _MOST_STREAM:
            return MANY_STREAMS
        time = max(time, -1)
        if 0 <= time < state[LATEST]:
            state[FROM], state[TO] = state[LATEST], time
            return FALLS
        if word == _ALLOC:
            kind = ALLOC
            verdict, arg, size = _alloc(piece, t)
        elif word == _FREE:
            kind = FREE
            verdict, arg = _free(piece, t)
        elif word == _OP:
            kind = OP
            verdict, arg = _op(piece, t)
        elif word == _PHASE:
            kind = PHASE
            arg = state[IN_PHASE] = _name(piece, NAME, PHASES, UNNAMED, t)
        else:
            return UNKNOWN_EVENT
        if verdict != DONE:
            return verdict
        if time >= 0:
            state[LATEST] = time
            if state[ORIGIN] < 0:
                state[ORIGIN] = time
            time -= state[ORIGIN]
        event = state[EVENTS]
        t.kind[event], t.arg[event], t.stream[event] = kind, arg, stream
        t.time[event], t.addr[event], t.bytes[event] = time, addr, size
        state[EVENTS] += 1
    return DONE


@kept(types.void(_flat("int32"), _ROWS, types.int64))
def fill_slots(slots, symbols, count):  # type: ignore[no-untyped-def]
    """Puts each symbol into its slot of an empty table."""
    mask = len(slots) - 1
    for s in range(count):
        slot = (symbols[s, HASH] // HASH_SPACES) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = np.int32(s)

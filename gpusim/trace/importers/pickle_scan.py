"""Looks a pickle over before anything unpickles it: plain containers, numbers and strings only, of bounded size.

An unpickler that refuses every class still obeys a pickle's other wishes, such as a memo of two thousand million
entries.  So the opcodes are walked first; what is let through builds only dicts, lists, tuples, strings, bytes and
numbers.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn

import numpy as np
from numba import types

from gpusim.base.compiled import kept
from gpusim.base.errors import TraceError

MAX_OBJECTS = 400_000_000  # opcodes; a snapshot has about 50 per event
MAX_CONTAINERS = 40_000_000  # each costs at least 64 bytes; a snapshot has about 2 per event
MAX_DEPTH = 64  # open marks; a snapshot has about 6

# Opcode -> how many bytes of argument follow; -1, -4, -8: a length of 1, 4 or 8 bytes, then that many bytes.
_ALLOWED = {
    **dict.fromkeys(b"(}])sauetld0123N.\x85\x86\x87\x88\x89\x94", 0),
    **dict.fromkeys(b"Kqh\x80", 1),
    **dict.fromkeys(b"M", 2),
    **dict.fromkeys(b"Jrj", 4),
    **dict.fromkeys(b"G\x95", 8),
    **dict.fromkeys(b"C\x8a\x8c", -1),
    **dict.fromkeys(b"XB\x8b", -4),
    **dict.fromkeys(b"\x8d\x8e", -8),
}
_ALLOWED.pop(ord("3"))
_REFUSED = 99
_ARGUMENT = np.full(256, _REFUSED, np.int64)
for _code, _count in _ALLOWED.items():
    _ARGUMENT[_code] = _count
_CODE_OPCODES = b"cibRo\x81\x82\x83\x84\x92\x93PQ"  # GLOBAL, INST, BUILD, REDUCE, NEWOBJ, STACK_GLOBAL, PERSID, ...

_OK, _BAD_OPCODE, _CUT, _TOO_LARGE, _TOO_DEEP, _BAD_MEMO = range(6)

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INTS = types.Array(types.int64, 1, "C")
_TYPES: Any = types  # numba types its own types only in part
_VERDICT = _TYPES.UniTuple(types.int64, 2)


@kept(_VERDICT(_BYTES, _INTS, _INTS))
def _walk(data, argument, limits):  # type: ignore[no-untyped-def]
    """(verdict, byte at which the walk ended) of one pickle; limits = objects, containers, depth."""
    at, objects, containers, depth, memo = 0, 0, 0, 0, 0
    end = len(data)
    while at < end:
        code = np.int64(data[at])  # uint8 would wrap when this runs interpreted
        need = argument[code]
        if need == _REFUSED:
            return _BAD_OPCODE, at
        here = at
        at += 1
        if need < 0:
            width = -need
            if at + width > end:
                return _CUT, here
            length: Any = 0
            for i in range(width - 1, -1, -1):
                if length > 1 << 40:
                    return _CUT, here
                length = length * 256 + np.int64(data[at + i])
            at += width
            need = length
        if need > end - at:
            return _CUT, here
        objects += 1
        if code == 40:  # ( opens a mark
            depth += 1
        elif code in (117, 101, 116, 108, 100, 49):  # u e t l d 1 close it
            depth -= 1
        if code in (125, 93, 41, 116, 108, 100, 133, 134, 135):  # } ] ) t l d and short tuples
            containers += 1
        if code in (148, 113, 114):  # memoize, put: indices may not run ahead of the objects
            memo += 1
            index: Any = memo
            if code != 148:
                index = 0
                for i in range(need - 1, -1, -1):
                    index = index * 256 + np.int64(data[at + i])
            if index > objects + 256:
                return _BAD_MEMO, here
        if objects > limits[0] or containers > limits[1]:
            return _TOO_LARGE, here
        if depth > limits[2]:
            return _TOO_DEEP, here
        at += need
        if code == 46:  # . stops
            return _OK, at
    return _CUT, end


class _Plain(pickle.Unpickler):
    """Never resolves a name; the walk has already refused the opcodes that would ask."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it asks for an external object")


def load_plain(data: bytes, path: str) -> Any:
    """The containers, strings and numbers that the pickle describes.  Raises TraceError; runs nothing."""
    raw = np.frombuffer(data, np.uint8)
    limits = np.array([MAX_OBJECTS, MAX_CONTAINERS, MAX_DEPTH], np.int64)
    verdict, at = _walk(raw, _ARGUMENT, limits)
    if verdict == _BAD_OPCODE:
        code = data[at : at + 1]
        if code in _CODE_OPCODES:
            raise TraceError(
                f"this pickle asks to run code (byte {at}); nothing of it was run", path, "do not open it elsewhere"
            )
        raise TraceError(f"this is not a memory snapshot: unexpected pickle opcode {code!r} at byte {at}", path)
    if verdict == _CUT:
        raise TraceError("the pickle is cut short or damaged", path, "copy the file again")
    if verdict != _OK:
        fault = {_TOO_LARGE: "holds too many objects", _TOO_DEEP: "is nested too deeply", _BAD_MEMO: "has a bad memo"}
        raise TraceError(f"the pickle {fault[verdict]} for a memory snapshot (byte {at})", path)
    try:
        return _Plain(io.BytesIO(data)).load()
    except (Exception, MemoryError):
        raise TraceError("the pickle is damaged", path, "copy the file again") from None

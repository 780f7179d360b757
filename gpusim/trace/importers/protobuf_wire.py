"""The wire format of protocol buffers: fields of a message by number, whatever its schema.

Source: protobuf.dev, Encoding.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_SIZE = {FIXED64: 8, FIXED32: 4}


class NoMessage(Exception):
    """The bytes are no message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins here, and where it ends.  Raises NoMessage."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise NoMessage
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: a whole number, unsigned, or its bytes.  Raises NoMessage."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if not number:
            raise NoMessage
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = varint(data, at)
        elif kind in _SIZE:
            size = _SIZE[kind]
        else:
            raise NoMessage
        if at + size > len(data):
            raise NoMessage
        yield number, data[at : at + size]
        at += size


def signed(value: int) -> int:
    """A varint of 64 bits as a signed number."""
    return value - 2**64 if value >= 2**63 else value


def numbers(data: bytes) -> list[int]:
    """The varints of a packed list.  Raises NoMessage."""
    found, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        found.append(value)
    return found

"""Chakra graphs in protobuf, written field by field."""

from __future__ import annotations

from collections.abc import Sequence

COMP, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
ALL_REDUCE, ALL_GATHER, ALL_TO_ALL = 0, 2, 6


def varint(value: int) -> bytes:
    """A number of 64 bits."""
    value &= 2**64 - 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def field(number: int, value: int | bytes) -> bytes:
    """A varint, or a string or message of these bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def attribute(name: str, value: bool | int | str) -> bytes:
    """bool_val, int64_val or string_val."""
    number = 27 if isinstance(value, bool) else 9 if isinstance(value, int) else 29
    return field(10, field(1, name.encode()) + field(number, value.encode() if isinstance(value, str) else int(value)))


def node(number: int, name: str, kind: int, after: Sequence[int] = (), us: int = 0, **attrs: bool | int | str) -> bytes:
    """A node with data dependencies and a duration."""
    said = field(1, number) + field(2, name.encode()) + field(3, kind)
    said += field(5, b"".join(map(varint, after))) if after else b""
    said += field(7, us) if us else b""
    return said + b"".join(attribute(each, value) for each, value in attrs.items())


def graph(*nodes: bytes, version: str = "0.0.4") -> bytes:
    """A file: its metadata, then its nodes."""
    return b"".join(varint(len(each)) + each for each in (field(1, version.encode()), *nodes))

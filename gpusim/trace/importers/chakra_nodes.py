"""Nodes of a Chakra graph (MLCommons), from protobuf as its converters write it, or from the feeder's JSON.

Source: mlcommons/chakra, schema/protobuf/et_def.proto; src/feeder.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpusim.base.errors import TraceError, shown
from gpusim.trace.importers.protobuf_wire import NoMessage, fields, numbers, signed, varint

INVALID, METADATA, MEM_LOAD, MEM_STORE, COMP, COMM_SEND, COMM_RECV, COMM_COLL = range(8)
_HINT = "expected a graph of Chakra's schema, as its converters write it"
_INT_VALUES, _TEXT_VALUE = (7, 9, 11, 13, 27), 29  # fields of AttributeProto: int32, int64, uint32, uint64, bool; string
_SIGNED = (15, 17)  # sint32, sint64
_FLOATS = {3: "<d", 5: "<f"}
_BOOLS = 28
_NUMBERS = ("comm_size", "comm_type", "comm_dst", "comm_src", "stream", "num_ops", "tensor_size", "is_cpu_op")
_MOST = 2**50


class ChakraNode(NamedTuple):
    """What a graph's node says: times in us as there, attributes by name."""

    id: int
    name: str
    kind: int
    after: tuple[int, ...]  # data dependencies
    controls: tuple[int, ...]
    start: int
    duration: int
    attrs: Mapping[str, Any]


def is_protobuf(head: bytes) -> bool:
    """Whether a file that begins so is a Chakra graph in protobuf: its metadata, then a node."""
    try:
        size, at = varint(head, 0)
        if at + size >= len(head):  # one that keeps the file it was made of in its metadata
            return head[at : at + 1] in (b"\n", b"\x12") and b"\x06schema" in head[at : at + 16]
        known = {number for number, _ in fields(head[at : at + size])}
        length, begin = varint(head, at + size)
        (number, _), *_ = fields(head[begin : begin + min(length, 2)])
        return known <= {1, 2} and number == 1 and length > 2
    except (NoMessage, ValueError):
        return False


def read_graph(data: bytes, path: str) -> list[ChakraNode]:
    """The nodes in the order of the file.  Raises TraceError."""
    nodes = _of_json(data, path) if data.lstrip()[:1] == b"{" else _of_protobuf(data, path)
    known: set[int] = set()
    for node in nodes:
        if node.id in known:
            raise TraceError(f"two nodes have the id {node.id}", path, _HINT)
        known.add(node.id)
        for name in _NUMBERS:
            if type(value := node.attrs.get(name, 0)) not in (int, bool, float) or not abs(value) < _MOST:
                raise TraceError(f"node {node.id} has '{name}' {shown(value)}, which is no number of one", path, _HINT)
        if not (0 <= node.duration < _MOST and 0 <= node.start < _MOST):
            raise TraceError(f"node {node.id} has a time that is none", path, "times are us")
    return nodes


def _of_protobuf(data: bytes, path: str) -> list[ChakraNode]:
    nodes, at = [], 0
    try:
        _, at = _message(data, at)
        while at < len(data):
            raw, at = _message(data, at)
            nodes.append(_node(raw))
    except (NoMessage, UnicodeDecodeError, struct.error):
        raise TraceError(f"node {len(nodes)}, up to byte {at}, is not one of a Chakra graph", path, _HINT) from None
    return nodes


def _message(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = varint(data, at)
    if at + size > len(data):
        raise NoMessage
    return data[at : at + size], at + size


def _node(raw: bytes) -> ChakraNode:
    one: dict[int, Any] = {}
    deps: dict[int, list[int]] = {4: [], 5: []}
    attrs: dict[str, Any] = {}
    for number, value in fields(raw):
        if number in deps:
            deps[number] += [value] if isinstance(value, int) else numbers(value)
        elif number == 10 and isinstance(value, bytes):
            name, said = _attribute(value)
            attrs[name] = said
        else:
            one[number] = value
    whole = {n: one.get(n, 0) for n in (1, 3, 6, 7)}
    name = one.get(2, b"")
    if not all(isinstance(value, int) for value in whole.values()) or not isinstance(name, bytes):
        raise NoMessage
    return ChakraNode(whole[1], name.decode(), whole[3], tuple(deps[5]), tuple(deps[4]), whole[6], whole[7], attrs)


def _attribute(raw: bytes) -> tuple[str, Any]:
    name: str = ""
    said: Any = None
    for number, value in fields(raw):
        if number == 1 and isinstance(value, bytes):
            name = value.decode()
        elif isinstance(value, int):
            said = (value >> 1) ^ -(value & 1) if number in _SIGNED else signed(value) if number in _INT_VALUES else value
        elif number == _TEXT_VALUE:
            said = value.decode()
        elif number in _FLOATS:
            said = struct.unpack(_FLOATS[number], value)[0]
        elif number == _BOOLS:
            said = [bool(each) for _, of in fields(value) for each in (numbers(of) if isinstance(of, bytes) else [of])]
    return name, said


def _of_json(data: bytes, path: str) -> list[ChakraNode]:
    try:
        graph = json.loads(data)["workload_graph"]
        return [
            ChakraNode(
                int(raw["Id"]), str(raw["Name"]), int(raw["NodeType"]), tuple(map(int, raw.get("data_deps", ()))),
                tuple(map(int, raw.get("ctrlDeps", ()))), int(raw.get("start_time_micros", 0)), int(raw.get("runtime", 0)), raw,
            )
            for raw in graph
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise TraceError("this JSON is no Chakra graph", path, _HINT) from None

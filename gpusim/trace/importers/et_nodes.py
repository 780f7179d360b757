"""Nodes of PyTorch execution traces, schemas 1.0.1 to 1.1.1: operators with the tensors they take and give.

A tensor is [its id, its storage's id, offset, elements, bytes of one, device].  Ids stand for addresses: a later storage at
the same place has the same id.  Nodes stand in the order in which operators ended, children before their parents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, BinaryIO, NamedTuple

from gpusim.base.errors import TraceError
from gpusim.trace.importers.collective_calls import CollectiveCall, of_node
from gpusim.trace.importers.json_stream import JsonStream
from gpusim.trace.importers.kineto_events import TYPES
from gpusim.trace.importers.profiled_shapes import executed_shape

_TYPE = re.compile(r"Tensor\(([^()]*)\)")
_DEEPEST = 2000  # nodes inside each other: Python's own stack ends at 1000
_HINT = "expected schema 1.0.1 to 1.1.1, as ExecutionTraceObserver writes it"


class ArgumentStorage(NamedTuple):
    """What a tensor argument stands on: a storage, by id and device, and the bytes up to the tensor's end."""

    key: tuple[int, str]
    bytes: int


class Node(NamedTuple):
    id: int
    parent: int
    record: int  # the id by which a Kineto trace of the same run knows it
    name: str
    schema: str
    inputs: tuple[tuple[ArgumentStorage, ...], ...]  # of each argument; several where it is a list
    outputs: tuple[ArgumentStorage, ...]
    dtype: str
    shape: str | None  # as gpusim.trace.shapes has it
    call: CollectiveCall | None = None  # what it exchanges with other GPUs
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()  # communicators that it lists, with their ranks
    thread: int = 0


def read_nodes(data: BinaryIO, path: str) -> list[Node]:
    """The nodes in the order of the file.  Raises TraceError."""
    nodes, stream = [], JsonStream(data, path, "nodes")
    for key, value in stream:
        if key != "nodes":
            continue
        try:
            nodes.append(_node(value))
        except RecursionError:
            raise TraceError("the lists of the node that ends here are nested too deeply", stream.where, _HINT) from None
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError):
            raise TraceError("the node that ends here is not one of an execution trace", stream.where, _HINT) from None
    _check_parents(nodes, path)
    return nodes


def _check_parents(nodes: Sequence[Node], path: str) -> None:
    """Nodes stand inside each other as a forest, at most _DEEPEST deep: what is read later walks it up."""
    parent = {node.id: node.parent for node in nodes}
    depth: dict[int, int] = {}
    for node in nodes:
        way: dict[int, None] = {}
        at = node.id
        while at in parent and at not in depth and at not in way:
            way[at] = None
            at = parent[at]
        if at in way and parent[at] != at:
            ring = list(way)[list(way).index(at) :]
            shape = " -> ".join(map(str, [*ring[:6], *(["..."] if len(ring) > 6 else []), at]))
            raise TraceError(f"node {at} is inside itself: parents form the ring {shape}", path, _HINT)
        below = depth.get(at, 0)
        for n, each in enumerate(reversed(way), 1):
            depth[each] = below + n
        if depth[node.id] > _DEEPEST:
            raise TraceError(f"node {node.id} stands inside {depth[node.id]:,} others", path, f"at most {_DEEPEST:,} are read")


def _node(raw: dict[str, Any]) -> Node:
    if "attrs" in raw:  # since 1.0.2
        attrs = {a["name"]: a["value"] for a in raw["attrs"]}
        taken, parent, outputs = raw["inputs"], raw["ctrl_deps"], raw["outputs"]["values"]
        inputs, types, made = taken["values"], taken["types"], raw["outputs"]
        dims = taken.get("shapes"), made.get("shapes"), made.get("types")
    else:
        attrs, parent, inputs, types, outputs = raw, raw["parent"], raw["inputs"], raw["input_types"], raw["outputs"]
        dims = raw.get("input_shapes"), raw.get("output_shapes"), raw.get("output_types")
    found = _TYPE.search(" ".join(map(str, types)))
    schema = str(attrs.get("op_schema", ""))
    name = str(raw["name"])
    call = of_node(inputs, attrs, _bytes(inputs), _bytes(outputs)) if name == "record_param_comms" else None
    groups = tuple(_groups(inputs)) if name.startswith("## process_group:init") else ()
    return Node(
        int(raw["id"]), int(parent), int(attrs.get("rf_id", 0)), name, schema,
        tuple(tuple(_storages(value)) for value in inputs), tuple(_storages(outputs)),
        TYPES.get(found.group(1), (0, ""))[1] if found else "", executed_shape(argument_names(schema), inputs, types, *dims),
        call, groups, int(attrs.get("tid", 0)),
    )  # fmt: skip


def _bytes(value: Any) -> int:
    """Of all tensors in a value."""
    if not isinstance(value, list):
        return 0
    if len(value) == 6 and isinstance(value[5], str) and all(type(n) is int for n in value[:5]):
        return int(value[3]) * int(value[4])
    return sum(_bytes(each) for each in value)


def _groups(inputs: Sequence[Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Communicators and their ranks, of a node that lists them as JSON; one that lists no ranks has all."""
    for text in inputs:
        for each in json.loads(text) if isinstance(text, str) else ():
            ranks = tuple(int(rank) for rank in each.get("ranks") or ())
            yield str(each["pg_name"]), ranks or tuple(range(int(each.get("group_size", 0))))


def _storages(value: Any) -> list[ArgumentStorage]:
    """All tensors in a value: it is one, or a list of such, or neither."""
    if not isinstance(value, list):
        return []
    if len(value) == 6 and isinstance(value[5], str) and all(type(n) is int for n in value[:5]):
        _, storage, offset, elements, size, device = value
        return [ArgumentStorage((storage, device), (offset + elements) * size)]
    return [storage for each in value for storage in _storages(each)]


@cache
def written_arguments(schema: str) -> frozenset[int]:
    """Positions of the arguments that an operator writes: those whose type is marked with '!'."""
    return frozenset(at for at, argument in enumerate(_arguments(schema)) if "!" in argument.partition("=")[0])


@cache
def argument_names(schema: str) -> tuple[str, ...]:
    """The names of an operator's arguments."""
    return tuple(argument.partition("=")[0].split()[-1] for argument in _arguments(schema) if argument)


def _arguments(schema: str) -> list[str]:
    """The arguments of a schema, each with its type, name and default."""
    depth, found, start = 0, [], schema.find("(") + 1
    for i in range(start, len(schema)):
        depth += (schema[i] in "([") - (schema[i] in ")]")
        if (schema[i] == "," and depth == 0) or depth < 0:
            argument = schema[start:i].strip()
            if argument != "*":
                found.append(argument)
            start = i + 1
            if depth < 0:
                break
    return found

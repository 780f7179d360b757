"""Chakra graphs (MLCommons): operators with their run times, dependencies and collectives, and no tensors.

The host works and launches in the order of the graph, by start time and id; kernels, and the collectives of each group, go
on in streams of their own, which wait for each other where the graph says so.  What depends on a send does not wait for its
receiver, as in Chakra's own simulators.  Times that are not there follow from the operations and bytes that a node names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from gpusim.base.errors import TraceError
from gpusim.trace.build import TraceBuilder
from gpusim.trace.exchanges import RECEIVE, SEND
from gpusim.trace.importers.chakra_nodes import (
    COMM_COLL,
    COMM_RECV,
    COMM_SEND,
    COMP,
    MEM_LOAD,
    MEM_STORE,
    ChakraNode,
    read_graph,
)
from gpusim.trace.importers.collective_calls import CollectiveCall
from gpusim.trace.importers.rank_recording import RankRecording
from gpusim.trace.trace import COLLECTIVE, COPY_IN, COPY_OUT, HOST_WORK, KERNEL, RECORD, SYNC, WAIT, Trace

_KINDS = {
    0: "all_reduce", 1: "reduce", 2: "all_gather", 5: "broadcast", 6: "all_to_all", 7: "reduce_scatter", 8: "reduce_scatter",
    9: "barrier",
}  # fmt: skip
_WORK = (COMP, MEM_LOAD, MEM_STORE, COMM_SEND, COMM_RECV, COMM_COLL)
_HINT = "every node has to come after those that it depends on"


def read(data: bytes, path: str, *, name: str | None = None) -> Trace:
    """The trace of one rank; its collectives are of no known partners."""
    return read_rank(data, path, name=name).trace


def read_rank(data: bytes, path: str, *, name: str | None = None) -> RankRecording:
    """The recording of one rank."""
    nodes = [node for node in read_graph(data, path) if node.kind in _WORK]
    if not nodes:
        raise TraceError("the graph has no operators", path)
    made = _Import(_ordered(nodes, path), TraceBuilder(name or "chakra", path))
    return RankRecording(path, made.trace(), calls=made.calls, unread=made.unread)


def _ordered(nodes: Sequence[ChakraNode], path: str) -> list[ChakraNode]:
    """Nodes behind those that they depend on, by start and id where they are free to go.  Raises TraceError for a ring."""
    by_id = {node.id: node for node in nodes}
    controlled = not any(node.after for node in nodes)  # a graph that was not linked has its order there
    left = {n.id: [d for d in dict.fromkeys(n.controls if controlled else n.after) if d in by_id] for n in nodes}
    behind: dict[int, list[int]] = {}
    for number, deps in left.items():
        for dep in deps:
            behind.setdefault(dep, []).append(number)
    count = {number: len(deps) for number, deps in left.items()}
    ready: list[tuple[int, int]] = []
    for node in nodes:
        if not count[node.id]:
            heappush(ready, (node.start, node.id))
    found: list[ChakraNode] = []
    buffered: dict[int, tuple[int, ...]] = {}  # send -> what it waits for itself
    while ready:
        _, number = heappop(ready)
        after = tuple(dict.fromkeys(d for dep in left[number] for d in buffered.get(dep, (dep,))))
        found.append(by_id[number]._replace(after=after))
        if by_id[number].kind == COMM_SEND:
            buffered[number] = after
        for other in behind.get(number, ()):
            count[other] -= 1
            if not count[other]:
                heappush(ready, (by_id[other].start, other))
    if len(found) < len(nodes):
        ring = min(node for node, left_over in count.items() if left_over)
        raise TraceError(f"node {ring} depends on itself, through others", path, _HINT)
    return found


class _Import:
    def __init__(self, nodes: Sequence[ChakraNode], build: TraceBuilder) -> None:
        self.nodes, self.build = nodes, build
        self.calls: dict[int, CollectiveCall] = {}
        self.unread = 0
        self.lanes: dict[Any, int] = {("stream", 0): 0}
        self.lane = {node.id: self._lane(node) for node in nodes}  # -1 of the host
        self.awaited = {
            dep for node in nodes for dep in node.after
            if self.lane[node.id] >= 0 and self.lane[dep] not in (-1, self.lane[node.id])
        }  # fmt: skip
        self.event: dict[int, int] = {}
        self.synced = 0  # nodes that the host has waited for

    def trace(self) -> Trace:
        place = {node.id: i for i, node in enumerate(self.nodes)}
        for i, node in enumerate(self.nodes):
            lane = self.lane[node.id]
            if lane < 0:
                if any(self.lane[dep] >= 0 and place[dep] >= self.synced for dep in node.after):
                    self.build.event(SYNC)
                    self.synced = i
            else:
                for dep in node.after:
                    if dep in self.event and self.lane[dep] != lane:
                        self.build.event(WAIT, self.event[dep], stream=lane)
            self._op(node, max(lane, 0), i)
            if node.id in self.awaited:
                self.event[node.id] = len(self.event)
                self.build.event(RECORD, self.event[node.id], stream=lane)
        self.build.meta = self._meta()
        return self.build.finish()

    def _lane(self, node: ChakraNode) -> int:
        """The stream: the recorded one, else one of the kernels, and one for each group and for each peer and direction."""
        if node.attrs.get("is_cpu_op"):
            return -1
        if "stream" in node.attrs:
            key: tuple[Any, ...] = ("stream", int(node.attrs["stream"]))
        elif node.kind == COMM_COLL:
            key = ("group", str(node.attrs.get("pg_name", "")))
        elif node.kind in (COMM_SEND, COMM_RECV):
            key = (node.kind, _peer(node))
        elif node.kind in (MEM_LOAD, MEM_STORE):
            key = ("memory", node.kind)
        else:
            key = ("stream", 0)
        return self.lanes.setdefault(key, len(self.lanes))

    def _op(self, node: ChakraNode, stream: int, number: int) -> None:
        duration = node.duration * 1000 if node.duration or "num_ops" not in node.attrs else -1
        size, flops = int(node.attrs.get("tensor_size", 0) or 0), float(node.attrs.get("num_ops", 0) or 0)
        activity = {MEM_LOAD: COPY_IN, MEM_STORE: COPY_OUT}.get(node.kind, KERNEL)
        if self.lane[node.id] < 0:
            activity = HOST_WORK
        elif node.kind in (COMM_COLL, COMM_SEND, COMM_RECV):
            size = int(node.attrs.get("comm_size", 0) or 0)
            call = _call(node, size)
            self.unread += call is None
            if call is not None:
                self.calls[number] = call
                activity, duration = COLLECTIVE, duration or -1
        self.build.op(
            node.name, (), (), duration=duration, stream=stream, activity=activity, flops=flops, read_bytes=size,
        )  # fmt: skip

    def _meta(self) -> dict[str, Any]:
        counted = any(node.attrs.get("num_ops") for node in self.nodes)
        lacks = ["allocations", "accesses", "addresses", "times", *([] if counted else ["flops"])]
        filled = {"streams": "kernels in one, the collectives of each group in another, unless a node names its stream"}
        return {"format": "chakra", "lacks": lacks, "filled": filled, "warnings": []}


def _peer(node: ChakraNode) -> int:
    return int(node.attrs.get("comm_dst" if node.kind == COMM_SEND else "comm_src", -1))


def _call(node: ChakraNode, size: int) -> CollectiveCall | None:
    """What a node exchanges, None where it does not say it."""
    group = str(node.attrs.get("pg_name") or "")
    if node.kind in (COMM_SEND, COMM_RECV):
        kind = SEND if node.kind == COMM_SEND else RECEIVE
        return CollectiveCall(kind, group, sent=size, peer=_peer(node)) if _peer(node) >= 0 else None
    kind = _KINDS.get(int(node.attrs.get("comm_type", -1)), "")
    dims = node.attrs.get("involved_dim")
    if not kind or (isinstance(dims, list) and not all(dims)):
        return None
    return CollectiveCall(kind, group, sent=size)


def groups_of(said: Any) -> Mapping[str, tuple[int, ...]]:
    """Communicators and their ranks of a file beside the graphs, {"name": [ranks]}; none of what is no such file."""
    if not isinstance(said, dict) or not said:
        return {}
    listed = all(isinstance(ranks, list) and ranks and all(type(rank) is int for rank in ranks) for ranks in said.values())
    return {str(name): tuple(ranks) for name, ranks in said.items()} if listed else {}

"""PyTorch execution traces: every operator with its tensors and their storages; a Kineto trace of the same run adds times.

With Kineto an operator of the trace is a kernel, and its tensors are those of the host's operator that launched it.  Alone,
it is an operator without operators inside that computes on the device: neither a view nor a mere allocation.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from gpusim.base.errors import TraceError
from gpusim.trace.build import TraceBuilder
from gpusim.trace.importers.collective_calls import CollectiveCall, known_of
from gpusim.trace.importers.et_nodes import Node, read_nodes
from gpusim.trace.importers.et_program import OperatorProgram, OperatorStep
from gpusim.trace.importers.kineto_events import DeviceEvents, HostOperator
from gpusim.trace.importers.nesting import Nesting
from gpusim.trace.importers.rank_recording import RankRecording, RecordedSpan, StreamOrder, base_time, call_of, said_of_ranks
from gpusim.trace.importers.recording import open_recording
from gpusim.trace.trace import RECORD, WAIT, Trace

_OF_ALL = "0"  # PyTorch's name of the group of all ranks


def read(
    data: BinaryIO, path: str, *, name: str | None = None, device: int | None = None, kineto: Path | str | None = None
) -> Trace:
    """The trace of one device.

    device  which GPU, when several were used
    kineto  the Kineto trace of the same run
    """
    return _read(data, path, name, device, kineto).trace


def read_rank(
    data: BinaryIO, path: str, *, name: str | None = None, device: int | None = None, kineto: Path | str | None = None
) -> RankRecording:
    """The recording of one of several ranks; with a Kineto trace its collectives have PyTorch's order among streams."""
    return _read(data, path, name, device, kineto, ordered=True)


def _read(
    data: BinaryIO, path: str, name: str | None, device: int | None, kineto: Path | str | None, *, ordered: bool = False
) -> RankRecording:
    nodes = read_nodes(data, path)
    where = _device(nodes, device, path)
    kernels = _Kernels(nodes, Path(kineto), device, ordered) if kineto is not None else None
    program = OperatorProgram(nodes, where, kernels.of if kernels else None)
    build = TraceBuilder(name or "execution-trace", path)
    alone = _emit(program, kernels, build)
    warnings = [f"there are no tensors of a GPU: these are those of '{where}'"] if not where.startswith("cuda") else []
    if kernels and kernels.unknown:
        warnings.append(f"{kernels.unknown} of {kernels.count} kernels were launched by no node, so their accesses are missing")
    build.meta = {
        "format": "execution-trace",
        "device": where,
        "lacks": ["frees", "addresses", "flops"] + ([] if kernels else ["kernel times", "times", "streams"]),
        "filled": {
            "frees": "a tensor ends with its last use",
            "start": f"{sum(born < 0 for born in program.born)} tensors that are used without having been made",
            **(kernels.waited if kernels else {"kernel times": "none: give the Kineto trace of the run with --with"}),
        },
        "warnings": warnings,
    }
    groups = {group: ranks for node in nodes for group, ranks in node.groups}
    if kernels is None:
        calls = {i: call for i, node in alone.items() if (call := _call_of(nodes, node)) is not None}
        return RankRecording(path, build.finish(), world=len(groups.get(_OF_ALL, ())), groups=groups, calls=calls)
    build.meta["streams"] = kernels.streams
    build.meta |= kernels.said
    said = said_of_ranks(kernels.header, str(kineto))
    return RankRecording(
        path, build.finish(), calls=kernels.calls, spans=kernels.spans, unread=kernels.unread,
        start=kernels.start + base_time(kernels.header), **{**said, "groups": {**groups, **said.get("groups", {})}},
    )  # fmt: skip


def _call_of(nodes: list[Node], node: Node) -> CollectiveCall | None:
    """What a node of NCCL exchanges: it is inside of the one that says it."""
    by_id = {each.id: each for each in nodes} if node.name.startswith("nccl:") else {}
    while node.call is None and node.parent in by_id and node.parent != node.id:
        node = by_id[node.parent]
    return node.call


def _device(nodes: list[Node], wanted: int | None, path: str) -> str:
    """The GPU whose tensors are read; the only one, or without any the host."""
    found = Counter(s.key[1] for n in nodes for s in (*n.outputs, *(s for argument in n.inputs for s in argument)))
    gpus = sorted(device for device in found if device not in ("", "cpu", "meta"))
    listed = ", ".join(gpus) or "no GPU"
    if wanted is not None:
        of_number = [device for device in gpus if device.partition(":")[2] == str(wanted)]
        if not of_number:
            raise TraceError(f"the trace holds no tensors of device {wanted}", path, f"it holds those of {listed}")
        return of_number[0]
    if len(gpus) > 1:
        raise TraceError(f"the trace holds {len(gpus)} devices: {listed}", path, "choose one, as device=0 or --device 0")
    if not gpus and not found:
        raise TraceError("no node has a tensor", path, "is this the execution trace of a PyTorch program?")
    return gpus[0] if gpus else "cpu"


class _Kernels:
    """The kernels of a Kineto trace by the nodes that launched them."""

    def __init__(self, nodes: list[Node], path: Path, device: int | None, ordered: bool) -> None:
        with open_recording(path) as file:
            events = DeviceEvents(file, str(path), device)
        names = {node.record: node.name for node in nodes}
        if (found := _differing(events.operators, names))[1] >= found[0]:  # before 2024 a profile counts on its own
            events.operators = _renumbered(events.operators, nodes)
        alike, unlike = _differing(events.operators, names)
        if unlike > alike:
            fault = f"this is no recording of the same run: of {alike + unlike} operators {unlike} have other names there"
            raise TraceError(fault, str(path), "give the Kineto trace that was recorded together with the execution trace")
        nesting = Nesting(events.operators)
        self.streams = sorted({kernel.stream for kernel in events.kernels})
        self.said = {**events.recorded_on(), **events.submission()}
        self.header, self._nodes, self._kernels = events.header, nodes, events.kernels
        self.count, self.waited = len(events.kernels), events.waited()
        self.start, self._time = events.kernels[0].launched if events.kernels else 0, 0
        self.of: dict[int, list[int]] = defaultdict(list)  # record id -> kernels
        self._others: deque[int] = deque()  # of no node, in the order of their launches
        launchers = nesting.innermost((k.launched, k.thread) for k in events.kernels)
        self._order = StreamOrder(events, nesting, launchers) if ordered else None
        self._said = [kernel.call or call_of(events.operators, nesting, launcher) if kernel.nccl else None
                      for kernel, launcher in zip(events.kernels, launchers, strict=True)]  # fmt: skip
        self.calls: dict[int, CollectiveCall] = {}  # as RankRecording has them; spans and unread, too
        self.spans: dict[int, RecordedSpan] = {}
        self.unread, self._emitted = 0, 0
        for i, launcher in enumerate(launchers):
            while launcher >= 0 and events.operators[launcher].record not in names:
                launcher = nesting.parent[launcher]
            if launcher >= 0:
                self.of[events.operators[launcher].record].append(i)
            else:
                self._others.append(i)
        self.unknown = len(self._others)

    def emit(self, step: OperatorStep, reads: list[int], writes: list[int], moved: list[int], build: TraceBuilder) -> None:
        """The kernels of one step, after those of no node that were launched before."""
        of_node = self.of[step.node.record]
        total = sum(self._kernels[i].duration for i in of_node) or 1
        for i in of_node:
            kernel = self._kernels[i]
            self.emit_others(kernel.launched, build)
            read, written = (round(each * kernel.duration / total) for each in moved)
            name, dtype, shape = step.node.name.replace("::", "."), step.node.dtype or None, step.node.shape
            if self._order and kernel.nccl:
                self._said[i] = known_of(self._said[i], _call_of(self._nodes, step.node))
            self._emit(i, name, build, reads, writes, read_bytes=read, written_bytes=written, dtype=dtype, shape=shape)

    def emit_others(self, until: int | None, build: TraceBuilder) -> None:
        while self._others and (until is None or self._kernels[self._others[0]].launched < until):
            self._emit(self._others.popleft(), "", build, (), ())

    def _emit(
        self, i: int, name: str, build: TraceBuilder, reads: Sequence[int], writes: Sequence[int], **facts: Any
    ) -> None:
        kernel = self._kernels[i]
        stream = self.streams.index(kernel.stream)
        self._time = max(self._time, kernel.launched - self.start)  # nodes stand in the order of their ends
        for event in self._order.before(i) if self._order else ():
            build.event(WAIT, event, stream=stream, time=self._time)
        build.op(
            name or kernel.name, reads, writes, time=self._time, device_time=kernel.began - self.start,
            duration=kernel.duration, activity=kernel.activity, stream=stream, **facts,
        )  # fmt: skip
        if self._order and (event := self._order.behind(i)) >= 0:
            build.event(RECORD, event, stream=stream, time=self._time)
        if kernel.nccl and (call := self._said[i]) is not None:
            self.calls[self._emitted] = call
            self.spans[self._emitted] = RecordedSpan(kernel.began, kernel.began + kernel.duration)
        self.unread += kernel.nccl and self._said[i] is None
        self._emitted += 1


def _differing(operators: Sequence[HostOperator], names: Mapping[int, str]) -> tuple[int, int]:
    """How many operators of the profile have the name of the node of their id, and how many another one."""
    alike = sum(names.get(operator.record) == operator.name for operator in operators)
    return alike, sum(names.get(operator.record, operator.name) != operator.name for operator in operators)


def _renumbered(operators: Sequence[HostOperator], nodes: Sequence[Node]) -> list[HostOperator]:
    """The operators under the ids of their nodes, where a thread of the profile has run the same names as one of the nodes."""
    profiled: dict[Any, list[int]] = defaultdict(list)
    for i, operator in sorted(enumerate(operators), key=lambda each: each[1].record):  # of equal starts the first, too
        profiled[operator.thread].append(i)
    known = {operator.name for operator in operators}
    executed: dict[int, list[Node]] = defaultdict(list)
    for node in sorted(nodes, key=lambda node: node.record):
        if node.name in known:
            executed[node.thread].append(node)
    of_names = {tuple(node.name for node in each): each for each in executed.values()}
    found = list(operators)
    for rows in profiled.values():
        for i, node in zip(rows, of_names.get(tuple(operators[i].name for i in rows), ()), strict=False):
            found[i] = operators[i]._replace(record=node.record)
    return found


def _emit(program: OperatorProgram, kernels: _Kernels | None, build: TraceBuilder) -> dict[int, Node]:
    """Allocs at birth, operators, frees after the last use; a tensor that nothing uses is left out.

    Answers which operator is which node, where there are no kernels.
    """
    born: dict[int, list[int]] = defaultdict(list)
    dies: dict[int, list[int]] = defaultdict(list)
    last: dict[int, int] = {}
    for i, step in enumerate(program.steps):
        last |= dict.fromkeys((*step.reads, *step.writes), i)
    for tensor in sorted(last):
        born[program.born[tensor]].append(tensor)
        if program.born[tensor] >= 0:
            dies[last[tensor]].append(tensor)
    ids = {tensor: build.alloc(program.size[tensor]) for tensor in born[-1]}
    phase, alone = "", dict[int, Node]()
    for i, step in enumerate(program.steps):
        if step.phase != phase:
            phase = step.phase
            build.begin_phase(phase)
        for tensor in born[i]:
            ids[tensor] = build.alloc(program.size[tensor], phase.rpartition(".")[2])
        reads, writes = ([ids[t] for t in side] for side in (step.reads, step.writes))
        moved = [sum(program.size[t] for t in side) for side in (step.reads, step.writes)]
        if kernels:
            kernels.emit(step, reads, writes, moved, build)
        else:
            name = step.node.name.replace("::", ".")
            alone[len(alone)] = step.node
            build.op(
                name, reads, writes, read_bytes=moved[0], written_bytes=moved[1], dtype=step.node.dtype or None,
                shape=step.node.shape,
            )  # fmt: skip
        for tensor in dies[i]:
            build.free(ids[tensor])
    if kernels:
        kernels.emit_others(None, build)
    return alone

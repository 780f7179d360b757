"""PyTorch execution traces: every operator with its tensors and their storages; a Kineto trace of the same run adds times.

With Kineto an operator of the trace is a kernel, and its tensors are those of the host's operator that launched it.  Alone,
it is an operator without operators inside that computes on the device: neither a view nor a mere allocation.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from gpusim.base.errors import TraceError
from gpusim.trace.build import TraceBuilder
from gpusim.trace.importers.et_nodes import Node, read_nodes
from gpusim.trace.importers.et_program import OperatorProgram, OperatorStep
from gpusim.trace.importers.kineto_events import DeviceEvents, KernelActivity
from gpusim.trace.importers.nesting import Nesting
from gpusim.trace.importers.recording import open_recording
from gpusim.trace.trace import Trace


def read(
    data: BinaryIO, path: str, *, name: str | None = None, device: int | None = None, kineto: Path | str | None = None
) -> Trace:
    """The trace of one device.

    device  which GPU, when several were used
    kineto  the Kineto trace of the same run
    """
    nodes = read_nodes(data, path)
    where = _device(nodes, device, path)
    kernels = _Kernels(nodes, Path(kineto), device) if kineto is not None else None
    program = OperatorProgram(nodes, where, kernels.of if kernels else None)
    build = TraceBuilder(name or "execution-trace", path)
    _emit(program, kernels, build)
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
    if kernels:
        build.meta["streams"] = kernels.streams
        build.meta |= kernels.said
    return build.finish()


def _device(nodes: list[Node], wanted: int | None, path: str) -> str:
    """The GPU whose tensors are read; the only one, or without any the host."""
    found = Counter(s.key[1] for n in nodes for s in (*n.outputs, *(s for argument in n.inputs for s in argument)))
    gpus = sorted(device for device in found if device not in ("cpu", "meta"))
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

    def __init__(self, nodes: list[Node], path: Path, device: int | None) -> None:
        with open_recording(path) as file:
            events = DeviceEvents(file, str(path), device)
        nesting = Nesting(events.operators)
        names = {node.record: node.name for node in nodes}
        alike = unlike = 0
        for operator in events.operators:
            alike += names.get(operator.record) == operator.name
            unlike += names.get(operator.record, operator.name) != operator.name
        if unlike > alike:
            fault = f"this is no recording of the same run: of {alike + unlike} operators {unlike} have other names there"
            raise TraceError(fault, str(path), "give the Kineto trace that was recorded together with the execution trace")
        self.streams = sorted({kernel.stream for kernel in events.kernels})
        self.said = {**events.recorded_on(), **events.submission()}
        self.count, self.waited = len(events.kernels), events.waited()
        self._start, self._time = events.kernels[0].launched if events.kernels else 0, 0
        self.of: dict[int, list[KernelActivity]] = defaultdict(list)  # record id -> kernels
        self._others: deque[KernelActivity] = deque()  # of no node, in the order of their launches
        launchers = nesting.innermost((k.launched, k.thread) for k in events.kernels)
        for kernel, launcher in zip(events.kernels, launchers, strict=True):
            while launcher >= 0 and events.operators[launcher].record not in names:
                launcher = nesting.parent[launcher]
            if launcher >= 0:
                self.of[events.operators[launcher].record].append(kernel)
            else:
                self._others.append(kernel)
        self.unknown = len(self._others)

    def emit(self, step: OperatorStep, reads: list[int], writes: list[int], moved: list[int], build: TraceBuilder) -> None:
        """The kernels of one step, after those of no node that were launched before."""
        of_node = self.of[step.node.record]
        total = sum(kernel.duration for kernel in of_node) or 1
        for kernel in of_node:
            self.emit_others(kernel.launched, build)
            read, written = (round(each * kernel.duration / total) for each in moved)
            name, dtype, shape = step.node.name.replace("::", "."), step.node.dtype or None, step.node.shape
            self._emit(kernel, name, build, reads, writes, read_bytes=read, written_bytes=written, dtype=dtype, shape=shape)

    def emit_others(self, until: int | None, build: TraceBuilder) -> None:
        while self._others and (until is None or self._others[0].launched < until):
            self._emit(self._others.popleft(), "", build, (), ())

    def _emit(
        self, kernel: KernelActivity, name: str, build: TraceBuilder, reads: Sequence[int], writes: Sequence[int], **facts: Any
    ) -> None:
        self._time = max(self._time, kernel.launched - self._start)  # nodes stand in the order of their ends
        build.op(
            name or kernel.name, reads, writes, time=self._time, device_time=kernel.began - self._start,
            duration=kernel.duration, activity=kernel.activity, stream=self.streams.index(kernel.stream), **facts,
        )  # fmt: skip


def _emit(program: OperatorProgram, kernels: _Kernels | None, build: TraceBuilder) -> None:
    """Allocs at birth, operators, frees after the last use; a tensor that nothing uses is left out."""
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
    phase = ""
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
            build.op(
                name, reads, writes, read_bytes=moved[0], written_bytes=moved[1], dtype=step.node.dtype or None,
                shape=step.node.shape,
            )  # fmt: skip
        for tensor in dies[i]:
            build.free(ids[tensor])
    if kernels:
        kernels.emit_others(None, build)

"""Kineto traces of torch.profiler, and Chrome traces like them: kernels with their times, and what PyTorch's allocator did.

An operator of the trace is one kernel, copy or memset, named by the host's operator that launched it and issued when that
did; a tensor is an allocation.  Which tensors a kernel touches a profile does not say, so it is inferred: a kernel writes
what its thread allocated since its last kernel, reads what its thread frees before the next one, and reads tensors of the
sizes of its operator's inputs where shapes were recorded, of several of a size the latest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any, BinaryIO

from gpusim.trace.build import TraceBuilder
from gpusim.trace.importers.collective_calls import CollectiveCall
from gpusim.trace.importers.kineto_events import DeviceEvents
from gpusim.trace.importers.kineto_memory import pair
from gpusim.trace.importers.kineto_phases import ProfiledPhases
from gpusim.trace.importers.live_sizes import LiveSizes
from gpusim.trace.importers.nesting import Nesting
from gpusim.trace.importers.rank_recording import RankRecording, RecordedSpan, StreamOrder, base_time, call_of, said_of_ranks
from gpusim.trace.trace import COPY_IN, COPY_OUT, RECORD, SYNC, WAIT, Trace

_OVERWRITES = {f"aten.{name}" for name in ("copy_", "fill_", "zero_", "uniform_", "normal_", "bernoulli_")}  # unread
_MEMORY, _WAIT, _KERNEL = range(3)  # in this order where times are equal


def read(data: BinaryIO, path: str, *, name: str | None = None, device: int | None = None) -> Trace:
    """The trace of one device.

    device  which one, when several were recorded
    """
    return _Import(DeviceEvents(data, path, device), TraceBuilder(name or "kineto", path)).trace()


def read_rank(data: BinaryIO, path: str, *, name: str | None = None, device: int | None = None) -> RankRecording:
    """The recording of one of several ranks; its collectives have the order among streams that PyTorch gives them."""
    made = _Import(DeviceEvents(data, path, device), TraceBuilder(name or "kineto", path), ordered=True)
    trace = made.trace()
    kernels, operators = made.events.kernels, made.events.operators
    calls: dict[int, CollectiveCall] = {}
    spans, unread = {}, 0
    for i, kernel in enumerate(kernels):
        if kernel.nccl:
            call = kernel.call or call_of(operators, made.nesting, made.launcher[i])
            unread += call is None
            if call is not None:
                calls[made.number[i]] = call
                spans[made.number[i]] = RecordedSpan(kernel.began, kernel.began + kernel.duration)
    return RankRecording(
        path, trace, calls=calls, spans=spans, unread=unread, start=made.start + base_time(made.events.header),
        **said_of_ranks(made.events.header, path),
    )  # fmt: skip


class _Import:
    def __init__(self, events: DeviceEvents, build: TraceBuilder, *, ordered: bool = False) -> None:
        self.events, self.build = events, build
        self.lives = pair(events.memory)
        self.nesting = nesting = Nesting(events.operators)
        self.launcher = nesting.innermost((k.launched, k.thread) for k in events.kernels)  # operator of each kernel
        self.allocator = nesting.innermost((m.time, m.thread) for m in events.memory)  # operator of each instant
        self.phases, self.phase = ProfiledPhases(events, nesting), ""
        self.streams = sorted({k.stream for k in events.kernels})
        self.live = LiveSizes([abs(m.bytes) for m in events.memory])
        self.fresh: dict[Any, list[int]] = defaultdict(list)  # thread -> tensors that no kernel has written yet
        self.inputs: dict[int, list[int]] = {}  # operator -> tensors found for its inputs
        self.outputs: dict[int, list[int]] = defaultdict(list)  # operator -> what its kernels have written
        self.busy: dict[int, int] = defaultdict(int)  # operator -> ns of all of its kernels
        for kernel, operator in zip(events.kernels, self.launcher, strict=True):
            self.busy[operator] += kernel.duration
        self.asked = self.found = 0  # bytes of inputs
        self.order = StreamOrder(events, nesting, self.launcher) if ordered else None
        self.number: dict[int, int] = {}  # kernel -> its operator in the trace
        self.start = 0  # of the trace, as the profile counts time

    def trace(self) -> Trace:
        events, build = self.events, self.build
        order = sorted(
            [(m.time, _MEMORY, i) for i, m in enumerate(events.memory)]
            + [(time, _WAIT, i) for i, time in enumerate(events.waits)]
            + [(k.launched, _KERNEL, i) for i, k in enumerate(events.kernels)]
        )
        last_reads = self._last_reads(order)
        self.start = order[0][0] if order else 0
        for size, addr in self.lives.older:
            self.live.add(build.alloc(size, addr=addr), size)
        for time, what, i in order:
            at = time - order[0][0]
            if what == _MEMORY:
                self._instant(i, at)
            elif what == _KERNEL:
                self._kernel(i, at, last_reads[i])
            else:
                build.event(SYNC, time=at)
        build.meta = self._meta()
        return build.finish()

    def _last_reads(self, order: list[tuple[int, int, int]]) -> dict[int, list[int]]:
        """Kernel -> tensors that its thread frees before its next one."""
        latest: dict[Any, int] = {}
        found: dict[int, list[int]] = defaultdict(list)
        for _, what, i in order:
            if what == _KERNEL:
                latest[self.events.kernels[i].thread] = i
            elif what == _MEMORY and self.events.memory[i].bytes < 0:
                kernel = latest.get(self.events.memory[i].thread, -1)
                if kernel >= 0:
                    found[kernel].append(self.lives.tensor[i])
        return found

    def _instant(self, i: int, at: int) -> None:
        instant, tensor = self.events.memory[i], self.lives.tensor[i]
        if instant.bytes < 0:
            self.build.free(tensor, time=at, addr=instant.addr)
            self.live.remove(tensor)
            return
        if i in self.lives.lost:
            self.build.free(self.lives.lost[i], time=at, addr=instant.addr)
            self.live.remove(self.lives.lost[i])
        phase = self._enter(self.phases.of(instant.time, instant.thread, self.allocator[i]), at)
        self.build.alloc(instant.bytes, phase.rpartition(".")[2], time=at, addr=instant.addr)
        self.live.add(tensor, instant.bytes)
        self.fresh[instant.thread].append(tensor)

    def _kernel(self, i: int, at: int, last_reads: list[int]) -> None:
        kernel, operator, live = self.events.kernels[i], self.launcher[i], self.live
        self._enter(self.phases.of(kernel.launched, kernel.thread, operator), at)
        fresh = [t for t in self.fresh.pop(kernel.thread, []) if t in live]
        name, reads, writes, share, asked, dtype, shape = kernel.name, [], fresh, 1.0, 0, "", None
        if operator >= 0:
            host = self.events.operators[operator]
            name, dtype, shape = host.name.replace("::", "."), host.dtype, host.shape
            in_place = name.endswith("_")
            inputs = self._inputs(operator, () if in_place else fresh)
            self.outputs[operator] += fresh
            writes = [t for t in self.outputs[operator] if t in live]
            if in_place and inputs and inputs[0] in live and inputs[0] not in writes:
                writes.append(inputs[0])
            unread = name in _OVERWRITES
            reads, asked = inputs[unread:], sum(host.inputs[unread:])
            if kernel.activity == COPY_IN:  # from a tensor of the host
                reads = []
            elif kernel.activity == COPY_OUT:  # to one, which was asked for first: its size is that of the source
                reads, writes = inputs[:1], fresh
            # An operator's bytes are those of all of its kernels.
            share = kernel.duration / self.busy[operator] if self.busy[operator] else 0.0
        # What a kernel is the first to write, it cannot have read.
        reads = [t for t in dict.fromkeys((*reads, *last_reads)) if t in live and t not in fresh]
        written = sum(live.size(t) for t in writes)
        moved, stream = kernel.moved, self.streams.index(kernel.stream)
        self.number[i] = len(self.number)
        for event in self.order.before(i) if self.order else ():
            self.build.event(WAIT, event, stream=stream, time=at)
        self.build.op(
            name, reads, writes, time=at, device_time=at + kernel.began - kernel.launched, duration=kernel.duration,
            stream=stream, activity=kernel.activity, dtype=dtype or None, shape=shape,
            launch=kernel.launch, read_bytes=moved if kernel.reads else round(asked * share),
            written_bytes=moved or round(written * share),
        )  # fmt: skip
        if self.order and (event := self.order.behind(i)) >= 0:
            self.build.event(RECORD, event, stream=stream, time=at)

    def _inputs(self, operator: int, but: Collection[int]) -> list[int]:
        """A tensor for each of the operator's inputs, -1 where none has the size; the same for all of its kernels."""
        if operator not in self.inputs:
            chosen: list[int] = []
            for size in self.events.operators[operator].inputs:
                chosen.append(self.live.latest(size, {*but, *chosen}))
                self.asked += size
                self.found += size if chosen[-1] >= 0 else 0
            self.inputs[operator] = chosen
        return self.inputs[operator]

    def _enter(self, phase: str, at: int) -> str:
        if phase != self.phase:
            self.build.begin_phase(phase, time=at)
            self.phase = phase
        return phase

    def _meta(self) -> dict[str, Any]:
        events, lives = self.events, self.lives
        lacks, filled, warnings = ["accesses", "flops"], dict[str, str](), list[str]()
        frees = sum(m.bytes < 0 for m in events.memory)
        if not self.asked:
            lacks.append("shapes")
        if events.memory:
            filled["accesses"] = "a kernel writes what its thread allocated since its last, reads what it frees before the next"
            if self.asked:
                filled["accesses"] += f", and the latest of its inputs' sizes ({self.found / self.asked:.0%} of bytes found)"
            filled["sizes"] = "blocks of PyTorch's allocator, not what was requested"
            if lives.older:
                size = sum(size for size, _ in lives.older)
                filled["start"] = f"{size} bytes from before the profile, as tensors: {len(lives.older)}"
        else:
            lacks.append("allocations")
            warnings.append("there are no [memory] events of this GPU, so no tensors: profile with profile_memory=True")
        if any(m.addr < 0 for m in events.memory):
            lacks.append("addresses")
            filled["frees"] = (
                f"a free is of the latest allocation of its size; {lives.guessed} of {frees} had several to choose from"
            )
        if lives.agreeing < lives.stated:
            apart = lives.stated - lives.agreeing
            warnings.append(f"after {apart} of {lives.stated} [memory] events other bytes are in use than the profile says")
        if lives.lost:
            warnings.append(f"{len(lives.lost)} allocations take an address still in use: their frees are missing")
        if not events.steps:
            warnings.append("there are no steps: call the profiler's step() after each")
        peaks = {"allocated": max((m.allocated for m in events.memory), default=-1),
                 "reserved": max((m.reserved for m in events.memory), default=-1)}  # fmt: skip
        return {
            "format": "kineto",
            "device": events.device,
            "lacks": lacks,
            "filled": filled | events.waited(),
            "streams": self.streams,
            **events.recorded_on(),
            **events.submission(),
            "recorded_peak": {what: peak for what, peak in peaks.items() if peak >= 0},
            "warnings": warnings,
        }

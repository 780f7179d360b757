"""Is the OOM doctor right about what was planted, and silent where nothing is wrong?"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from gpusim.base.errors import TraceError
from gpusim.programs.recordings import import_trace
from gpusim.studies.fragmentation.causes import reasons
from gpusim.studies.fragmentation.compare import compare
from gpusim.studies.fragmentation.doctor import examine, seen
from gpusim.studies.fragmentation.growth import steps
from gpusim.studies.fragmentation.holders import holders
from gpusim.studies.fragmentation.message import parse
from gpusim.studies.fragmentation.moment import moment
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import OOM, SEGMENT_ALLOC, Trace

MIB, GIB = 2**20, 2**30
PAGE = 20 * MIB


class Heap:
    """A snapshot in the making: segments filled with blocks, then events; sizes in bytes."""

    def __init__(self, conf: str = "", device: int = 0) -> None:
        self.conf, self.device = conf, device
        self.segments: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.end = 0x7F0000000000

    def segment(self, size: int, *blocks: tuple[int, int, str], stream: int = 0, **more: Any) -> int:
        """A final segment with live blocks (offset, bytes, stack); its address."""
        at = self.end
        self.end += size + GIB
        listed, reached = [], 0
        for offset, live, frame in blocks:
            if offset > reached:
                listed.append({"address": at + reached, "size": offset - reached, "requested_size": 0, "state": "inactive"})
            listed.append({"address": at + offset, "size": live, "requested_size": live, "state": "active_allocated",
                           "frames": frames(frame)})  # fmt: skip
            reached = offset + live
        if reached < size:
            listed.append({"address": at + reached, "size": size - reached, "requested_size": 0, "state": "inactive"})
        self.segments.append({
            "device": self.device, "address": at, "total_size": size, "stream": stream, "segment_type": "large",
            "is_expandable": "expandable" in self.conf, "blocks": listed, **more,
        })  # fmt: skip
        return at

    def event(self, action: str, addr: int, size: int, stream: int = 0, **more: Any) -> None:
        time = len(self.events)
        self.events.append({"action": action, "addr": addr, "size": size, "stream": stream, "time_us": time, **more})

    def oom(self, size: int, free: int, stream: int = 0) -> None:
        self.event("oom", 0, size, stream, device_free=free)

    def save(self, path: Path, *others: Heap) -> Path:
        every = [self, *others]
        traces = [[] for _ in range(1 + max(heap.device for heap in every))]
        for heap in every:
            traces[heap.device] = heap.events
        data = {
            "segments": [segment for heap in every for segment in heap.segments], "device_traces": traces,
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": self.conf},
        }  # fmt: skip
        path.write_bytes(pickle.dumps(data))
        return path


def frames(name: str) -> list[dict[str, Any]]:
    file, _, function = name.partition(":")
    return [{"filename": f"/src/{file}", "name": function, "line": 7}]


def full_gpu(device: int, live: float, mapped: float, free: float, request: float) -> Heap:
    """Expandable segments that are full but for their last page."""
    heap = Heap("expandable_segments:True", device)
    total, used = int(mapped * GIB) // PAGE * PAGE, int(live * GIB) // 512 * 512
    blocks, at = [], 0
    while at < used:
        size = min(GIB, used - at)
        blocks.append((at, size, "model.py:forward"))
        at += size
    base = heap.segment(total, *blocks)
    heap.event("alloc", base, min(GIB, used), frames=frames("model.py:forward"))
    heap.event("free_requested", base, min(GIB, used))
    heap.event("free_completed", base, min(GIB, used))
    heap.event("alloc", base, min(GIB, used), frames=frames("model.py:forward"))
    if request:
        heap.oom(int(request * GIB) // 512 * 512, int(free * GIB))
    return heap


@pytest.mark.slow
def test_three_gpus_of_which_one_is_full(tmp_path: Path) -> None:
    """78.29 GiB live of 78.42 mapped, 0.09 free, 4.94 requested: nothing can serve it, and no setting is advised."""
    others = full_gpu(1, 8.0, 8.2, 0, 0), full_gpu(2, 9.0, 9.1, 0, 0)
    path = full_gpu(0, 78.29, 78.42, 0.09, 4.94).save(tmp_path / "oom.pickle", *others)
    answer = examine(path)
    m = answer.moment
    assert m is not None and m.failed
    assert m.held == int(78.42 * GIB) // PAGE * PAGE and m.left == int(0.09 * GIB)
    assert [cause.kind for cause in answer.causes] == ["shortage", "other_device"]
    assert answer.causes[0].bytes == m.size - (m.held + m.left - m.live)
    assert answer.causes[1].detail == "devices 1 and 2 could serve the request, if as large as device 0"
    assert "no allocator could serve it" in answer.verdict and "4.94 GiB" in answer.verdict
    assert answer.advice == []
    assert "other_device" in [cause.kind for cause in examine(path, device=1).causes]


def test_free_bytes_in_pieces_are_fragmentation(tmp_path: Path) -> None:
    heap = Heap()
    for _ in range(8):
        heap.segment(100 * MIB, (0, 10 * MIB, "cache.py:append"), (50 * MIB, 10 * MIB, "cache.py:append"))
    heap.oom(200 * MIB, 10 * MIB)
    answer = examine(heap.save(tmp_path / "a.pickle"))
    assert [(cause.kind, cause.bytes, cause.detail[:6]) for cause in answer.causes] == [("fragmentation", 640 * MIB, "pieces")]
    assert answer.verdict.startswith("Out of memory on a request of 200 MiB: fragmentation (pieces)")
    assert [(row.name, row.bytes) for row in answer.holders["stack"]] == [("cache.py:append", 160 * MIB)]


def test_a_free_block_of_another_stream_is_named(tmp_path: Path) -> None:
    heap = Heap()
    heap.segment(100 * MIB, (0, 90 * MIB, "a.py:f"))
    heap.segment(300 * MIB, (0, 10 * MIB, "b.py:g"), stream=7)
    heap.oom(200 * MIB, 50 * MIB)
    answer = examine(heap.save(tmp_path / "a.pickle"))
    assert [(cause.kind, cause.bytes, cause.detail[:6]) for cause in answer.causes] == [("fragmentation", 290 * MIB, "stream")]


def test_a_request_larger_than_the_device_is_impossible(tmp_path: Path) -> None:
    heap = Heap()
    heap.segment(GIB, (0, GIB, "a.py:f"))
    heap.oom(30 * GIB, 9 * GIB)
    answer = examine(heap.save(tmp_path / "a.pickle"))
    assert [(cause.kind, cause.bytes) for cause in answer.causes] == [("shortage", 21 * GIB), ("impossible", 20 * GIB)]
    assert "nothing can serve it" in answer.verdict


def test_memory_outside_of_pytorch_is_told_by_the_capacity(tmp_path: Path) -> None:
    heap = Heap()
    heap.segment(8 * GIB, (0, 8 * GIB, "a.py:f"))
    heap.oom(4 * GIB, 2 * GIB)
    path = heap.save(tmp_path / "a.pickle")
    assert [cause.kind for cause in examine(path).causes] == ["shortage"]
    answer = examine(path, capacity=16 * GIB)
    assert [(cause.kind, cause.bytes) for cause in answer.causes] == [("shortage", 2 * GIB), ("foreign", 6 * GIB)]


class Steps(TraceBuilder):
    """Training steps of a few layers, one tensor of which may be left behind by each."""

    def run(self, count: int, leak: int, phases: bool = False) -> Trace:
        self.alloc(50 * MIB, "model.py:__init__")
        for step in range(count):
            if phases:
                self.begin_phase(f"step{step}.fwd")
            saved = [self.alloc((3 + layer) * MIB, "model.py:forward") for layer in range(6)]
            for layer in range(6):
                self.free(self.alloc((20 + layer) * MIB, "model.py:attention"))
            if leak:
                self.alloc(leak, "train.py:log")
            for tensor in reversed(saved):
                self.free(tensor)
        return self.finish()


@pytest.mark.parametrize("phases", [True, False])
def test_what_every_step_leaves_behind_is_a_leak(phases: bool) -> None:
    trace = Steps("t").run(12, 5 * MIB, phases)
    answer = seen(trace)
    assert steps(trace).how == ("phases" if phases else "allocations")
    assert [cause.kind for cause in answer.causes] == ["leak"]
    leak = answer.leaks[0]
    assert (leak.site, leak.per_step) == ("train.py:log", 5 * MIB) and leak.steps == 12
    assert "5 MiB per step from train.py:log" in answer.causes[0].detail


@pytest.mark.parametrize("phases", [True, False])
def test_steps_that_leave_nothing_behind_are_no_leak(phases: bool) -> None:
    answer = seen(Steps("t").run(12, 0, phases))
    assert answer.causes == [] and answer.leaks == [] and answer.verdict.startswith("Nothing is wrong")


def test_one_forward_pass_that_saves_its_activations_is_no_leak() -> None:
    build = TraceBuilder("forward")
    for _ in range(24):
        for size in (3, 5, 9, 2):
            build.alloc(size * MIB, "model.py:forward")
        build.free(build.alloc(7 * MIB, "model.py:forward"))
    build.event(OOM, nbytes=GIB)
    assert seen(build.finish()).leaks == []


def test_growth_between_two_times_is_named_by_its_stack(tmp_path: Path) -> None:
    def at(size: int) -> Trace:
        heap = Heap()
        heap.segment(GIB, (0, 100 * MIB, "model.py:f"), (100 * MIB, size, "cache.py:append"))
        return import_trace(heap.save(tmp_path / f"{size}.pickle"))

    found = compare({"early": at(10 * MIB), "late": at(90 * MIB)})
    assert [(row.name, row.bytes) for row in found.grown] == [("cache.py:append", 80 * MIB)]
    assert "More is live at the end of late than of early: cache.py:append +80 MiB." in found.text()


def test_the_errors_text_tells_the_device() -> None:
    new = (
        "CUDA out of memory. Tried to allocate 4.94 GiB. GPU 0 has a total capacity of 79.25 GiB of which 92.94 MiB is free. "
        "Including non-PyTorch memory, this process has 79.15 GiB memory in use. Of the allocated memory 78.29 GiB is "
        "allocated by PyTorch, and 125.00 MiB is reserved by PyTorch but unallocated."
    )
    found = parse(new)
    assert (found.asked, found.total, found.live) == (int(4.94 * GIB) + 1, 79 * GIB + GIB // 4, round(78.29 * GIB))
    old = "Tried to allocate 20.00 MiB (GPU 0; 14.76 GiB total capacity; 13.52 GiB already allocated; 13.75 MiB free; ..."
    assert parse(old).free == round(13.75 * MIB) and parse(old).total == round(14.76 * GIB)
    with pytest.raises(TraceError, match="does not say the device's total capacity"):
        parse("Killed")


def test_holders_by_role_and_module_add_up() -> None:
    build = TraceBuilder("ops")
    weight = build.alloc(4 * MIB, "param")
    build.begin_phase("step0.fwd")
    out = build.alloc(2 * MIB, "fwd")
    build.op("mm", [weight], [out], module="net.linear")
    trace = build.finish()
    found = holders(trace, trace.events)
    assert [(row.name, row.bytes) for row in found["role"]] == [("parameter", 4 * MIB), ("temporary", 2 * MIB)]
    assert ("net.linear", 2 * MIB) in [(row.name, row.bytes) for row in found["module"]]
    assert ("step0.fwd", 2 * MIB) in [(row.name, row.bytes) for row in found["phase"]]


def test_the_peak_is_the_moment_where_nothing_failed() -> None:
    build = TraceBuilder("peak")
    build.event(SEGMENT_ALLOC, addr=0, nbytes=40 * MIB)
    first = build.alloc(10 * MIB, addr=0)
    build.free(build.alloc(20 * MIB, addr=10 * MIB), addr=10 * MIB)
    build.free(first, addr=0)
    m = moment(build.finish())
    assert (m.held, m.live, m.failed) == (40 * MIB, 30 * MIB, False)
    assert m.holes.bytes.tolist() == [10 * MIB]


@pytest.mark.hand_worked
def test_segments_that_are_free_as_a_whole_are_given_back_before_a_request_fails() -> None:
    build = TraceBuilder("short")
    build.alloc(60 * MIB, "param")
    build.free(build.alloc(30 * MIB, "fwd"))
    build.alloc(50 * MIB, "fwd")
    m = examine(build.finish(), capacity=100 * MIB).moment
    assert (m.failed, m.simulated, m.held, m.left) == (True, True, 60 * MIB, 40 * MIB)
    assert reasons(m) == {}

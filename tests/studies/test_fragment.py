"""Does `gpusim fragment` name what fragments a program, when the cause was planted?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpusim.policies import registry
from gpusim.policies.trials.allocator_replay import replay
from gpusim.policies.trials.allocator_requests import of_trace
from gpusim.results.log import PLACE, RESERVE
from gpusim.studies.fragmentation.candidates import Candidate, default, named, pytorch
from gpusim.studies.fragmentation.heap import History
from gpusim.studies.fragmentation.recorded import recorded
from gpusim.studies.fragmentation.report import text
from gpusim.studies.fragmentation.study import FragmentationStudy, study
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import OOM, SEGMENT_ALLOC, Trace

KIB, MIB, GIB = 2**10, 2**20, 2**30


class Program(TraceBuilder):
    """A trace of allocs and frees, written down."""

    def __init__(self) -> None:
        super().__init__("planted")

    def many(self, count: int, size: int, site: str = "layer", stream: int = 0) -> list[int]:
        return [self.alloc(size, site, stream=stream) for _ in range(count)]

    def drop(self, tensors: list[int], stream: int = 0) -> None:
        for tensor in tensors:
            self.free(tensor, stream=stream)


def of_pytorch(trace: Trace, conf: str = "", capacity: int | None = None) -> FragmentationStudy:
    return study(replace(trace, meta=trace.meta | {"alloc_conf": conf}), [pytorch(conf)], capacity)


@pytest.mark.slow
def test_rounding_is_named() -> None:
    """Tensors of 4 bytes have blocks of 512; 4096 of them fill one segment of 2 MiB."""
    p = Program()
    p.many(4096, 4)
    found = of_pytorch(p.finish())
    assert found.diagnosis.main == "slack"
    assert found.diagnosis.causes["slack"] == 4096 * 508
    assert found.diagnosis.held == 2 * MIB


def test_pieces_between_blocks_in_use_are_named_with_what_pins_them() -> None:
    """Every second of 5 MiB blocks is freed: 20 MiB segments with 5 MiB holes serve no request of 8 MiB."""
    p = Program()
    kept, gone = [], []
    for _ in range(40):
        gone += p.many(3, 5 * MIB, "temporary")
        kept += p.many(1, 5 * MIB, "cache.py:append")
    p.drop(gone)
    p.many(4, 18 * MIB, "needs")
    found = of_pytorch(p.finish())
    assert found.diagnosis.main == "pieces"
    assert found.diagnosis.causes["pieces"] == 40 * 15 * MIB  # three adjacent ones in each segment: a hole of 15 MiB
    pin = found.diagnosis.pins[0]
    assert (pin.site, pin.segments, pin.tensors) == ("cache.py:append", 40, 40)
    assert pin.free == 40 * 15 * MIB and pin.tensor_bytes == 40 * 5 * MIB


@pytest.mark.slow
def test_another_stream_is_named() -> None:
    p = Program()
    p.drop(p.many(10, 20 * MIB, stream=1), stream=1)
    p.many(1, 20 * MIB, stream=1)
    p.many(10, 20 * MIB)
    found = of_pytorch(p.finish())
    # One of stream 1's segments is in use; the other nine are whole and idle, on any stream.
    assert found.diagnosis.main == "idle"
    assert found.diagnosis.causes["idle"] == 9 * 20 * MIB

    p = Program()
    front = [t for _ in range(10) for t in (p.many(1, 2 * MIB, stream=1) + p.many(1, 18 * MIB, stream=1))]
    p.drop(front[1::2], stream=1)
    p.many(10, 18 * MIB)
    found = of_pytorch(p.finish())
    assert found.diagnosis.main == "stream"


def test_the_other_pool_is_named() -> None:
    """Small tensors leave a 2 MiB segment each with one small block: nothing that a large request may have."""
    p = Program()
    small = p.many(4 * 200, 512 * KIB, "small")
    p.drop([t for i, t in enumerate(small) if i % 4])
    p.many(2, 30 * MIB)
    found = of_pytorch(p.finish())
    assert found.diagnosis.main == "pool"
    assert found.diagnosis.causes["pool"] == 200 * 3 * 512 * KIB


def test_oversize_blocks_are_named() -> None:
    p = Program()
    big = p.many(4, 300 * MIB)
    p.drop(big[:3])
    p.many(5, 20 * MIB)
    found = of_pytorch(p.finish(), "max_split_size_mb:100")
    assert found.diagnosis.main in ("idle", "oversize")
    assert found.diagnosis.causes["idle"] + found.diagnosis.causes["oversize"] == 900 * MIB


def growing() -> Trace:
    """Sequences that grow: each step's tensor is larger than every cached segment."""
    p = Program()
    for step in range(20):
        p.drop(p.many(1, (100 + 10 * step) * MIB, "train.py:forward"))
    return p.finish()


@pytest.mark.slow
def test_idle_segments_are_named_and_the_line_to_copy_is_given() -> None:
    trace = growing()
    found = study(trace, default(trace))
    assert found.diagnosis.main == "idle"
    assert found.now.held_peak == sum(100 + 10 * step for step in range(20)) * MIB
    best = found.answer.advice[0]
    assert (best.kind, best.setting) == ("setting", "expandable_segments:True") and best.held <= 300 * MIB
    assert best.saves == found.now.held_peak - best.held
    assert "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in text(found)
    assert [cause.kind for cause in found.answer.causes] == ["cached"]


def test_nothing_is_advised_where_nothing_is_to_be_gained() -> None:
    p = Program()
    p.many(50, 20 * MIB)
    found = study(p.finish(), [pytorch(""), pytorch("expandable_segments:True"), Candidate("best_fit")])
    assert found.answer.advice == [] and found.answer.causes == []
    assert text(found).startswith("Nothing is wrong") and "Leave it as it is" in text(found)


def test_an_out_of_memory_that_another_setting_avoids() -> None:
    """Each of ten segments of 56 MiB keeps 5 MiB in use: 510 MiB are free, and no 300 in one piece.

    Expandable segments give back the whole pages of 20 MiB that lie in the holes.
    """
    p, between = Program(), []
    for big in p.many(10, 55 * MIB, "batch"):
        p.drop([big])
        p.many(1, 5 * MIB, "kept")
        between += p.many(1, 50 * MIB, "batch")
    p.drop(between)
    p.many(1, 300 * MIB, "wanted")
    trace, capacity = p.finish(), 700 * MIB
    found = study(trace, [pytorch(""), pytorch("expandable_segments:True"), Candidate("device")], capacity)
    assert not found.now.fits and found.diagnosis.refused
    assert found.now.counts["fragmented"] == 1
    assert found.diagnosis.main == "pieces"
    assert found.diagnosis.size == 300 * MIB and found.diagnosis.largest_hole == 51 * MIB
    assert found.diagnosis.pins[0].site == "kept" and found.diagnosis.pins[0].segments == 10
    assert text(found).startswith("It would run out of memory on a request of 300 MiB: fragmentation (pieces)")
    best = found.answer.advice[0]
    assert best.setting == "expandable_segments:True" and best.serves and best.high <= capacity


# --- the parts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["best_fit", "pytorch", "tlsf", "buddy", "device", "first_fit"])
def test_a_heap_adds_up_at_every_request(name: str) -> None:
    rng = np.random.default_rng(7)
    p, live = Program(), []
    for size in rng.integers(1, 40 * MIB, 300).tolist():
        live.append(p.alloc(size))
        if rng.random() < 0.45:
            p.free(live.pop(int(rng.integers(len(live)))))
    trace = p.finish()
    done = replay(of_trace(trace), registry.get("place", name), log=True)
    history = History(done.log, trace.events)
    held = rounded = 0
    by_time: dict[int, list[tuple[int, int]]] = {}
    for row in done.log:
        by_time.setdefault(int(row["t"]), []).append((int(row["kind"]), int(row["bytes"])))
    for request in range(done.program.total):
        for kind, size in by_time.get(request, []):
            held += {RESERVE: size, RESERVE + 1: -size}.get(kind, 0)
            rounded += {PLACE: size, PLACE + 1: -size}.get(kind, 0)
        heap = history.at(request)
        assert heap.held == held and heap.rounded == rounded
        assert int(heap.hole_bytes.sum()) == held - rounded
        inside = heap.segments.pick(heap.of)
        assert np.all(heap.hole_addr >= inside.addr)
        assert np.all(heap.hole_addr + heap.hole_bytes <= inside.addr + inside.bytes)


def test_a_recording_is_taken_as_it_is() -> None:
    p = TraceBuilder("recorded")
    p.event(SEGMENT_ALLOC, addr=0x1000000, nbytes=20 * MIB)
    a = p.alloc(5 * MIB, addr=0x1000000)
    b = p.alloc(3 * MIB + 1, addr=0x1000000 + 5 * MIB)
    p.free(a)
    p.event(OOM, nbytes=600 * MIB, addr=100 * MIB)
    p.free(b)
    trace = p.finish()
    program = of_trace(trace)
    assert program.total == 6 and program.units == 3  # the request that failed is made, and freed at once
    found = recorded(trace, program)
    assert found is not None
    assert found.counts["held_peak"] == 20 * MIB
    assert found.counts["rounded_peak"] == 8 * MIB + 512
    assert found.counts["refused"] == 1 and found.counts["refused_bytes"] == 600 * MIB
    assert found.capacity == 120 * MIB  # 20 held and 100 that the device had left
    small = study(trace, [Candidate("best_fit")])
    assert small.capacity == 120 * MIB and not any(t.fits for t in small.tried)


def failing(begun: int = 0) -> Trace:
    """8 MiB of two segments are in use, `begun` more segments idle, when 30 MiB are refused; how much was left is not told."""
    p = TraceBuilder("failing")
    for k in range(2 + begun):
        p.event(SEGMENT_ALLOC, addr=k * 64 * MIB, nbytes=20 * MIB)
    for k in range(2):
        p.alloc(4 * MIB, addr=k * 64 * MIB)
    p.event(OOM, nbytes=30 * MIB)
    return p.finish()


def test_a_device_whose_rest_is_not_told_gives_what_it_gave() -> None:
    found = study(failing(), [pytorch(""), Candidate("best_fit")])
    assert found.capacity == 40 * MIB and not found.now.fits
    assert (found.floor.live, found.floor.planned) == (38 * MIB, 38 * MIB)  # with the request that failed
    best = next(t for t in found.tried if t.candidate.place == "best_fit")
    assert best.fits and found.answer.advice == []  # no setting brings it
    assert "No advice: The recorded segments are none that PyTorch takes from a device" in text(found)


def test_a_recording_without_segments_that_failed_asks_for_the_capacity() -> None:
    p = Program()
    kept = p.alloc(5 * MIB)
    p.event(OOM, nbytes=300 * MIB)
    p.free(kept)
    found = study(p.finish(), [Candidate("best_fit")])
    assert found.floor.planned == 305 * MIB and found.answer.advice == []
    assert "the recording does not say how much memory there was (give --capacity or --on)" in " ".join(text(found).split())


def test_candidates_from_the_command_line() -> None:
    first, second = named(["max_split_size_mb:64", "tlsf(min_rest=512)"])
    assert first.how == "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64"
    assert second.spec == {"name": "tlsf", "params": {"min_rest": 512}}

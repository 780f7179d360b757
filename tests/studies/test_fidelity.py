"""Does the model of PyTorch's allocator repeat recordings, and does it say so when it does not?"""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.policies import registry
from gpusim.policies.contract import BLOCK
from gpusim.policies.place.parts.pytorch import events as events_of
from gpusim.policies.place.parts.pytorch import rules
from gpusim.programs.recordings import import_trace
from gpusim.studies.fragmentation import start
from gpusim.studies.fragmentation.fidelity import Exactness, how_exact, in_words
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace
from gpusim.trace.importers import pytorch_parts as state
from gpusim.trace.importers.pytorch_ranges import RecordedSegment
from gpusim.trace.importers.pytorch_state import to_trace
from gpusim.trace.trace import Trace

TRACES = Path(__file__).parents[2] / "traces"
MIB = 2**20

Event = tuple[str, int, int]  # action, address, bytes
Block = tuple[int, int, int, str]  # address, size, requested, state


def snapshot(
    tmp_path: Path, segments: Sequence[tuple[int, int, Sequence[Block]]], events: Sequence[Event], **more: Any
) -> Trace:  # fmt: skip
    """The trace of a snapshot with these final segments; all in bytes."""
    data = {
        "segments": [
            {"address": addr, "total_size": size, "stream": 0, "blocks": [
                {"address": a, "size": s, "requested_size": r, "state": state} for a, s, r, state in blocks
            ]}
            for addr, size, blocks in segments
        ],
        "device_traces": [[{"action": what, "addr": addr, "size": size, "stream": 0} for what, addr, size in events]],
        **more,
    }  # fmt: skip
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(data))
    return import_trace(path)


def used(addr: int, size: int, requested: int = -1) -> Block:
    return addr, size, size if requested < 0 else requested, "active_allocated"


def exactness(trace: Trace) -> Exactness:
    found = how_exact(trace)
    assert found is not None
    return found


# --- real recordings --------------------------------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize(("name", "allocs"), [("train", 6526), ("infer", 1666)])
def test_every_allocation_of_the_shipped_snapshots_lands_where_it_was_recorded(name: str, allocs: int) -> None:
    found = exactness(load_trace(TRACES / f"gpt-medium-{name}-snapshot.npz"))
    assert (found.placed, found.allocs, found.misses) == (allocs, allocs, [])
    assert (found.predicted, found.segment_events) == (0, 0)  # all segments were there before the first event
    assert found.alike == ("2.11", "2.13")
    assert found.text == (
        f"The model puts {allocs:,} of {allocs:,} allocations at their recorded addresses; no segment is taken or "
        "given back meanwhile, nor by the model (PyTorch 2.11 or 2.13 order)."
    )


def test_a_recording_that_was_changed_is_not_repeated() -> None:
    """One allocation of the recording, moved by 512 bytes, is the one that is missed."""
    trace = load_trace(TRACES / "gpt-medium-infer-snapshot.npz")
    first = trace.meta["start"]["tensors"] + trace.meta["start"]["segments"]
    event = int(np.flatnonzero((trace.kind == 0) & (np.arange(trace.events) >= first))[500])
    addr = trace.addr.copy()
    addr[event] += 512
    changed = Trace(**{**vars(trace), "addr": addr})
    found = exactness(changed)
    assert (found.placed, found.allocs) == (1665, 1666)
    assert [(m.event, m.what, m.recorded - m.model, m.why) for m in found.misses] == [
        (event, "alloc", 512, "the model takes other free memory, as far as the start is known")
    ]


# --- hand-made ones: what the model must predict ----------------------------------------------------------------------


@pytest.mark.slow
def test_segments_taken_and_given_back_are_predicted(tmp_path: Path) -> None:
    """5 + 5 MiB share a segment of 20; 12 MiB has its own, which empty_cache() gives back while the other is in use."""
    seg, own, later = 0x7F0000000000, 0x7F0040000000, 0x7F0002000000
    trace = snapshot(
        tmp_path,
        [(seg, 20 * MIB, [used(seg, 5 * MIB), used(seg + 5 * MIB, 5 * MIB)]), (later, 14 * MIB, [used(later, 13 * MIB)])],
        [
            ("segment_alloc", seg, 20 * MIB), ("alloc", seg, 5 * MIB), ("alloc", seg + 5 * MIB, 5 * MIB),
            ("segment_alloc", own, 12 * MIB), ("alloc", own, 12 * MIB),
            ("free_requested", own, 12 * MIB), ("free_completed", own, 12 * MIB),
            ("segment_free", own, 12 * MIB), ("segment_alloc", later, 14 * MIB), ("alloc", later, 13 * MIB),
        ],
    )  # fmt: skip
    found = exactness(trace)
    assert (found.placed, found.allocs, found.predicted, found.segment_events) == (4, 4, 4, 4)
    assert found.misses == [] and found.text.endswith("predicts 4 of 4 segment events (PyTorch 2.11 or 2.13 order).")


def test_a_segment_that_the_model_does_not_take_is_a_miss_and_so_is_one_that_it_alone_takes(tmp_path: Path) -> None:
    """8 MiB fit behind 5 MiB in the segment of 20: this recording has another segment for them, with 12 MiB behind."""
    seg, other = 0, 64 * MIB
    trace = snapshot(
        tmp_path,
        [(seg, 20 * MIB, [used(seg, 5 * MIB)]), (other, 20 * MIB, [used(other, 8 * MIB), used(other + 8 * MIB, 12 * MIB)])],
        [
            ("segment_alloc", seg, 20 * MIB), ("alloc", seg, 5 * MIB),
            ("segment_alloc", other, 20 * MIB), ("alloc", other, 8 * MIB), ("alloc", other + 8 * MIB, 12 * MIB),
        ],
    )  # fmt: skip
    found = exactness(trace)
    assert (found.placed, found.allocs, found.predicted, found.segment_events, found.invented) == (1, 3, 1, 2, 1)
    first, second, third, fourth = found.misses
    assert (first.what, first.recorded, first.model, first.why) == (
        "segment_alloc", other, -1, "the model has a free block for it"
    )  # fmt: skip
    assert (second.what, second.recorded, second.model) == ("alloc", other, 5 * MIB)
    assert (third.what, third.recorded, third.bytes) == ("segment_alloc", -1, 12 * MIB)
    assert (fourth.what, fourth.event) == ("alloc", 4) and fourth.why == f"the heaps differ since event {first.event:,}"
    assert "1 of 2 segment events, and makes 1 that were not recorded" in found.text


@pytest.mark.parametrize(("taken", "release"), [(0, "2.11"), (64 * MIB, "2.13")])
def test_the_release_is_told_by_which_of_two_equal_blocks_was_taken(tmp_path: Path, taken: int, release: str) -> None:
    """Two free segments of 12 MiB: the older one has the higher address."""
    high, size = 64 * MIB, 12 * MIB
    trace = snapshot(
        tmp_path,
        [(at, size, [used(at, size)] if at == taken else []) for at in (0, high)],
        [
            ("segment_alloc", high, size), ("alloc", high, size), ("segment_alloc", 0, size), ("alloc", 0, size),
            ("free_completed", high, size), ("free_completed", 0, size), ("alloc", taken, size),
        ],
    )  # fmt: skip
    found = exactness(trace)
    assert (found.placed, found.predicted, found.alike) == (3, 2, (release,))
    assert f"(PyTorch {release} order)" in found.text


def test_a_block_that_another_stream_still_uses_separates_its_neighbours(tmp_path: Path) -> None:
    """A is freed before B is asked for, yet B goes behind it: A's memory comes back only before C."""
    a, size = 0, 5 * MIB
    trace = snapshot(
        tmp_path,
        [(a, 20 * MIB, [used(a, size), used(a + size, size)])],
        [
            ("segment_alloc", a, 20 * MIB), ("alloc", a, size), ("free_requested", a, size), ("alloc", a + size, size),
            ("free_completed", a, size), ("alloc", a, size),
        ],
    )  # fmt: skip
    found = exactness(trace)
    assert (found.placed, found.allocs, found.predicted) == (3, 3, 1)
    assert trace.meta["free_requested"] == [[0, 2]]  # A, before the event that is B's alloc


# --- the heap at the start --------------------------------------------------------------------------------------------


def test_a_gap_of_at_most_1_mib_belongs_to_the_block_before_on_the_large_side_alone() -> None:
    blocks = [start.StartBlock(0, 0, 3 * MIB - 100), start.StartBlock(1, 4 * MIB, 2 * MIB)]
    assert start.Segment(0, 20 * MIB, 0, blocks).sizes({}, {}) == [4 * MIB, 2 * MIB]
    assert start.Segment(0, 20 * MIB, 0, blocks).sizes({}, {1: 3 * MIB}) == [4 * MIB, 3 * MIB]
    small = [start.StartBlock(0, 0, 100), start.StartBlock(1, 1024, 100)]
    assert start.Segment(0, 2 * MIB, 0, small, small=True).sizes({}, {}) == [512, 512]
    assert start.Segment(0, 20 * MIB, 0, blocks, mapped=True).sizes({}, {}) == [3 * MIB, 2 * MIB]


@pytest.mark.parametrize(("offset", "settled"), [(3 * MIB, 0), (3 * MIB + 512 * 1024, 1), (4 * MIB, 1)])
def test_an_ambiguous_gap_is_settled_by_the_allocation_that_begins_in_it(tmp_path: Path, offset: int, settled: int) -> None:
    """3 MiB were requested, 4.5 MiB follow up to the next block: how much of them the first one has, shows only later."""
    kept = 7 * MIB + 512 * 1024
    trace = snapshot(
        tmp_path,
        [(0, 20 * MIB, [used(offset, 2 * MIB), used(kept, 20 * MIB - kept)])],
        [("alloc", offset, 2 * MIB), ("free_completed", 0, 3 * MIB)],
    )
    found = exactness(trace)
    assert (found.placed, found.allocs, found.settled, found.misses) == (1, 1, settled, [])


def test_which_of_two_equal_segments_at_the_start_is_older_shows_later(tmp_path: Path) -> None:
    """Both are free: up to 2.11 the one at the lower address would have been taken, so this is no recording of that."""
    high, size = 64 * MIB, 12 * MIB
    trace = snapshot(tmp_path, [(0, size, []), (high, size, [used(high, size)])], [("alloc", high, size)])
    found = exactness(trace)
    assert (found.placed, found.settled, found.alike) == (1, 1, ("2.13",))
    assert "(PyTorch 2.13 order; sizes and ages at the start that only later events tell: 1)" in found.text


@pytest.mark.slow
@pytest.mark.parametrize("release", ["2.11", "2.13"])
def test_the_end_of_a_recording_is_repeated_wherever_its_beginning_is_lost(release: str) -> None:
    """The model writes recordings of random programs; a part of the beginning is cut off, with all that is known of it."""
    settled = 0
    for seed in range(20):
        blocks, segments, events = recorded_by_the_model(seed, release)
        cut = seed * len(events) // 27
        cut += next(i for i, event in enumerate(events[cut:]) if event.action == "free_requested")
        late = state.Snapshot(blocks=blocks, segments=segments, events=events[cut:])
        found = exactness(to_trace(late, TraceBuilder("late"), {"format": "pytorch"}))
        assert (found.misses, found.placed > 100) == ([], True), seed
        settled += found.settled
    assert settled > 0


def recorded_by_the_model(
    seed: int, release: str
) -> tuple[dict[int, state.RecordedBlock], dict[int, RecordedSegment], list[state.Event]]:  # fmt: skip
    """Final blocks and segments, and all events, of 600 allocations of 256 bytes to 32 MiB."""
    rng, count = random.Random(seed), 600
    policy = registry.get("place", {"name": "pytorch", "params": {"release": release}})
    S = events_of.listen(policy.state(1 << 36, count, count, policy.params), 1 << 12)
    sizes = [int(2 ** rng.uniform(8, 25)) for _ in range(30)]
    live: dict[int, tuple[int, int]] = {}
    heard, segments = [], {}
    for unit in range(count):
        for _ in range(2):
            if live and rng.random() < 0.45:
                gone = rng.choice(list(live))
                policy.free(S, gone, 0)
                heard += events_of.heard(S)
                del live[gone]
        if rng.random() < 0.01:
            policy.release(S, 0)
            heard += events_of.heard(S)
        size = rng.choice(sizes) if rng.random() < 0.8 else int(2 ** rng.uniform(8, 25))
        live[unit] = policy.alloc(S, unit, size, 0), size
        heard += events_of.heard(S)
    for action, addr, size, _ in heard:
        if action == "segment_alloc":
            segments[addr] = RecordedSegment(size)
        elif action == "segment_free":
            del segments[addr]
    blocks = {addr: state.RecordedBlock(size) for addr, size in live.values()}
    return blocks, segments, [state.Event(action, addr, size) for action, addr, size, _ in heard]


def test_no_block_is_more_than_1_mib_larger_than_its_request(tmp_path: Path) -> None:
    trace = snapshot(
        tmp_path,
        [(0, 20 * MIB, [used(5 * MIB, 2 * MIB), used(9 * MIB, 11 * MIB)])],
        [("alloc", 5 * MIB, 2 * MIB), ("free_completed", 0, 3 * MIB)],
    )
    found = exactness(trace)
    assert (found.placed, found.settled) == (0, 0) and found.misses[0].model == 3 * MIB


def test_the_size_of_a_block_that_is_there_at_the_end_is_told(tmp_path: Path) -> None:
    """3 MiB in a block of 5: so it is, whatever one knows of rounding."""
    blocks = [used(0, 5 * MIB, 3 * MIB), used(5 * MIB, 2 * MIB), used(9 * MIB, 11 * MIB)]
    found = exactness(snapshot(tmp_path, [(0, 20 * MIB, blocks)], [("alloc", 5 * MIB, 2 * MIB)]))
    assert (found.placed, found.settled, found.misses) == (1, 0, [])


def test_the_heap_at_the_start_is_rebuilt_on_both_sides(tmp_path: Path) -> None:
    """A small segment with a hole of 1.5 MiB, large ones with holes of 10, 20 and 7 MiB, one of an odd size that was set."""
    one, two, odd = 4 * MIB, 64 * MIB, 128 * MIB
    trace = snapshot(
        tmp_path,
        [
            (0, 2 * MIB, [used(0, 512), used(512, MIB // 4), used(3 * MIB // 2, MIB // 2)]),
            (one, 32 * MIB, [used(one + 10 * MIB, 2 * MIB), used(one + 12 * MIB, 20 * MIB)]),
            (two, 20 * MIB, [used(two, 9 * MIB), used(two + 9 * MIB, 3 * MIB), used(two + 16 * MIB, 4 * MIB)]),
        ],
        [
            ("alloc", 512, MIB // 4), ("alloc", two + 9 * MIB, 3 * MIB), ("alloc", one + 12 * MIB, 20 * MIB),
            ("segment_free", odd, 13 * MIB),
        ],
    )  # fmt: skip
    found = exactness(trace)
    assert (found.placed, found.allocs, found.predicted, found.segment_events, found.misses) == (3, 3, 1, 1, [])


def test_requests_are_rounded_as_the_model_does() -> None:
    """Expandable segments give exactly the rounded size."""
    conf = "roundup_power2_divisions:[2:8,16:4,>:2],expandable_segments:True"
    policy = registry.get("place", {"name": "pytorch", "params": {"conf": conf}})
    parts = start.divisions(rules.commands(conf))
    rng = np.random.default_rng(5)
    S = policy.state(1 << 40, 300, 300, policy.params)
    for unit, size in enumerate((2.0 ** rng.uniform(0, 30, 300)).astype(np.int64).tolist()):
        assert policy.alloc(S, unit, size, 0) >= 0
        assert start.rounded(size, parts) == S[BLOCK], size


# --- nothing to say ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nothing_is_said_of_what_cannot_be_repeated(tmp_path: Path) -> None:
    step = load_trace(TRACES / "gpt2-small-train.npz")
    assert how_exact(step) is None and in_words(step) == ""
    segments = [(0, 20 * MIB, [used(0, 5 * MIB)])]
    events = [("segment_alloc", 0, 20 * MIB), ("alloc", 0, 5 * MIB)]
    assert exactness(snapshot(tmp_path, segments, events)).placed == 1
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    expandable = snapshot(tmp_path, segments, [("segment_map", 0, 20 * MIB), events[1]], allocator_settings=settings)
    assert exactness(expandable).placed == exactness(expandable).predicted == 1
    assert how_exact(snapshot(tmp_path, segments, [])) is None  # no allocation was recorded
    last = [("alloc", 18 * MIB, 2 * MIB)]
    for damaged in (
        [(0, 20 * MIB, [used(0, 5 * MIB), used(4 * MIB, 6 * MIB)])],  # blocks overlap
        [(0, 20 * MIB, []), (18 * MIB, 20 * MIB, [])],  # segments overlap
        [(0, 20 * MIB, [used(0, 2**55)])],
        [(0, 20 * MIB, [used(30 * MIB, 512)])],
        [(4096, 20 * MIB, [])],  # no page of a device begins there
        [(0, 20 * MIB + 1, [])],
    ):
        assert how_exact(snapshot(tmp_path, damaged, last)) is None
    sound = [(0, 20 * MIB, [used(0, 18 * MIB), used(18 * MIB, 2 * MIB)])]
    assert exactness(snapshot(tmp_path, sound, last)).placed == 1

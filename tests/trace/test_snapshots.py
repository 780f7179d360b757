"""Do PyTorch memory snapshots become the trace that the allocator saw, and can a hostile one do any harm?"""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import TraceError
from gpusim.programs.recordings import import_trace
from gpusim.trace.importers import pickle_scan
from gpusim.trace.stats import live_bytes
from gpusim.trace.trace import ALLOC, FREE, OOM, SEGMENT_ALLOC, SEGMENT_FREE, Trace

DATA = Path(__file__).parents[1] / "data" / "traces"
MIB = 2**20


def event(action: str, addr: int, size: int, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "frames": [], **more}


def segment(addr: int, size: int, *blocks: tuple[int, int, str], device: int = 0) -> dict[str, Any]:
    return {
        "device": device, "address": addr, "total_size": size, "stream": 0, "segment_type": "large",
        "blocks": [{"address": a, "size": s, "requested_size": s, "state": state} for a, s, state in blocks],
    }  # fmt: skip


def imported(tmp_path: Path, segments: list[Any], *traces: list[Any], **options: Any) -> Trace:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": list(traces)}))
    return import_trace(path, **options)


def test_the_state_at_the_start_is_found_by_walking_back(tmp_path: Path) -> None:
    # Before: segment 0x1000 with A (0x1000, 300) and B (0x2000, 400), and segment 0x900000, empty.
    # Events: free B, alloc C at 0x2000, segment 0x900000 leaves, segment 0x500000 comes, alloc D in it, snapshot ends.
    trace = imported(
        tmp_path,
        [
            segment(0x1000, 2 * MIB, (0x1000, 512, "active_allocated"), (0x2000, 1024, "active_allocated")),
            segment(0x500000, 4 * MIB, (0x500000, 2048, "active_pending_free"), (0x501000, 512, "inactive")),
        ],
        [
            event("free_requested", 0x2000, 400, time_us=1000),
            event("free_completed", 0x2000, 400, time_us=1001),
            event("alloc", 0x2000, 1000, time_us=1003),
            event("segment_free", 0x900000, 2 * MIB, time_us=1002),
            event("segment_alloc", 0x500000, 4 * MIB, time_us=1004),
            event("alloc", 0x500000, 2000, time_us=1005),
            {**event("oom", 0, 9999, time_us=1006), "device_free": 777},
        ],
    )
    assert trace.size.tolist() == [512, 400, 1000, 2000]
    assert trace.kind.tolist() == [
        SEGMENT_ALLOC, SEGMENT_ALLOC, ALLOC, ALLOC, FREE, ALLOC, SEGMENT_FREE, SEGMENT_ALLOC, ALLOC, OOM,
    ]  # fmt: skip
    assert trace.arg.tolist() == [-1, -1, 0, 1, 1, 2, -1, -1, 3, -1]
    assert trace.addr.tolist() == [0x1000, 0x900000, 0x1000, 0x2000, 0x2000, 0x2000, 0x900000, 0x500000, 0x500000, 777]
    assert trace.bytes.tolist() == [2 * MIB, 2 * MIB, 512, 400, 0, 1000, 2 * MIB, 4 * MIB, 2000, 9999]
    assert trace.time.tolist() == [-1, -1, -1, -1, 1000, 3000, 3000, 4000, 5000, 6000]  # the step back is held
    assert trace.meta["start"] == {"tensors": 2, "bytes": 912, "segments": 2} and trace.meta["times_out_of_order"] == 1
    assert "begins with 2 tensors in use" in trace.meta["warnings"][0]


def test_a_recording_from_the_beginning_needs_no_warning(tmp_path: Path) -> None:
    trace = imported(tmp_path, [segment(0, MIB)], [event("segment_alloc", 0, MIB), event("alloc", 0, 7)])
    assert trace.meta["warnings"] == ["1 events contradict the final state (1 alloc)"]
    used = segment(0, MIB, (0, 512, "active_allocated"))
    trace = imported(tmp_path, [used], [event("segment_alloc", 0, MIB), event("alloc", 0, 7)])
    assert trace.meta["warnings"] == [] and trace.size.tolist() == [7] and "times" in trace.meta["lacks"]


def test_annotations_are_passed_over(tmp_path: Path) -> None:
    used = [segment(0, MIB, (0, 512, "active_allocated"))]
    trace = imported(tmp_path, used, [{"action": "annotate", "user_metadata": "x"}, event("alloc", 0, 7)])
    assert trace.size.tolist() == [7]


def test_old_files_without_block_addresses_and_with_only_requested_frees(tmp_path: Path) -> None:
    old = segment(0x1000, MIB, (0, 512, "active_allocated"), (0, 1024, "active_allocated"))
    for block in old["blocks"]:
        del block["address"]
    trace = imported(tmp_path, [old], [event("alloc", 0x1000, 5), event("free_requested", 0x3000, 9)])
    assert trace.addr[trace.kind == ALLOC].tolist() == [0x1200, 0x3000, 0x1000]
    assert (trace.kind == FREE).sum() == 1 and trace.meta["filled"]["free"] == "a tensor ends at its free_requested"


def test_old_files_that_lack_fields(tmp_path: Path) -> None:
    """Of the earliest format: no addresses, streams, requested sizes or devices, and no recorded events at all."""
    old = {"address": 0x1000, "total_size": MIB, "blocks": [{"size": 512, "state": "inactive"}]}
    old["blocks"] += [{"size": 1024, "state": "active_allocated"}]
    path = tmp_path / "old.pickle"
    path.write_bytes(pickle.dumps({"segments": [old]}))
    trace = import_trace(path)
    assert trace.kind.tolist() == [SEGMENT_ALLOC, ALLOC] and trace.addr.tolist() == [0x1000, 0x1200]
    assert trace.size.tolist() == [1024] and trace.stream.tolist() == [0, 0]
    assert trace.meta["warnings"] == ["the snapshot holds no events, only its final state"]


def test_events_without_times_are_in_order_all_the_same(tmp_path: Path) -> None:
    used = segment(0, MIB, (0, 512, "active_allocated"))
    trace = imported(tmp_path, [used], [event("alloc", 512, 7), event("free_completed", 512, 7), event("alloc", 0, 7)])
    assert set(trace.time.tolist()) == {-1} and "times" in trace.meta["lacks"]
    some = [event("alloc", 512, 7, time_us=5), event("free_completed", 512, 7), event("alloc", 0, 7, time_us=8)]
    assert imported(tmp_path, [used], some).time.tolist() == [-1, 0, -1, 3000]


def test_a_free_that_was_requested_earlier_keeps_both_times(tmp_path: Path) -> None:
    # A (0) is freed while another stream uses it, B (512) is made and freed at once, then A's free is complete.
    events = [
        event("alloc", 0, 5, time_us=1), event("free_requested", 0, 5, time_us=2), event("alloc", 512, 6, time_us=3),
        event("free_requested", 512, 6, time_us=4), event("free_completed", 512, 6, time_us=4),
        event("free_completed", 0, 5, time_us=9),
    ]  # fmt: skip
    trace = imported(tmp_path, [segment(0, MIB)], events)
    assert trace.kind.tolist() == [SEGMENT_ALLOC, ALLOC, ALLOC, FREE, FREE] and trace.arg.tolist() == [-1, 0, 1, 1, 0]
    assert trace.meta["free_requested"] == [[0, 2]]  # A's, before the event that makes B
    assert "free_requested" not in imported(tmp_path, [segment(0, MIB)], [*events[:2], events[5]]).meta


@pytest.mark.parametrize("state", ["active_pending_free", "active_awaiting_free"])
def test_what_is_freed_and_still_used_at_the_end_is_in_use(tmp_path: Path, state: str) -> None:
    waits = segment(0, MIB, (0, 512, state))
    ends = [event("alloc", 0, 5), event("free_requested", 0, 5)]
    before = [event("alloc", 512, 6), event("free_requested", 512, 6)]
    for events in (ends, [*before, event("free_completed", 512, 6), *ends], [*before, *ends]):
        trace = imported(tmp_path, [waits], events)
        assert (trace.kind == FREE).sum() == (len(events) > 2)  # of the one at 512 alone
        assert trace.meta["start"]["tensors"] == 0
        assert trace.meta["warnings"] == ["1 tensors are freed at the end, but still used on other streams: they stay in use"]


def test_a_free_without_its_allocation_is_taken_as_of_the_start_and_a_second_one_is_refused(tmp_path: Path) -> None:
    events = [event("free_completed", 0, 5)]
    trace = imported(tmp_path, [segment(0, MIB)], events)
    assert trace.kind.tolist() == [SEGMENT_ALLOC, ALLOC, FREE] and "begins with 1 tensors" in trace.meta["warnings"][0]
    with pytest.raises(TraceError, match="event 1 frees address 0x0, which is not in use"):
        imported(tmp_path, [segment(0, MIB)], events * 2)


def test_expandable_segments_are_rewound_piece_by_piece(tmp_path: Path) -> None:
    trace = imported(
        tmp_path,
        [segment(0, 60 * MIB, (0, 512, "active_allocated"))],
        [event("segment_map", 20 * MIB, 20 * MIB), event("alloc", 0, 512)],
    )
    starts = trace.kind == SEGMENT_ALLOC
    assert trace.addr[starts].tolist() == [0, 40 * MIB, 20 * MIB] and set(trace.bytes[starts].tolist()) == {20 * MIB}


def test_one_of_several_devices_must_be_chosen(tmp_path: Path) -> None:
    both = [segment(0, MIB, (0, 512, "active_allocated")), segment(0, MIB, (0, 1024, "active_allocated"), device=1)]
    with pytest.raises(TraceError, match=r"holds 2 devices: 0, 1 \(choose one, as device=0 or --device 0\)"):
        imported(tmp_path, both)
    trace = imported(tmp_path, both, [], [event("free_completed", 512, 3)], device=1)
    assert trace.size.tolist() == [1024, 3] and trace.meta["device"] == 1
    with pytest.raises(TraceError, match="nothing of device 2"):
        imported(tmp_path, both, device=2)


def test_frames_name_the_category(tmp_path: Path) -> None:
    frames = [
        {"name": "gather", "filename": "x.cpp", "line": 1},
        {"name": "linear", "filename": "/site/torch/nn/functional.py", "line": 2},
        {"name": "forward", "filename": "/home/model.py", "line": 3},
    ]
    used = [segment(0, MIB, (0, 512, "active_allocated"))]
    trace = imported(tmp_path, used, [event("alloc", 0, 7, frames=frames)])
    assert trace.categories == ("model.py:forward",)
    assert imported(tmp_path, used, [event("alloc", 0, 7, frames=frames)], frames=False).categories == ("unknown",)


@pytest.mark.slow
def test_a_real_snapshot_from_pickle_and_from_csv_is_the_same() -> None:
    a = import_trace(DATA / "medium_512_inference.snapshot.pickle.gz", frames=False)
    b = import_trace(DATA / "medium_512_inference.snapshot.csv.gz")
    for column in ("size", "kind", "arg", "stream", "bytes", "time"):
        assert np.array_equal(getattr(a, column), getattr(b, column)), column
    known = a.addr >= 0
    assert len(np.unique((a.addr - b.addr)[known])) == 1  # the CSV's addresses are relative
    assert (a.kind == ALLOC).sum() == 223 + 1666 and (a.kind == FREE).sum() == 1666 and (a.kind == SEGMENT_ALLOC).sum() == 101


@pytest.mark.slow
def test_the_live_bytes_of_a_real_snapshot_end_where_its_final_blocks_do() -> None:
    trace = import_trace(DATA / "medium_512_inference.snapshot.pickle.gz")
    live = live_bytes(trace, trace.size)
    assert live[-1] == trace.meta["start"]["bytes"] == 1_701_482_496  # what it allocates it frees
    assert live.max() == 1_949_343_744


# --- hostile files ---


def refused(tmp_path: Path, data: bytes, *words: str) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(data)
    with pytest.raises(TraceError) as error:
        import_trace(path, format="pytorch")
    said = str(error.value)
    assert said.startswith(str(path)) and "\n" not in said
    for word in words:
        assert word in said, said


class Runs:
    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_a_command_runs_nothing(tmp_path: Path, protocol: int) -> None:
    ran = tmp_path / "ran"
    for payload in (Runs(ran), {"segments": [Runs(ran)], "device_traces": []}):
        refused(tmp_path, pickle.dumps(payload, protocol=protocol))
    assert not ran.exists()
    pickle.loads(pickle.dumps(Runs(ran)))  # the payload is a live one
    assert ran.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        b"\x80\x02}(U\x01aios\nsystem\n.",
        b"\x80\x04Pid\n.",
        b"\x80\x02\x82\x01.",
    ],
)
def test_every_opcode_that_reaches_code_is_refused(tmp_path: Path, data: bytes) -> None:
    refused(tmp_path, data)


def test_pickles_that_would_fill_the_memory_are_refused(tmp_path: Path) -> None:
    huge = struct.pack("<I", 2**31)
    refused(tmp_path, b"\x80\x04]r" + huge + b".", "bad memo")  # a memo of 2^31 entries
    refused(tmp_path, b"\x80\x04X" + huge + b"abc.", "cut short")  # a string of 2 GiB
    refused(tmp_path, b"\x80\x04\x8d" + b"\xff" * 8 + b"abc.", "cut short")
    refused(tmp_path, b"\x80\x04" + b"(" * 1000 + b".", "nested too deeply")


def test_text_is_never_made_of_nested_lists(tmp_path: Path) -> None:
    bomb: list[Any] = []
    for _ in range(60):
        bomb = [bomb, bomb]  # its text would have 2^60 brackets, its pickle has 60 lists
    frames = [{"name": bomb, "filename": "x.py", "line": bomb}]
    used = segment(0, MIB, (0, 512, "active_allocated"))
    trace = imported(tmp_path, [used], [event("alloc", 0, 7, frames=frames)])
    assert trace.categories == ("x.py:",)
    for key in ("action", "addr", "size", "time_us"):
        with pytest.raises(TraceError, match=f"'{key}' is not"):
            imported(tmp_path, [used], [event("alloc", 0, 7) | {key: bomb}])
    with pytest.raises(TraceError, match="'state' is not str"):
        imported(tmp_path, [segment(0, MIB, (0, 512, bomb))], [])  # type: ignore[arg-type]


def test_too_many_objects_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_scan, "MAX_CONTAINERS", 100)
    refused(tmp_path, pickle.dumps([[i, [i]] for i in range(100)]), "too many objects")


@pytest.mark.slow
def test_every_truncation_of_a_snapshot_is_refused(tmp_path: Path) -> None:
    data = pickle.dumps({"segments": [segment(0, MIB, (0, 512, "active_allocated"))], "device_traces": [[]]})
    for length in range(1, len(data)):
        refused(tmp_path, data[:length])


@pytest.mark.slow
def test_any_flipped_byte_is_refused_or_read(tmp_path: Path) -> None:
    data = pickle.dumps(
        {"segments": [segment(0, MIB, (0, 512, "active_allocated"))], "device_traces": [[event("alloc", 0, 5)]]}
    )
    path = tmp_path / "snapshot.pickle"
    for at in range(len(data)):
        for flip in (0x01, 0x55, 0xFF):
            path.write_bytes(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])
            try:
                import_trace(path, format="pytorch")
            except TraceError as error:
                assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ([], ["no list of segments"]),
        ({"segments": {}}, ["no list of segments"]),
        ({"segments": [], "device_traces": 5}, ["device_traces are damaged"]),
        ({"segments": [], "device_traces": []}, ["no event and no block"]),
        ({"segments": [5]}, ["'device' is not int"]),
        ({"segments": [segment(0, MIB)], "device_traces": [["x"]]}, ["'action' is not str"]),
        ({"segments": [], "device_traces": [[event("alloc", 0, -5)]]}, ["size -5 is negative"]),
        ({"segments": [], "device_traces": [[event("alloc", 0, 2**70)]]}, ["overflows 64 bits"]),
        ({"segments": [], "device_traces": [[event("alloc", 2**70, 5)]]}, ["does not fit 64 bits"]),
        ({"segments": [], "device_traces": [[event("alloc", 0, 5), event("alloc", 0, 5)]]}, ["event 1 allocates address 0x0"]),
    ],
)  # fmt: skip
def test_snapshots_that_make_no_sense_are_refused(tmp_path: Path, root: Any, words: list[str]) -> None:
    refused(tmp_path, pickle.dumps(root), *words)


def test_the_walk_says_the_same_interpreted() -> None:
    walk = getattr(pickle_scan._walk, "py_func", pickle_scan._walk)
    limits = np.array([1000, 1000, 64], np.int64)
    for data in (
        pickle.dumps({"a": [1, 2.5, "x" * 300, None, True, (1, 2)]}),
        b"\x80\x04cos\n",
        b"\x80\x04]" * 600,
        b"",
    ):
        raw = np.frombuffer(data, np.uint8)
        assert walk(raw, pickle_scan._ARGUMENT, limits) == pickle_scan._walk(raw, pickle_scan._ARGUMENT, limits)

"""Is the program as it ran the one that other settings are compared with, and is there no advice where it is not?"""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oom_snapshots import GIB, MIB, Expandable, map_and_unmap, three_gpus
from oracle_snapshots import CONFS, held_under, recorded, save, snapshot, training
from pytorch_oracle import Oracle

from gpusim.base.errors import TraceError
from gpusim.policies.place.parts.pytorch import counting
from gpusim.programs.recordings import import_trace
from gpusim.studies.fragmentation.baseline import Baseline, baseline, under
from gpusim.studies.fragmentation.candidates import Candidate, default, pytorch
from gpusim.studies.fragmentation.recorded import held
from gpusim.studies.fragmentation.repeat import repeat
from gpusim.studies.fragmentation.snapshot import read
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace, save_trace
from gpusim.trace.trace import Trace

TRACES = Path(__file__).parents[2] / "traces"
SHARED = Path(__file__).parents[2] / "shared" / "data" / "traces" / "public" / "pytorch_snapshots"
BINARIES = [Path.home() / ".cache" / "torch_oracle" / release / "torch_oracle" for release in ("2.13.0", "2.15.0")]

Event = tuple[str, int, int]  # action, address (of an oom: what the device has left), bytes
Final = tuple[int, int, Sequence[tuple[int, int]]]  # a segment: address, bytes, its blocks in use as (address, bytes)


def trace_of(tmp_path: Path, data: dict[str, Any], device: int | None = None) -> Trace:
    return import_trace(save(data, tmp_path / "snapshot.pickle"), device=device)


def plain(segments: Sequence[Final], events: Sequence[Event], conf: str = "") -> dict[str, Any]:
    """A snapshot on the default stream."""
    return {
        "segments": [
            {"address": addr, "total_size": size, "stream": 0, "blocks": [
                {"address": a, "size": s, "requested_size": s, "state": "active_allocated"} for a, s in blocks
            ]}
            for addr, size, blocks in segments
        ],
        "device_traces": [[
            {"action": what, "size": size, "stream": 0, "device_free" if what == "oom" else "addr": at}
            for what, at, size in events
        ]],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": conf},
    }  # fmt: skip


def use(addr: int, size: int, times: int = 1) -> list[Event]:
    return [("alloc", addr, size), ("free_requested", addr, size), ("free_completed", addr, size)] * times


# --- what was mapped --------------------------------------------------------------------------------------------------


def test_an_unmapping_that_is_undone_joins_what_it_cut_off(tmp_path: Path) -> None:
    """100 MiB mapped, 80 of them unmapped: 100 were held at most, not 200."""
    trace = trace_of(tmp_path, map_and_unmap())
    assert trace.meta["start"] == {"tensors": 0, "bytes": 0, "segments": 0}
    assert (held(trace) // MIB).tolist() == [20, 20, 100, 100, 100, 20, 20]
    assert baseline(trace).exact


@pytest.mark.slow
@pytest.mark.parametrize("kept", [60, 12, 10**6])
def test_what_no_allocator_can_serve_fails_under_every_setting(tmp_path: Path, kept: int) -> None:
    """Three GPUs: 78.29 GiB live of 78.42 mapped, 0.09 free, a request of 4.94; the ring buffer keeps all or little."""
    data = three_gpus(kept)
    for device in range(3):
        trace = trace_of(tmp_path, data, device)
        found = baseline(trace)
        assert (found.exact, found.reason, found.assumed, found.error) == (True, "", "", 0)
        final = held(trace)[-1]
        assert (round(final / GIB, 2), round((found.capacity - final) / GIB, 2)) == (78.42, 0.09)
        assert found.replay.counts["refused"] == 1 and round(found.replay.counts["refused_bytes"] / GIB, 2) == 4.94
        for candidate in default(trace):
            assert not under(found, candidate).fits, candidate


# --- what the program did -----------------------------------------------------------------------------------------------


def cached_before(tmp_path: Path, cached: int = 24) -> Baseline:
    """The recording begins with 36 segments of 100 MiB in use a little, and others empty: what came before used them."""
    step = 256 * MIB
    segments = [(i * step, 100 * MIB, [(i * step, 100 * MIB)] if i < 4 else []) for i in range(4 + cached)]
    return baseline(trace_of(tmp_path, plain(segments, use(4 * step, 100 * MIB, 3))))


@pytest.mark.slow
def test_forgetting_what_was_cached_is_no_saving(tmp_path: Path) -> None:
    found = cached_before(tmp_path)
    assert found.exact and found.late
    assert (found.replay.held_peak, found.bare.held_peak) == (2800 * MIB, 500 * MIB)
    for conf in ("", "expandable_segments:True", "max_split_size_mb:128"):
        other = under(found, pytorch(conf))
        assert other.held == (500 * MIB, 2800 * MIB) and other.saving == (0, 0)


def test_another_allocator_is_compared_from_what_was_in_use_alone(tmp_path: Path) -> None:
    found = cached_before(tmp_path)
    other = under(found, Candidate("best_fit"))
    assert other.high is other.low and other.held == (500 * MIB, 500 * MIB) and other.saving == (0, 0)


def emptied() -> list[Event]:
    """Two phases with segments of their own, the cache emptied between; the first three times."""
    events: list[Event] = []
    for _ in range(3):
        events += [("segment_alloc", 0, 500 * MIB), *use(0, 500 * MIB, 2), ("segment_free", 0, 500 * MIB)]
        events += [("segment_alloc", 0, 600 * MIB), *use(0, 600 * MIB, 2), ("segment_free", 0, 600 * MIB)]
    return events


def test_the_programs_empty_cache_is_replayed_under_every_setting(tmp_path: Path) -> None:
    found = baseline(trace_of(tmp_path, plain([], emptied())))
    assert found.exact and found.replay.held_peak == 600 * MIB  # without them it would be 1100
    assert found.replay.counts["device_frees"] == 6
    assert under(found, pytorch("max_split_size_mb:64")).held == (600 * MIB, 600 * MIB)
    assert under(found, pytorch("expandable_segments:True")).held == (600 * MIB, 600 * MIB)


def test_what_a_full_device_made_the_allocator_give_back_is_no_empty_cache(tmp_path: Path) -> None:
    """1000 MiB: 500 of the cache go for 600, as the capacity tells; with pages in pieces nothing has to."""
    base, other = 0, 1024 * MIB
    events: list[Event] = [
        ("segment_alloc", base, 500 * MIB), *use(base, 500 * MIB), ("segment_free", base, 500 * MIB),
        ("segment_alloc", other, 600 * MIB), ("alloc", other, 600 * MIB), ("oom", 400 * MIB, 500 * MIB),
    ]  # fmt: skip
    found = baseline(trace_of(tmp_path, plain([(other, 600 * MIB, [(other, 600 * MIB)])], events)))
    assert found.exact and found.capacity == 1000 * MIB
    assert found.replay.program.rows()["kind"].tolist() == [0, 1, 0, 0, 1]  # no release
    assert under(found, pytorch("expandable_segments:True")).low.counts["device_frees"] == 0


def stacked(events: Sequence[Event], frees: str, request: str) -> list[dict[str, Any]]:
    """The events with the stack of a function: segments that go were given back in `frees`."""
    made = plain([], events)["device_traces"][0]
    for event in made:
        name = frees if event["action"] == "segment_free" else request
        event["frames"] = [{"filename": "/home/train.py", "line": 7, "name": name}]
    return list(made)


@pytest.mark.parametrize(("frees", "reads"), [("step", [0, 1, 0]), ("empty_cache", [0, 1, 3, 0]), ("other", [0, 1, 3, 0])])
def test_stacks_tell_why_memory_was_given_back(tmp_path: Path, frees: str, reads: list[int]) -> None:
    """500 MiB go for 600: by the stack of the request for lack of room, otherwise by a call of the program."""
    other = 1024 * MIB
    events: list[Event] = [
        ("segment_alloc", 0, 500 * MIB), *use(0, 500 * MIB), ("segment_free", 0, 500 * MIB),
        ("segment_alloc", other, 600 * MIB), ("alloc", other, 600 * MIB),
    ]  # fmt: skip
    data = plain([(other, 600 * MIB, [(other, 600 * MIB)])], events)
    data["device_traces"] = [stacked(events, frees, "step")]
    found = baseline(trace_of(tmp_path, data))
    assert found.exact and found.replay.program.rows()["kind"].tolist() == reads  # alloc 0, free 1, release 3
    assert (found.capacity < 1100 * MIB) == (frees == "step")


def test_the_device_that_is_named_tells_what_made_room(tmp_path: Path) -> None:
    """Without an out of memory and without stacks, 1000 MiB explain what 500 + 600 MiB did."""
    other = 1024 * MIB
    events: list[Event] = [
        ("segment_alloc", 0, 500 * MIB), *use(0, 500 * MIB), ("segment_free", 0, 500 * MIB),
        ("segment_alloc", other, 600 * MIB), ("alloc", other, 600 * MIB),
    ]  # fmt: skip
    trace = trace_of(tmp_path, plain([(other, 600 * MIB, [(other, 600 * MIB)])], events))
    for capacity, reads in ((1000 * MIB, [0, 1, 0]), (2000 * MIB, [0, 1, 3, 0]), (None, [0, 1, 3, 0])):
        found = baseline(trace, capacity)
        assert found.exact and found.replay.program.rows()["kind"].tolist() == reads


def test_a_snapshot_that_tells_no_setting_is_said_to_assume_it(tmp_path: Path) -> None:
    data = plain([], emptied())
    del data["allocator_settings"]
    found = baseline(trace_of(tmp_path, data))
    assert found.exact and "default ones are taken for granted" in found.assumed
    one = Expandable(0)
    one.free(one.alloc(90 * MIB))
    data = {"segments": [one.segment()], "device_traces": [one.events]}
    found = baseline(trace_of(tmp_path, data))
    assert found.exact and found.own == pytorch("expandable_segments:True")


def test_settings_that_were_given_as_values_are_read(tmp_path: Path) -> None:
    data = plain([], emptied())
    parts = {str(1 << i): 4 if i > 2 else 0 for i in range(16)}
    data["allocator_settings"] = {
        "PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": 64 * MIB, "garbage_collection_threshold": 0.5,
        "expandable_segments": True, "roundup_power2_divisions": parts,
    }  # fmt: skip
    conf = trace_of(tmp_path, data).meta["alloc_conf"]
    assert conf.startswith("max_split_size_mb:64,garbage_collection_threshold:0.5,roundup_power2_divisions:[8:4,16:4,")
    assert conf.endswith("32768:4],expandable_segments:True")


# --- what cannot be repeated --------------------------------------------------------------------------------------------


def test_another_setting_than_the_recorded_one_is_not_exact(tmp_path: Path) -> None:
    """Told is the default; 5 MiB in a segment of 64 is large_segment_size_mb:64."""
    events = [("segment_alloc", 0, 64 * MIB), ("alloc", 0, 5 * MIB)]
    final = [(0, 64 * MIB, [(0, 5 * MIB)])]
    found = baseline(trace_of(tmp_path, plain(final, events)))
    assert not found.exact and found.error == 44 * MIB
    assert found.reason == (
        "The recorded setting (the default), replayed from the recorded start, does not give what was recorded: at event 1 the "
        "recorded allocator takes 64 MiB, the replay takes 20 MiB."
    )
    assert baseline(trace_of(tmp_path, plain(final, events, "large_segment_size_mb:64"))).exact


def test_pages_where_the_setting_takes_segments_are_a_difference(tmp_path: Path) -> None:
    """20 MiB by either way."""
    one = Expandable(0)
    one.alloc(5 * MIB)
    data = {"segments": [one.segment()], "device_traces": [one.events]}
    found = baseline(trace_of(tmp_path, data | {"allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}}))
    assert not found.exact and found.reason.endswith(
        "at event 1 the recorded allocator maps 20 MiB, the replay takes 20 MiB."
    )


def test_segments_that_no_device_gives_are_no_baseline(tmp_path: Path) -> None:
    events = [("segment_alloc", 4096, 20 * MIB), ("alloc", 4096, 5 * MIB)]
    found = baseline(trace_of(tmp_path, plain([(4096, 20 * MIB, [(4096, 5 * MIB)])], events)))
    assert not found.exact and found.reason.startswith("The recorded segments are none that PyTorch takes")


@pytest.mark.parametrize(
    ("conf", "said"), [("backend:cudaMallocAsync", "whose heap a snapshot does not tell"), ("no_such:1", "is not an option")]
)
def test_a_setting_that_the_model_does_not_know_is_said(tmp_path: Path, conf: str, said: str) -> None:
    found = baseline(trace_of(tmp_path, plain([], emptied(), conf)))
    assert not found.exact and said in found.reason and conf in found.reason


def test_a_failure_with_room_on_the_device_is_not_explained(tmp_path: Path) -> None:
    """A limit of the process that the recording does not tell."""
    events = [("segment_alloc", 0, 20 * MIB), ("alloc", 0, 5 * MIB), ("oom", 4 * GIB, 100 * MIB)]
    found = baseline(trace_of(tmp_path, plain([(0, 20 * MIB, [(0, 5 * MIB)])], events)))
    assert not found.exact and found.reason.endswith(
        "at event 2 a request of 100 MiB failed with 4 GiB free on the device, and the replay serves it."
    )


def test_a_final_state_alone_is_nothing_to_replay(tmp_path: Path) -> None:
    found = baseline(trace_of(tmp_path, plain([(0, 20 * MIB, [(0, 5 * MIB)])], [])))
    assert not found.exact and found.reason.startswith("The snapshot records no allocation")


def incomplete() -> dict[str, tuple[dict[str, Any], str]]:
    """Name -> (snapshot, what is said of it)."""
    seg, block = (0, 20 * MIB, [(0, 5 * MIB)]), ("alloc", 0, 5 * MIB)
    good: list[Event] = [("segment_alloc", 0, 20 * MIB), block]
    return {
        "history without segments": (plain([], use(0, 5 * MIB)), "it tells no segment, so what was held is not known"),
        "frees of unknown blocks": (
            plain([seg], [*good, ("free_completed", 1 << 40, 5 * MIB)]), "a block of 5242880 bytes lies at 0x10000000000"
        ),
        "an allocation that is not there at the end": (
            plain([(0, 20 * MIB, [])], good), "event 1 (alloc of 5242880 bytes at 0x0) makes a block that neither"
        ),
        "a segment that is not there at the end": (
            plain([seg], [("segment_alloc", 1 << 30, 20 * MIB), *good]), "event 0 (segment_alloc of 20971520 bytes"
        ),
        "a segment twice": (plain([seg], [("segment_free", 0, 20 * MIB), block]), "gives back memory that is held afterwards"),
        "a free that is still in use": (
            plain([seg], [block, ("free_completed", 0, 5 * MIB)]), "frees a block that is in use afterwards"
        ),
        "blocks without segments": (plain([(0, 512, [(0, 5 * MIB)])], []), "where no segment is"),
    }  # fmt: skip


@pytest.mark.parametrize("name", incomplete())
def test_a_snapshot_that_does_not_tell_all_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    data, said = incomplete()[name]
    trace = trace_of(tmp_path, data)
    assert said in trace.meta["incomplete"]
    with pytest.raises(TraceError, match="the snapshot does not tell all") as error:
        baseline(trace)
    assert said in str(error.value) and "max_entries" in str(error.value)


def test_a_history_whose_front_is_lost_is_complete_all_the_same(tmp_path: Path) -> None:
    data = plain([(0, 20 * MIB, [(0, 5 * MIB)])], use(5 * MIB, 2 * MIB, 4))
    trace = trace_of(tmp_path, data)
    assert "incomplete" not in trace.meta and baseline(trace).exact


# --- other recordings ---------------------------------------------------------------------------------------------------


def test_a_smaller_device_is_smaller_for_the_own_setting_too() -> None:
    trace = load_trace(TRACES / "gpt-medium-infer-snapshot.npz")
    small = baseline(trace, int(1.8 * GIB))
    assert small.exact and small.replay.held_peak == held(trace).max() > small.capacity
    own, same = small.compared[0], under(small, pytorch(""))
    assert not own.fits and same.low.counts["refused"] == own.counts["refused"] and same.saving == (0, 0)


def test_a_recording_without_addresses_assumes_the_default_from_an_empty_device() -> None:
    found = baseline(load_trace(TRACES / "gpt2-small-train.npz"))
    assert found.exact and not found.late and found.own == pytorch("")
    assert found.assumed == (
        "The recording tells no segments of its allocator: taken for granted is the default setting, from an empty device."
    )
    other = under(found, pytorch("max_split_size_mb:128"))
    assert other.saving == (found.replay.held_peak - other.low.held_peak,) * 2 and other.low is other.high


def test_a_log_of_rmm_assumes_its_pool() -> None:
    build = TraceBuilder("log")
    unit = build.alloc(1 << 20, addr=0)
    build.free(unit, addr=0)
    build.meta = {"format": "rmm", "streams": ["0"]}
    found = baseline(build.finish())
    assert found.exact and found.own.place == "rmm_pool" and "PoolMemoryResource" in found.assumed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train", "infer"])
def test_the_shipped_snapshots_are_repeated_and_nothing_is_worth_a_change(name: str) -> None:
    trace = load_trace(TRACES / f"gpt-medium-{name}-snapshot.npz")
    found = baseline(trace)
    assert found.exact and found.late and found.error == 0
    assert found.replay.held_peak == held(trace).max()
    savings = [under(found, candidate).saving for candidate in default(trace)]
    assert savings[0] == (0, 0) and max(least for least, _ in savings) < 0.02 * found.replay.held_peak


# --- against the library ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("binary", BINARIES, ids=lambda path: path.parent.name)
def test_what_the_library_recorded_is_repeated_and_other_settings_hold_what_it_holds(tmp_path: Path, binary: Path) -> None:
    if not binary.exists():
        pytest.skip(f"the real allocator is not built at {binary}")
    oracle, checked = Oracle(str(binary)), 0
    for seed in range(40):
        rng = random.Random(seed)
        case = training(seed, rng.choice(CONFS), rng.randrange(1, 4))
        begin = rng.choice((0, rng.randrange(len(case.commands))))
        data = recorded(oracle, case, begin)
        if data is None or not any(event["action"] == "alloc" for event in data["device_traces"][0]):
            continue
        found = baseline(trace_of(tmp_path, data), case.total)
        assert found.exact, (seed, found.reason)
        failed = any(event["action"] == "oom" for event in data["device_traces"][0])
        if begin == 0 and not (failed and "roundup" in case.conf):  # a failed request is told rounded
            conf = rng.choice(CONFS)
            assert under(found, pytorch(conf)).held == (held_under(oracle, case, conf),) * 2, (seed, conf)
            checked += 1
    oracle.close()
    assert checked > 10


@pytest.mark.slow
@pytest.mark.parametrize("binary", BINARIES, ids=lambda path: path.parent.name)
def test_a_heap_that_is_laid_out_has_the_librarys_statistics(tmp_path: Path, binary: Path) -> None:
    """What is current at the end of a program, of a heap that is laid out from its final state alone."""
    if not binary.exists():
        pytest.skip(f"the real allocator is not built at {binary}")
    oracle = Oracle(str(binary))
    for seed in range(30):
        case = training(seed, random.Random(seed).choice(CONFS), 3, seed % 3)
        case = replace(case, commands=(*case.commands[: len(case.commands) * 2 // 3], ("s",)))  # something is in use
        lines = oracle.run(case)
        assert lines is not None
        words = [line.split() for line in lines if line.startswith("# ") and "." in line]
        told = {name: int(now) for _, name, now, *_ in words if not name.startswith("oversize")}
        recording = read(trace_of(tmp_path, snapshot(lines, case.conf, len(case.commands) - 1)))
        assert recording is not None and recording.segments
        found = repeat(recording)[0].replay
        laid = counting.statistics(found.S)
        assert {name: laid[f"{name}.current"] for name in told} == told, seed
    oracle.close()


def test_pages_that_lie_far_apart_are_laid_out(tmp_path: Path) -> None:
    """A range as long as the device's memory demands, of which others hold most: 138 MiB are the allocator's at most."""
    one = Expandable(0)
    one.alloc(5 * MIB)
    one.events = []
    one.alloc(3 * MIB)
    one.oom(1 * GIB, 98 * MIB)
    at = one.base + 20 * GIB
    used = {"address": at, "size": 18 * MIB, "requested_size": 18 * MIB, "state": "active_allocated"}
    rest = {"address": at + 18 * MIB, "size": 2 * MIB, "requested_size": 0, "state": "inactive"}
    far = one.segment() | {"address": at, "blocks": [used, rest]}
    found = baseline(trace_of(tmp_path, {"segments": [one.segment(), far], "device_traces": [one.events]}))
    assert found.exact and found.capacity == 138 * MIB
    assert found.repeated is not None and found.repeated.misses == []


def test_a_trace_that_was_saved_is_repeated_as_well(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, three_gpus(), 1)
    save_trace(trace, tmp_path / "snapshot.npz")
    found = baseline(load_trace(tmp_path / "snapshot.npz"))
    assert found.exact and found.late and found.capacity == baseline(trace).capacity


def test_a_pickled_snapshot_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Devices do not mix: each one's segments and events are its own."""
    data = three_gpus(20)
    data["device_traces"][1] = []
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(data))
    kinds = [np.unique(import_trace(path, device=device).kind, return_counts=True)[1].sum() for device in range(3)]
    assert kinds[0] == kinds[2] > kinds[1]

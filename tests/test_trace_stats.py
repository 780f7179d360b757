"""Does the description of a trace say what a count by hand says?"""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.trace import stats
from gpusim.trace.build import TraceBuilder
from gpusim.trace.synth import random_program
from gpusim.trace.trace import Trace


def small() -> Trace:
    """param p (1000) | fwd: a = f(p) (600); b = f(a) (5000); free a | bwd: c = g(b, p) (512); free b, c."""
    build = TraceBuilder("small")
    p = build.alloc(1000, "param")
    build.begin_phase("fwd")
    a = build.alloc(600, "fwd")
    build.op("f", [p], [a], read_bytes=1000, written_bytes=600, flops=7)
    b = build.alloc(5000, "fwd")
    build.op("f", [a], [b], read_bytes=600, written_bytes=5000, flops=7)
    build.free(a)
    build.begin_phase("bwd")
    c = build.alloc(512, "bwd")
    build.op("g", [b, p], [c], read_bytes=6000, written_bytes=512, flops=1)
    build.free(b)
    build.free(c)
    build.meta = {"lacks": ["times"], "warnings": ["none"]}
    return build.finish()


def test_a_small_trace_by_hand() -> None:
    said = stats.describe(small())
    assert said["counts"] == {
        "tensors": 4, "events": 12, "ops": 3, "accesses": 7, "alloc": 4, "free": 3, "op": 3, "phase": 2,
    }  # fmt: skip
    assert said["live"] == {
        "peak": 6600, "peak_rounded": 1024 + 1024 + 5120, "start": 1000, "end": 1000,
        "peak_event": 4, "peak_op": 0, "peak_phase": "fwd",
    }  # fmt: skip
    # The widest operator: f(a) -> b touches 1024 + 5120; g(b, p) -> c touches 5120 + 1024 + 512.
    assert said["bounds"] == {"live_peak": 7168, "widest_operator": 6656, "all_tensors": 7112}
    # Operators issued between alloc and free: a 2, b 2, c 1; p is never freed.
    assert said["lifetime"]["histogram"] == [[1, 1, 1], [2, 3, 2]] and said["lifetime"]["never_freed"] == 1
    # p is used by operators 0 and 2; a by 0 and 1; b by 1 and 2.
    assert said["reuse"]["gap"]["histogram"] == [[1, 1, 2], [2, 3, 1]]
    assert said["reuse"]["uses"]["max"] == 2 and said["reuse"]["never_used"] == 0
    assert said["categories"] == [
        {"category": "fwd", "tensors": 2, "bytes": 5600, "at_peak": 5600},
        {"category": "param", "tensors": 1, "bytes": 1000, "at_peak": 1000},
        {"category": "bwd", "tensors": 1, "bytes": 512, "at_peak": 0},
    ]
    assert said["phases"] == [
        {"phase": "fwd", "ops": 2, "flops": 14.0, "read": 1600, "written": 5600, "allocs": 2, "peak": 6600},
        {"phase": "bwd", "ops": 1, "flops": 1.0, "read": 6000, "written": 512, "allocs": 1, "peak": 6512},
    ]
    assert said["operators"][0] == {"operator": "f", "calls": 2, "bytes": 7200, "flops": 14.0}
    assert said["lacks"] == ["times"] and said["warnings"] == ["none"]


def test_an_access_counts_once_and_as_a_write_if_it_is_one() -> None:
    build = TraceBuilder("t")
    a, b = build.alloc(1), build.alloc(2)
    build.op("inplace", [b, a, a], [a])
    tensor, op, write = stats.accesses(build.finish())
    assert tensor.tolist() == [a, b] and op.tolist() == [0, 0] and write.tolist() == [True, False]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=40), st.lists(st.integers(0, 9), min_size=7, max_size=7))
def test_the_reuse_distance_is_the_bytes_touched_in_between(order: list[int], sizes: list[int]) -> None:
    expected = []
    for i, tensor in enumerate(order):
        before = [j for j in range(i) if order[j] == tensor]
        expected.append(sum(sizes[t] for t in set(order[before[-1] : i])) if before else -1)
    tensor, size = np.array(order, np.int64), np.array(sizes, np.int64)
    assert stats.reuse_distance(tensor, size).tolist() == expected
    interpreted = getattr(stats._distances, "py_func", stats._distances)
    assert interpreted(tensor, size).tolist() == expected


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), ops=st.integers(0, 80))
def test_the_description_of_any_program_is_json_and_adds_up(seed: int, ops: int) -> None:
    trace = random_program(seed, ops, streams=2)
    said = stats.describe(trace)
    json.dumps(said, allow_nan=False)
    live, peak = 0, 0
    for kind, arg in zip(trace.kind.tolist(), trace.arg.tolist(), strict=True):
        live += int(trace.size[arg]) * (1 if kind == 0 else -1 if kind == 1 else 0)
        peak = max(peak, live)
    assert (said["live"]["peak"], said["live"]["end"]) == (peak, live)
    assert sum(row["at_peak"] for row in said["categories"]) == peak
    assert sum(row["bytes"] for row in said["categories"]) == said["bounds"]["all_tensors"]
    assert sum(row["ops"] for row in said["phases"]) == ops == sum(row["calls"] for row in said["operators"])
    assert said["bounds"]["widest_operator"] <= said["bounds"]["live_peak"]
    assert sum(n for _, _, n in said["lifetime"]["histogram"]) == said["lifetime"]["freed"]


def test_a_trace_without_events_can_be_described() -> None:
    said = stats.describe(TraceBuilder("empty").finish())
    assert said["live"]["peak"] == 0 and said["bounds"]["widest_operator"] == 0 and json.dumps(said)

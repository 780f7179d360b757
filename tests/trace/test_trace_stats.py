"""Does the description of a trace say what a count by hand says?"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.programs.generate.synth import random_program
from gpusim.trace import stats
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import FREE, OP, Trace

pytestmark = pytest.mark.hand_worked


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
        "tensors": 4, "events": 12, "ops": 3, "accesses": 7, "shaped": 0, "alloc": 4, "free": 3, "op": 3, "phase": 2,
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
    # In the order p a | a b | p b c: LRU holds a alone; p if p, a and b fit, a being alive when b comes; then b with p.
    assert stats.lru_bytes(small()).tolist() == [-1, -1, 600, -1, 6600, 6000, -1]
    # At 95 % of 6600 bytes, 6270, p comes in again; at 90 %, 5940, b as well; at 40 % still not a (600).
    assert [(row["misses"], row["bytes"]) for row in said["reuse"]["lru"]] == [(1, 1000)] + [(2, 6000)] * 6
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


def misses(trace: Trace, memory: int) -> list[bool]:
    """Of each access, whether plain LRU over that much memory does not hold the tensor."""
    tensor, op, _ = stats.accesses(trace)
    held: dict[int, int] = {}  # least recent first
    missed = []
    for kind, arg in zip(trace.kind.tolist(), trace.arg.tolist(), strict=True):
        if kind == FREE:
            held.pop(arg, None)
        elif kind == OP:
            for t in tensor[op == arg].tolist():
                missed.append(held.pop(t, None) is None)
                held[t] = int(trace.size[t])
                while sum(held.values()) > memory:
                    held.pop(next(iter(held)))
    return missed


@pytest.mark.slow
@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), ops=st.integers(1, 30), life=st.floats(1, 20), share=st.floats(0, 1.1))
def test_lru_holds_what_it_is_said_to_hold(seed: int, ops: int, life: float, share: float) -> None:
    trace = random_program(seed, ops, mean_life=life, largest=20, parameters=3)
    need = stats.lru_bytes(trace)
    sizes = trace.size[stats.accesses(trace)[0]]
    for memory in {int(share * trace.size.sum()), *need[need > 0].tolist(), *(need[need > 0] - 1).tolist()}:
        said = (need < 0) | (need > memory)
        assert [a for a, s in zip(misses(trace, memory), sizes, strict=True) if s] == said[sizes > 0].tolist()


def test_the_kernels_say_the_same_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = random_program(3, 60, parameters=3)
    compiled = stats.lru_bytes(trace)
    for name in ("_push", "_add", "_lru_bytes"):
        function = getattr(stats, name)
        monkeypatch.setattr(stats, name, getattr(function, "py_func", function))
    assert stats.lru_bytes(trace).tolist() == compiled.tolist()


@pytest.mark.slow
@settings(max_examples=25)
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

"""Do a program's own copies and swaps take turns in the copy engines, in the order in which they come?

See `hand_worked` for the machine: a block takes 2024 ns to the device and 2280 ns to the host, one copy a direction at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hand_worked import Steps, machine, play, spans, stalls
from plain_python import fingerprint, interpreted
from plan_policies import OWN, Written

from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.machine.profile import changed
from gpusim.policies.planning import EVICT, PREFETCH
from gpusim.programs.generate.synth import random_program
from gpusim.results import log
from gpusim.results.result import Result
from gpusim.trace import workload
from gpusim.trace.build import TraceBuilder, make_trace
from gpusim.trace.trace import COPY_IN, COPY_OUT, COPY_PEER, KERNEL, NAME_TABLES, Trace, columns

pytestmark = pytest.mark.hand_worked

IN, OUT = 2024, 2280
TWO = {"copy_engines.h2d": 2.0, "copy_engines.d2h": 2.0}


def of_streams(*carried: tuple[Any, ...], changes: dict[str, float] | None = None, **choices: Any) -> list[tuple[int, int]]:
    """(start, end) of copies (stream, activity, recorded ns) that the host asks for at once, in this order."""
    steps = Steps()
    for stream, activity, *ns in carried:
        steps.carry(activity, stream=stream, ns=ns[0] if ns else -1)
    result = play(steps, changes, **choices)
    assert result.log is not None
    at = {kind: dict(result.log[result.log["kind"] == kind][["a", "t"]].tolist()) for kind in (log.START, log.END)}
    return [(at[log.START][i], at[log.END][i]) for i in range(len(carried))]


def test_two_copies_of_a_gigabyte_in_one_direction_end_one_after_the_other() -> None:
    """At 24 bytes/ns, 1000 ns of latency each: 41,667.7 us and twice that; with an engine for each they share the link."""
    build = TraceBuilder("two copies")
    for stream in (0, 1):
        build.op("carry", (), (), read_bytes=10**9, stream=stream, activity=COPY_IN)
    trace = build.finish()
    one = 1000 + 41_666_667
    for share, ends in (("engines", [one, 2 * one]), ("none", [83_334_334, 83_334_334])):
        result = simulate(trace, machine({"link.h2d": 24e9, "link.both": 40e9}), share=share, log=True)
        assert result.log is not None
        assert result.log["t"][result.log["kind"] == log.END].tolist() == ends


def test_directions_have_engines_of_their_own() -> None:
    assert of_streams((0, COPY_IN), (1, COPY_OUT), (2, COPY_PEER, 100)) == [(0, IN), (0, OUT), (0, 100)]


def test_the_first_that_comes_goes_first() -> None:
    """Stream 1's second copy is asked for before stream 2's, but comes when the first is over: stream 2 has waited since 0."""
    assert of_streams((1, COPY_IN), (1, COPY_IN), (2, COPY_IN)) == [(0, IN), (2 * IN, 3 * IN), (IN, 2 * IN)]


def test_of_those_that_come_at_one_time_the_first_submitted_goes() -> None:
    """Copies out on streams 1 and 2 end at one time, in the order of events that of 2 first; then both copy to the device."""
    given = [(2, COPY_OUT, 700), (1, COPY_IN, 700), (1, COPY_OUT), (2, COPY_OUT)]
    assert of_streams(*given) == [(0, 700), (0, 700), (700, 700 + OUT), (700 + OUT, 700 + 2 * OUT)]
    given[2:] = given[:1:-1]
    assert of_streams(*given) == [(0, 700), (0, 700), (700, 700 + OUT), (700 + OUT, 700 + 2 * OUT)]


def test_recorded_times_of_copies_are_kept_and_take_turns_too() -> None:
    assert of_streams((0, COPY_IN, 300), (1, COPY_IN), (2, COPY_IN, 50)) == [(0, 300), (300, 300 + IN), (300 + IN, 350 + IN)]


def test_an_engine_with_two_slots_takes_two() -> None:
    """Two share the link: 5 bytes/ns each, 1000 .. 3048.  The third begins then."""
    spent = of_streams((0, COPY_IN), (1, COPY_IN), (2, COPY_IN), changes=TWO)
    assert spent == [(0, 3048), (0, 3048), (3048, 3048 + IN)]


def test_a_stream_of_kernels_that_waits_for_its_turn_stalls_for_the_engine() -> None:
    """in 0 .. 2024 on stream 1; stream 0: kernel 0 .. 500, in 2024 .. 4048, kernel 4048 .. 4148."""
    steps = Steps()
    steps.carry(COPY_IN, stream=1)
    steps.kernel(500)
    steps.carry(COPY_IN, stream=0)
    steps.kernel(100)
    result = play(steps)
    assert spans(result)["kernel"] == [(0, IN), (0, 500), (IN, 2 * IN), (2 * IN, 2 * IN + 100)]
    assert stalls(result) == {"copy_engine": IN - 500} and result.metrics["stall_ns"] == IN - 500
    assert "stall_copy_engine_ns" not in play(steps, share=("sms", "memory")).metrics


def swapping(*first: tuple[int, int]) -> Result:
    """Room for two blocks: kernels write a, b and c, so that a leaves at 1000, when its kernel has ended; copies before."""
    steps = Steps()
    for activity, ns in first:
        steps.carry(activity, stream=1, ns=ns)
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(1000, writes=(a,))
    steps.kernel(1000, writes=(b,))
    c = steps.alloc()
    steps.kernel(500, writes=(c,))
    return play(steps, blocks=2)


def test_a_swap_waits_for_a_copy_of_the_program() -> None:
    result = swapping((COPY_OUT, 1500))
    assert spans(result)["out"] == [(1500, 1500 + OUT)]
    assert spans(result)["kernel"][-1] == (1500 + OUT, 2000 + OUT)
    assert stalls(result) == {"swap_out": 1500 + OUT - 2000}


def test_a_copy_of_the_program_waits_for_a_swap() -> None:
    """The second copy of the program comes at 1200, when the first, in the other direction, is over."""
    result = swapping((COPY_IN, 1200), (COPY_OUT, -1))
    assert spans(result)["out"] == [(1000, 1000 + OUT)]
    assert (1000 + OUT, 1000 + 2 * OUT) in spans(result)["kernel"]


def test_swaps_stand_in_line_while_one_of_them_runs() -> None:
    """The swap of b could start at 2000 but for the slot, the program's second copy comes at 2500 and goes behind it."""
    steps = Steps()
    steps.carry(COPY_IN, stream=1, ns=2500)
    steps.carry(COPY_OUT, stream=1)
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(1000, writes=(a,))
    steps.kernel(1000, writes=(b,))
    steps.kernel(500, writes=(steps.alloc(), steps.alloc()))
    result = play(steps, blocks=2)
    assert spans(result)["out"] == [(1000, 1000 + OUT), (1000 + OUT, 1000 + 2 * OUT)]
    assert (1000 + 2 * OUT, 1000 + 3 * OUT) in spans(result)["kernel"]


def test_a_tier_with_an_engine_of_its_own_takes_no_turns_with_the_programs_copies() -> None:
    steps = Steps()
    steps.carry(COPY_OUT, stream=1, ns=50_000)
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(1000, writes=(a,))
    steps.kernel(1000, writes=(b,))
    steps.kernel(500, writes=(steps.alloc(),))
    assert [start for start, _ in spans(play(steps, blocks=2, tiers="nvme"))["out"]] == [1000]
    assert [start for start, _ in spans(play(steps, blocks=2))["out"]] == [50_000]


def went(result: Result) -> list[int]:
    """The queues from which swaps to the device were started, as the log numbers them: -1 of those due, -3 of prefetches."""
    assert result.log is not None
    rows = result.log[result.log["kind"] == log.START]
    return [int(queue) for queue in rows["b"] if queue in (-1, -3)]


def waiting(*read: int) -> Result:
    """Tensors 0 to 3 leave at operator 5 and have by 30,050; there a copy of the program runs 20,000 ns and 0 is prefetched.

    Of two copies more that the program makes the first comes at 31,050, behind the prefetch.  From 32,050 on kernels read.
    """
    steps = Steps()
    tensors = [steps.alloc() for _ in range(4)]
    for tensor in tensors:
        steps.kernel(10, writes=(tensor,))
    steps.kernel(30_000)
    steps.sync()
    steps.carry(COPY_IN, stream=1, ns=20_000)
    steps.kernel(10)
    steps.until(31_050)
    steps.carry(COPY_IN, stream=2, ns=500)
    steps.until(32_050)
    for tensor in read:
        steps.kernel(10, reads=(tensors[tensor],))
        steps.kernel(10)
    Written.rows = (*((4, EVICT, tensor) for tensor in range(4)), (6, PREFETCH, 0))
    return play(steps, blocks=8, plan="written", use=OWN, evict="none")


def test_a_swap_that_is_due_takes_the_place_of_one_that_is_not() -> None:
    """At 50,040 the prefetch of 0 is first in line, then the program's copy, then the swap of 1, for which a kernel waits.

    The turn is the swaps': 1 goes, 50,040 .. 52,064; then the program's copy, 500; then 0, which has 1's place.
    """
    result = waiting(1, 0)
    assert went(result) == [-1, -3]
    assert spans(result)["in"] == [(50_040, 50_040 + IN), (52_564, 52_564 + IN)]
    kernels = spans(result)["kernel"]
    assert (52_064, 52_564) in kernels and (52_064, 52_074) in kernels and (54_588, 54_598) in kernels


def test_a_prefetch_that_is_wanted_before_its_turn_keeps_its_place() -> None:
    result = waiting(0, 1)
    assert went(result) == [-3, -1]
    assert spans(result)["in"] == [(50_040, 50_040 + IN), (52_564, 52_564 + IN)]
    kernels = spans(result)["kernel"]
    assert (52_064, 52_074) in kernels and (52_064, 52_564) in kernels and (54_588, 54_598) in kernels
    assert result.metrics["prefetch_promoted"] == 1


# --- random programs -------------------------------------------------------------------------------------------------------

CHOICES = (
    {"prefetch": "next_k"}, {"evict": "belady", "prefetch": "oracle"}, {"prefetch": "stride", "release": "watermark"},
    {"evict": "fifo"}, {"tiers": "host(capacity=64 MiB) > nvme", "prefetch": "oracle"},
)  # fmt: skip


def copying(seed: int, ops: int = 120) -> dict[str, Any]:
    """A run of a random program, about every third operator of which copies, with memory for a part of what it holds."""
    rng = np.random.default_rng(seed)
    trace = random_program(seed, ops, streams=1 + seed % 3, mean_life=30.0, largest=16 << 20)
    given = {name: column.copy() for name, column in columns(trace)}
    given["activity"] = rng.choice([KERNEL, KERNEL, KERNEL, COPY_IN, COPY_OUT], trace.ops).astype(np.uint8)
    given["read_bytes"] = rng.integers(0, 16 << 20, trace.ops)
    recorded = (given["activity"] == KERNEL) | (rng.random(trace.ops) < 0.3)
    given["duration"] = np.where(recorded, rng.integers(0, 300_000, trace.ops), -1)
    trace = make_trace("copying", given, {name: getattr(trace, name) for name in NAME_TABLES})
    profile = catalogue.load("a100-pcie-40gb")
    for direction in ("h2d", "d2h"):
        profile = changed(profile, f"copy_engines.{direction}", 1 + seed % 2)
    work = workload.build(trace, np.maximum(trace.duration, 0))
    capacity = int(work.live_peak * rng.choice([0.5, 0.8, 1.5])) + (20 << 20)
    return {"trace": trace, "profile": profile, "work": work, "capacity_bytes": capacity, "log": True, "seed": seed,
            **CHOICES[seed % len(CHOICES)]}  # fmt: skip


def most_at_once(trace: Trace, result: Result, direction: int) -> int:
    """Copies in a direction that ran at one time, of the program and swaps of the copy engines."""
    assert result.log is not None
    issued = result.log[result.log["kind"] == log.ISSUE]
    own = issued["addr"][trace.activity[issued["a"]] == (COPY_IN, COPY_OUT)[direction]]
    early = 4 if "nvme" in result.spec.get("tiers", "") else 2  # queues of copies that operators wait for, of all engines
    spans = result.log[np.isin(result.log["kind"], (log.START, log.END))]
    there = spans[np.isin(spans["a"], own) | np.isin(spans["b"], (-1 - direction, -1 - direction - early))]
    return int(np.cumsum(np.where(there["kind"] == log.START, 1, -1)).max(initial=0))


@pytest.mark.slow
def test_no_more_copies_run_than_the_engines_have_slots() -> None:
    reached = set()
    for seed in range(40):
        run = copying(seed)
        result = simulate(**run)
        for direction in (0, 1):
            most = most_at_once(run["trace"], result, direction)
            assert most <= 1 + seed % 2
            reached.add(most)
    assert reached == {1, 2}


def fingerprints(count: int) -> list[Any]:
    return [fingerprint(simulate(**copying(seed, 60))) for seed in range(count)]


@pytest.mark.slow
@pytest.mark.agreement
def test_compiled_and_interpreted_runs_agree() -> None:
    assert interpreted("test_copy_engines", "t.fingerprints(6)") == fingerprints(6)


@pytest.mark.slow
@pytest.mark.agreement
def test_swaps_alone_have_the_turns_that_their_queues_give_them() -> None:
    """One copy of the program, over before the first swap, makes the engines take turns."""
    for seed in range(10):
        run = copying(seed)
        given = {name: column.copy() for name, column in columns(run["trace"])}
        given["activity"][:] = KERNEL
        given["activity"][0], given["duration"][0] = COPY_IN, 0
        trace = make_trace("swaps", given, {name: getattr(run["trace"], name) for name in NAME_TABLES})
        work = workload.build(trace, np.maximum(trace.duration, 0))
        turns, own = (simulate(**{**run, "trace": trace, "work": work, "share": share}) for share in ("engines", "none"))
        assert turns.metrics == {**own.metrics, "stall_copy_engine_ns": 0}
        assert own.metrics["swap_outs"] > 0 or own.outcome == "oom" or seed > 0

"""Is a run the same however it is carried out: with or without a log, in steps, interpreted, beside another, restored?"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hand_worked import begin, machine
from plain_python import interpreted

from gpusim.engine import state
from gpusim.engine.run import outcome
from gpusim.engine.run.simulate import Simulation, simulate
from gpusim.machine import catalogue
from gpusim.programs.generate.synth import random_program
from gpusim.results.result import Result
from gpusim.trace import workload
from gpusim.trace.trace import Trace

pytestmark = pytest.mark.agreement

POLICIES = (
    ("first_fit", "lru", "next_k"), ("pytorch", "belady", "oracle"), ("device", "cost_aware", "stride"),
    ("tlsf", "random", "none"), ("buddy", "arc", "next_k"), ("best_fit", "cost_aware(sample=3)", "none"),
)  # fmt: skip
MACHINE = "a100-pcie-40gb"


def program(seed: int, ops: int = 300, streams: int = 2) -> tuple[Trace, Any, int]:
    """(trace, durations, a memory of 60 % of the footprint and a little)"""
    trace = random_program(seed, ops, streams=streams, mean_life=30.0, largest=16 << 20)
    durations = np.random.Generator(np.random.PCG64(seed)).integers(1000, 300_000, ops)
    return trace, durations, workload.build(trace, durations).live_peak * 6 // 10 + (20 << 20)


def run(seed: int, policies: tuple[str, str, str], **settings: Any) -> Result:
    trace, durations, capacity = program(seed)
    place, evict, prefetch = policies
    chosen = {"capacity_bytes": capacity, "log": True, **settings}
    profile = chosen.pop("profile", None) or catalogue.load(MACHINE)
    return simulate(trace, profile, durations=durations, place=place, evict=evict, prefetch=prefetch, **chosen)


def fingerprint(seed: int, policies: tuple[str, str, str]) -> dict[str, Any]:
    """Everything that a run left behind, as plain values."""
    result = run(seed, policies)
    assert result.log is not None
    rows = np.ascontiguousarray(result.log).tobytes()
    return {"outcome": result.outcome, "log": hashlib.sha256(rows).hexdigest(), **result.metrics}


def start(seed: int) -> Simulation:
    trace, durations, capacity = program(seed)
    return begin(trace, catalogue.load(MACHINE), capacity, durations, prefetch="next_k")


def finish(simulation: Simulation) -> dict[str, Any]:
    assert simulation.advance(state.NEVER) == state.FINISHED
    return outcome.metrics(simulation)


@pytest.mark.slow
def test_compiled_and_interpreted_runs_agree() -> None:
    """A process in which numba compiles nothing gives the same log, byte by byte."""
    said = interpreted("test_engine_agreement", "[t.fingerprint(seed, p) for seed, p in enumerate(t.POLICIES)]")
    assert said == [fingerprint(seed, p) for seed, p in enumerate(POLICIES)]


@pytest.mark.parametrize("policies", POLICIES[:3], ids="+".join)
def test_a_thousand_steps_are_one_run(policies: tuple[str, str, str]) -> None:
    """A SimPy process that looks in a thousand times changes nothing."""
    whole = run(5, policies)
    looks: list[int] = []

    def look(env: Any, simulation: Simulation) -> Any:
        while True:
            yield env.timeout(whole.metrics["makespan_ns"] // 1000)
            assert simulation.now == env.now
            looks.append(simulation.memory()["allocated"])

    stepped = run(5, policies, control=[look])
    assert len(looks) >= 1000
    assert stepped.metrics == whole.metrics
    assert stepped.log is not None and whole.log is not None and np.array_equal(stepped.log, whole.log)


def test_two_simulations_in_one_process_do_not_know_of_each_other() -> None:
    alone = [finish(start(seed)) for seed in (1, 2)]
    both = [start(seed) for seed in (1, 2)]
    for step in range(1, 50):
        for simulation in both:
            simulation.advance(step * 200_000)
    assert [finish(simulation) for simulation in both] == alone


def test_a_state_can_be_kept_and_taken_up_again() -> None:
    """The arrays of the island and its policies are the whole state."""
    simulation = start(3)
    simulation.advance(1_000_000)
    assert 0 < simulation.island.tenants[0]["kernels"] < 300
    tables = [*simulation.island, *simulation.policies]
    kept = [table.copy() for table in tables]
    first = finish(simulation)
    for table, then in zip(tables, kept, strict=True):
        table[...] = then
    assert simulation.now == 1_000_000
    assert finish(simulation) == first


TRAFFIC = ("h2d_bytes", "d2h_bytes", "swap_ins", "swap_outs", "clean_drops", "prefetches", "allocated_peak_bytes")


@pytest.mark.parametrize("policies", [p for p in POLICIES if not p[1].startswith("cost_aware")], ids="+".join)
def test_traffic_does_not_depend_on_the_speed_of_the_link(policies: tuple[str, str, str]) -> None:
    """Decisions are taken in program order: a link ten times as slow moves the same bytes, later.

    A policy that weighs the time of copies may decide otherwise, of course.
    """
    slow = {"link.h2d": 1e9, "link.d2h": 1e9, "link.both": 2e9}
    a, b = (run(7, policies, profile=machine(link)) for link in ({}, slow))
    assert [a.metrics[k] for k in TRAFFIC] == [b.metrics[k] for k in TRAFFIC]
    assert a.metrics["makespan_ns"] < b.metrics["makespan_ns"]


@pytest.mark.parametrize("seed", range(6))
def test_the_parts_of_a_stall_add_up(seed: int) -> None:
    """On one stream, what is not a kernel before the end of the last kernel is a stall of one cause."""
    trace, durations, capacity = program(seed, streams=1)
    result = simulate(
        trace, catalogue.load(MACHINE), durations=durations, capacity_bytes=capacity - (18 << 20), place="tlsf",
        prefetch="next_k", log=True,
    )  # fmt: skip
    assert result.finished and result.log is not None
    kernel_ends = result.log["t"][(result.log["kind"] == 12) & (result.log["b"] == 0)]  # END on stream 0
    assert result.metrics["stall_ns"] == kernel_ends.max() - result.metrics["compute_busy_ns"]
    assert result.metrics["stall_swap_in_ns"] > 0

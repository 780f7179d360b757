"""Do ranks on the GPUs of a machine take the time that a pipeline, a collective and a straggler should cost?"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hand_worked import machine

from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.paces import Pace, advance
from gpusim.engine.run.simulate import prepared
from gpusim.machine.topology.connections import Connections, Meeting
from gpusim.programs.ranks.layout import RankLayout
from gpusim.programs.ranks.matching import matched
from gpusim.results.result import Result
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import COLLECTIVE, RECORD, WAIT, Trace

FORWARD, BACKWARD = 1000, 2000  # ns
RECEIVE, SEND = {"pipeline-1": 1, "pipeline+1": 2}, {"pipeline+1": 3, "pipeline-1": 4}  # streams


class StageProgram:
    """A stage of a pipeline under 1F1B, as operators and events on five streams."""

    def __init__(self, stage: int, stages: int, microbatches: int, slower: float = 1.0) -> None:
        self._build, self._events, self._slower = TraceBuilder(f"stage {stage}"), 0, slower
        self._before, self._after = stage > 0, stage < stages - 1
        warm = min(stages - stage - 1, microbatches)
        for _ in range(warm):
            self._forward()
        for done in range(microbatches):
            if warm + done < microbatches:
                self._forward()
            self._backward()

    def trace(self) -> Trace:
        return self._build.finish()

    def _forward(self) -> None:
        self._pass("pipeline-1" if self._before else "", "pipeline+1" if self._after else "", FORWARD)

    def _backward(self) -> None:
        self._pass("pipeline+1" if self._after else "", "pipeline-1" if self._before else "", BACKWARD)

    def _pass(self, source: str, target: str, ns: int) -> None:
        if source:
            self._exchange("receive", source, RECEIVE[source])
            self._then(RECEIVE[source], 0)
        self._build.op("kernel", (), (), duration=round(ns * self._slower), stream=0)
        if target:
            self._then(0, SEND[target])
            self._exchange("send", target, SEND[target])

    def _exchange(self, kind: str, group: str, stream: int) -> None:
        text = f"{kind} {group} 1000"
        self._build.op(kind, (), (), read_bytes=1000, activity=COLLECTIVE, stream=stream, exchange=text)

    def _then(self, first: int, second: int) -> None:
        self._build.event(RECORD, self._events, stream=first)
        self._build.event(WAIT, self._events, stream=second)
        self._events += 1


def together(
    programs: list[Trace], layout: RankLayout, latency: int = 0, paces: Mapping[int, Pace] | None = None
) -> list[Result]:
    runs = [prepared(program, machine(), place="device") for program in programs]
    for rank in paces or {}:
        runs[rank].simulation.own_durations()
    meetings = [
        Meeting(tuple(zip(one.ranks, one.operators, strict=True)), latency, one.size, 1e6, ("wire",))
        for one in matched(programs, layout.members)
    ]
    advance(Coupled([run.simulation for run in runs], Connections({"wire": 1e9}, meetings=meetings)), runs, paces or {})
    return [run.result() for run in runs]


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 1), (2, 8), (4, 4), (4, 16), (8, 8)])
def test_the_bubble_of_1f1b_is_that_of_the_formula(stages: int, microbatches: int) -> None:
    """(stages - 1) / microbatches of the work (Narayanan et al. 2021), and 1 ns for each hop of the first and last pass."""
    programs = [StageProgram(stage, stages, microbatches).trace() for stage in range(stages)]
    results = together(programs, RankLayout(pipeline=stages, microbatches=microbatches))
    work = microbatches * (FORWARD + BACKWARD)
    assert {r.metrics["compute_busy_ns"] for r in results} == {work}
    bubble = max(r.metrics["makespan_ns"] for r in results) - work
    hops = bubble - (stages - 1) * (FORWARD + BACKWARD)
    assert 0 <= hops <= 2 * (stages - 1) * microbatches


def test_a_slow_stage_sets_the_pace() -> None:
    """In a long run every pass waits for the slowest stage."""
    programs = [StageProgram(stage, 4, 64, slower=1.1 if stage == 2 else 1.0).trace() for stage in range(4)]
    results = together(programs, RankLayout(pipeline=4, microbatches=64))
    slowest = 64 * 1.1 * (FORWARD + BACKWARD)
    assert max(r.metrics["makespan_ns"] for r in results) == pytest.approx(slowest + 3 * (FORWARD + BACKWARD), rel=0.01)


def test_ranks_of_a_data_parallel_group_wait_for_the_straggler() -> None:
    """Each all-reduce begins when the last rank has come: the others wait a tenth of their work."""
    programs = []
    for rank in range(4):
        build = TraceBuilder("rank")
        for _ in range(10):
            build.op("kernel", (), (), duration=11_000 if rank == 3 else 10_000)
            build.op("sum", (), (), read_bytes=8, activity=COLLECTIVE, exchange="all_reduce data 1000000")
        programs.append(build.finish())
    results = together(programs, RankLayout(data=4), latency=500)
    assert {r.metrics["makespan_ns"] for r in results} == {10 * (11_000 + 500 + 1)}
    assert [r.metrics.get("collective_wait_ns", 0) for r in results] == [10_000, 10_000, 10_000, 0]


def kernels_then_sum(count: int) -> Trace:
    build = TraceBuilder("rank")
    for _ in range(count):
        build.op("kernel", (), (), duration=10_000)
    build.op("sum", (), (), read_bytes=8, activity=COLLECTIVE, exchange="all_reduce data 1000000")
    return build.finish()


@pytest.mark.hand_worked
def test_kernels_that_start_while_a_rank_is_slow_take_longer() -> None:
    """From 15,000 to 31,000 ns twice as long: kernels start at 0, 10,000, 20,000 (slow), 40,000 and 50,000 ns."""
    slow = ((0, 1.0), (15_000, 2.0), (31_000, 1.0))
    results = together([kernels_then_sum(5)] * 2, RankLayout(data=2), paces={1: slow})
    assert [r.metrics["compute_busy_ns"] for r in results] == [50_000, 60_000]
    assert [r.metrics.get("collective_wait_ns", 0) for r in results] == [10_000, 0]
    assert {r.metrics["makespan_ns"] for r in results} == {60_001}


@pytest.mark.hand_worked
def test_a_kernel_that_starts_at_the_time_of_a_change_has_the_new_pace_and_one_before_keeps_its_own() -> None:
    """The third kernel starts at 20,000 ns; with a change 1 ns later the fourth is the first that is slow."""
    for time, busy in ((20_000, 65_000), (20_001, 60_000)):
        first, _ = together([kernels_then_sum(5)] * 2, RankLayout(data=2), paces={0: ((0, 1.0), (time, 1.5))})
        assert first.metrics["compute_busy_ns"] == busy
    same = together([kernels_then_sum(5)] * 2, RankLayout(data=2), paces={0: ((0, 1.5),)})
    assert [r.metrics["compute_busy_ns"] for r in same] == [75_000, 50_000], "the ranks have one program, and not one pace"
    late = together([kernels_then_sum(2)] * 2, RankLayout(data=2), paces={0: ((0, 1.0), (10**9, 3.0))})
    assert {r.metrics["makespan_ns"] for r in late} == {20_001}, "a change after the end changes nothing"

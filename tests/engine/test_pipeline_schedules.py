"""Do stages under each schedule take the time, and hold the memory, that the formulas of its papers say?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hand_worked import machine

from gpusim.base.errors import GpusimError
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.simulate import prepared
from gpusim.engine.state import NEVER
from gpusim.machine.topology.connections import Connections, Meeting
from gpusim.programs import transforms
from gpusim.programs.ranks.layout import RankLayout
from gpusim.programs.ranks.matching import matched
from gpusim.referee import ranks
from gpusim.results.result import Result
from gpusim.trace.build import TraceBuilder
from gpusim.trace.roles import GRADIENT, roles
from gpusim.trace.stats import live_bytes
from gpusim.trace.trace import Trace

pytestmark = pytest.mark.formulas

F, B, W = 1000, 900, 700  # ns of a layer: forward, gradient of its input, gradient of its weight
WEIGHT, ACTIVATION = 10_000, 1_000  # bytes
SHAPES = [(2, 4), (3, 6), (4, 8), (8, 8), (8, 16)]


def chain(layers: int) -> Trace:
    """x -> w x in each layer; backward makes the gradient of the weight first, then that of the input."""
    b = TraceBuilder("chain")
    weights = [b.alloc(WEIGHT, "param") for _ in range(layers)]
    kept, gradients = [b.alloc(ACTIVATION, "input")], []
    b.begin_phase("step0.fwd")
    for layer, weight in enumerate(weights):
        kept.append(b.alloc(ACTIVATION, "fwd"))
        b.op("mm", (weight, kept[-2]), (kept[-1],), module=f"net.layers.{layer}", duration=F)
    b.begin_phase("step0.bwd")
    flow = kept.pop()
    for layer in reversed(range(layers)):
        gradients.append(b.alloc(WEIGHT, "bwd"))
        b.op("mm", (flow, kept[-1]), (gradients[-1],), module=f"net.layers.{layer}", duration=W)
        before = b.alloc(ACTIVATION, "bwd")
        b.op("mm", (flow, weights[layer]), (before,), module=f"net.layers.{layer}", duration=B)
        b.free(flow)
        b.free(kept.pop())
        flow = before
    b.free(flow)
    b.begin_phase("step0.opt")
    b.op("_foreach_add_", (*weights, *reversed(gradients)), weights, duration=0)
    for gradient in gradients:
        b.free(gradient)
    return b.finish()


def staged(stages: int, microbatches: int, schedule: str, chunks: int, layers: int) -> list[Trace]:
    """The program of each stage of a chain with so many layers on each; adding up gradients costs no time."""
    trace, made = chain(stages * layers), []
    for stage in range(stages):
        words = f"stages={stages}, stage={stage + 1}, microbatches={microbatches}, schedule={schedule}, chunks={chunks}"
        one = transforms.apply(trace, f"pipeline({words})")
        adds = np.array([name == "aten.add_.Tensor" for name in one.op_names])[one.op]
        made.append(replace(one, duration=np.where(adds, 0, one.duration)))
    return made


def between(programs: Sequence[Trace], latency: int = 0) -> Connections:
    """What stages send takes no time but this."""
    members = RankLayout(pipeline=len(programs)).members
    return Connections({"wire": 1e9}, meetings=[
        Meeting(tuple(zip(one.ranks, one.operators, strict=True)), latency, 0.0, 1e6, ("wire",), one.kind)
        for one in matched(programs, members)
    ])  # fmt: skip


def together(programs: Sequence[Trace], latency: int = 0, **choices: bool) -> list[Result]:
    runs = [prepared(program, machine(), **choices) for program in programs]
    Coupled([run.simulation for run in runs], between(programs, latency)).advance(NEVER)
    return [run.result() for run in runs]


def bubble(results: Sequence[Result], work: int) -> int:
    assert {result.metrics["compute_busy_ns"] for result in results} == {work}
    return round(max(result.metrics["makespan_ns"] for result in results)) - work


@pytest.mark.parametrize(("stages", "microbatches"), SHAPES)
@pytest.mark.parametrize(("schedule", "chunks", "each"), [
    ("gpipe", 1, F + B + W), ("1f1b", 1, F + B + W), ("interleaved", 2, (F + B + W) / 2), ("interleaved", 4, (F + B + W) / 4),
    ("zero_bubble", 1, F + B - W),
])  # fmt: skip
def test_bubbles_are_those_of_the_formulas(schedule: str, chunks: int, each: float, stages: int, microbatches: int) -> None:
    """To the ns, (stages - 1) times: the work of a microbatch (GPipe; 1F1B), of one chunk of it (Narayanan et al. 2021), and
    F + B - W (Qi et al. 2024, table 2, ZB-H1)."""
    if microbatches % stages:
        pytest.skip("interleaving takes whole groups")
    layers = 4
    results = together(staged(stages, microbatches, schedule, chunks, layers))
    assert bubble(results, microbatches * layers * (F + B + W)) == (stages - 1) * layers * each


def test_delayed_gradients_fill_no_bubble_that_is_longer_than_they_are() -> None:
    """Of 4 stages each B of the last microbatches waits for that of the stage behind, W being shorter: 3 x (F + B - W) ns."""
    late, early = (together(staged(4, 8, name, 1, 2)) for name in ("zero_bubble", "1f1b"))
    assert bubble(early, 8 * 2 * (F + B + W)) - bubble(late, 8 * 2 * (F + B + W)) == 3 * 2 * 2 * W


@pytest.mark.parametrize(("schedule", "chunks", "held"), [
    ("gpipe", 1, [8, 8, 8, 8]), ("1f1b", 1, [4, 3, 2, 1]), ("zero_bubble", 1, [5, 6, 7, 8]),
    ("interleaved", 2, [5.5, 4.5, 3.5, 2.5]),
])  # fmt: skip
def test_a_stage_holds_the_activations_that_its_schedule_implies(schedule: str, chunks: int, held: list[float]) -> None:
    """In microbatches of 8, on 4 stages: all of them; those in flight; under zero-bubble as many in all as on the first stage,
    of which those whose weights' gradients are delayed, and one, hold gradients of the same size too; of an interleaved
    schedule 2 x (stages - stage) + (chunks - 1) x stages + 1 runs of half of the layers."""
    layers = 32
    for stage, program in enumerate(staged(4, 8, schedule, chunks, layers)):
        small = np.where(program.size == ACTIVATION, program.size, 0)
        peak = int(live_bytes(program, small).max()) / ACTIVATION / layers
        assert abs(peak - held[stage]) < 0.75, (stage, peak)


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 2), ("zero_bubble", 1)])
def test_what_stages_do_is_what_the_referee_computes(schedule: str, chunks: int, stages: int) -> None:
    """Of two stages that interleave, one batch sends forward and backward to one batch of the other."""
    programs = staged(stages, 4, schedule, chunks, 2)
    results = together(programs, latency=50, log=True)
    reports = ranks.check(results, programs, [machine()] * stages, between(programs, 50))
    assert [report.violations for report in reports] == [()] * stages
    assert sum(report.facts["members of meetings"] for report in reports) == 2 * 2 * 4 * (chunks * stages - 1)
    assert sum(bool(result.metrics.get("collective_wait_ns")) for result in results) == stages


@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 2), ("zero_bubble", 1)])
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 2), (4, 4), (4, 12), (8, 16)])
def test_no_schedule_needs_more_than_one_thing_at_a_time(schedule: str, chunks: int, stages: int, microbatches: int) -> None:
    """Each rank ends each operator before it begins the next, as where memory makes them wait: batches still meet."""
    programs = staged(stages, microbatches, schedule, chunks, chunks)
    members = RankLayout(pipeline=stages).members
    partners: list[dict[int, set[tuple[int, int]]]] = [{} for _ in programs]
    for one in matched(programs, members):
        pair = tuple(zip(one.ranks, one.operators, strict=True))
        for (p, mine), other in (pair, pair[::-1]):
            partners[p].setdefault(mine, set()).add(other)
    at, moved = [0] * stages, True
    while moved:
        moved = False
        for p, program in enumerate(programs):
            while at[p] < program.ops and all(at[q] >= theirs for q, theirs in partners[p].get(at[p], ())):
                at[p], moved = at[p] + 1, True
    assert at == [program.ops for program in programs]


def test_only_gradients_of_parameters_are_gradients() -> None:
    for schedule, chunks in (("zero_bubble", 1), ("interleaved", 2)):
        for program in staged(4, 4, schedule, chunks, 2):
            assert int((roles(program) == GRADIENT).sum()) == 2


def test_ranks_that_wait_for_each_other_are_named() -> None:
    """The first sends before it receives, and so does the second."""
    programs = []
    for other in ("pipeline+1", "pipeline-1"):
        build = TraceBuilder("rank")
        for kind in ("send", "receive"):
            build.op(kind, (), (), read_bytes=8, activity=3, exchange=f"{kind} {other} 8")
        programs.append(build.finish())
    with pytest.raises(GpusimError) as said:
        together(programs)
    first, second = str(said.value).split("; ")
    assert first.endswith("rank 0 waits in send (its operator 0) for rank 1 (its operator 1)")
    assert second == "rank 1 waits in send (its operator 0) for rank 0 (its operator 1)"


def test_what_no_schedule_can_do_is_said() -> None:
    for words, message in (
        ("schedule=1f2b", "'1f2b' is no schedule of a pipeline"),
        ("chunks=2", "the schedule 1f1b has one run of layers on each stage, not 2"),
        ("schedule=interleaved", "an interleaved schedule has several runs of layers on each stage"),
        ("schedule=interleaved, chunks=2, microbatches=6", "in groups of as many as there are stages, 4, and 6 is no multiple"),
    ):
        with pytest.raises(GpusimError, match=message):
            transforms.apply(chain(8), f"pipeline(stages=4, stage=1, {words})")
    b = TraceBuilder("joined")
    weights, x, y, z = [b.alloc(8, "param"), b.alloc(8, "param")], b.alloc(8, "input"), b.alloc(8, "fwd"), b.alloc(8, "fwd")
    b.begin_phase("step0.fwd")
    b.op("conv", (weights[0], x), (y,), module="net.layers.0")
    b.op("conv", (weights[1], y), (z,), module="net.layers.1")
    b.begin_phase("step0.bwd")
    flow, before, *gradients = b.alloc(8, "bwd"), b.alloc(8, "bwd"), b.alloc(8, "bwd"), b.alloc(8, "bwd")
    b.op("ones_like", (z,), (flow,), module="net.layers.1")
    b.op("convolution_backward", (flow, y, weights[1]), (before, gradients[1]), module="net.layers.1")
    b.op("convolution_backward", (before, x, weights[0]), (gradients[0],), module="net.layers.0")
    b.free(flow)
    b.free(before)
    b.begin_phase("step0.opt")
    b.op("_foreach_add_", (*weights, *gradients), weights)
    with pytest.raises(GpusimError, match="not computed apart: convolution_backward makes them with those of activations"):
        transforms.apply(b.finish(), "pipeline(stages=2, stage=2, microbatches=2, schedule=zero_bubble)")

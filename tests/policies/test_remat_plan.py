"""Does a program with recomputation compute what it computed before, in the memory that it was given?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpusim import referee, transform
from gpusim.base.errors import PolicyError
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.machine.kernels.durations import durations
from gpusim.policies import registry
from gpusim.policies.plan import checkmate, checkpointing, dtr
from gpusim.policies.plan.parts.recompute import from_trace
from gpusim.policies.plan.parts.recompute.execution import RecomputeOutcome, peak, replay
from gpusim.policies.plan.parts.recompute.heuristics import HEURISTICS
from gpusim.policies.plan.parts.recompute.optimum import optimum
from gpusim.policies.plan.parts.recompute.rewrite import rewrite
from gpusim.policies.planning import View
from gpusim.programs.generate.synth import random_program
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace
from gpusim.trace.trace import ALLOC, FREE, OP, Trace
from gpusim.trace.workload import Workload, build

TRACES = Path(__file__).parents[2] / "traces"
UNIT = 512  # bytes: sizes of the programs below are in these


def named(trace: Trace) -> Workload:
    """The workload in which each operator is known by its time: what is run again has it as well."""
    return build(trace, 1_000_000 + np.arange(trace.ops))


def computed(work: Workload) -> list[tuple[int, Any]]:
    """(operator, the values that it reads), in order.  A value is what was computed, from what, and into what."""
    trace, seen = work.trace, {}
    value: dict[int, int] = {}  # tensor -> number of its value
    number: Callable[[Any], int] = lambda v: seen.setdefault(v, len(seen))  # noqa: E731
    done, given = [], 0
    for kind, arg in zip(trace.kind.tolist(), trace.arg.tolist(), strict=True):
        if kind == ALLOC:
            value[arg] = number(("given", given)) if work.has_data[arg] else -1
            given += int(work.has_data[arg])
        elif kind == FREE:
            del value[arg]
        elif kind == OP:
            reads = tuple(value[t] for t in trace.read_id[trace.read_start[arg] : trace.read_start[arg + 1]].tolist())
            who = int(work.duration[arg])
            done.append((who, reads))
            for i, t in enumerate(trace.write_id[trace.write_start[arg] : trace.write_start[arg + 1]].tolist()):
                value[t] = number((who, reads, i, value[t]))
    done.append((-1, tuple(sorted(value.values()))))
    return done


def rewritten(work: Workload, outcome: RecomputeOutcome, traced: from_trace.Traced) -> Workload:
    timed = replace(work.trace, duration=work.duration)
    made = rewrite(timed, traced, outcome.log)
    return build(made, made.duration)


def same_results(before: Workload, after: Workload) -> None:
    """The operators run first as they did before, on the same values; what is run again reads the same a second time."""
    wanted, found, first = computed(before), computed(after), {}
    for who, reads in found[:-1]:
        assert first.setdefault(who, reads) == reads
    assert list(first.items()) == wanted[:-1]
    assert set(wanted[-1][1]) <= set(found[-1][1])  # what was left is left; what was made again may be there still


@pytest.mark.slow
@settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(1, 60), st.sampled_from(HEURISTICS), st.floats(0.2, 1.0), st.integers(0, 3))
def test_any_program_computes_the_same_within_its_budget(
    seed: int, ops: int, heuristic: str, share: float, parameters: int
) -> None:
    work = named(random_program(seed, ops, parameters=parameters, largest=1 << 20, kept=0.1))
    traced = from_trace.read(work)
    assert peak(traced.program) <= work.live_peak  # allocs move to the operator that makes the data
    budget = int(work.live_peak * share)
    outcome = replay(traced.program, heuristic, budget, limit=10 * int(work.duration.sum()), lenient=True)
    after = rewritten(work, outcome, traced)
    same_results(work, after)
    assert after.live_peak == outcome.peak and (outcome.overdrafts or outcome.peak <= budget)
    assert after.duration.sum() == outcome.model_cost + outcome.remat_cost
    assert outcome.model_cost == work.duration.sum()


# --- by hand ----------------------------------------------------------------------------------------------------------


def program(*steps: tuple[str, list[str], list[str]] | str) -> Workload:
    """Operators (name, reads, writes) of 10 ns, and "-x" frees; w and tensors that are read first come with data.  All have
    one unit, those with a capital name two, those with an underscore none."""
    make, ids = TraceBuilder("hand"), {}

    def known(name: str) -> int:
        if name not in ids:
            ids[name] = make.alloc(0 if name[0] == "_" else 2 * UNIT if name[0].isupper() else UNIT, "fwd")
        return ids[name]

    for step in steps:
        if isinstance(step, str):
            make.free(ids[step[1:]])
        else:
            name, reads, writes = step
            reads_, writes_ = [known(n) for n in reads], [known(n) for n in writes]
            make.op(name, reads_, writes_, duration=10)
    trace = make.finish()
    return build(trace, trace.duration)


def told(work: Workload) -> str:
    """The events as one line: +tensor -tensor operator."""
    names = [work.trace.op_names[o] for o in work.trace.op]
    text = {ALLOC: lambda a: f"+{a}", FREE: lambda a: f"-{a}", OP: lambda a: names[a]}
    return " ".join(text[k](a) for k, a in zip(work.trace.kind.tolist(), work.trace.arg.tolist(), strict=True))


def by_dtr(work: Workload, units: int, **parameters: Any) -> str:
    made = dtr.rewrite(View(work, units * UNIT, ()), fill=1.0, **parameters)
    return told(build(made, made.duration))


CHAIN = program(
    ("in", ["w"], ["a"]), ("f", ["a"], ["b"]), ("g", ["b"], ["c"]), ("h", ["c"], ["d"]), "-c", "-d", ("use", ["a", "b"], ["e"]),
)  # fmt: skip


def test_what_fits_is_left_alone() -> None:
    assert told(CHAIN) == "+0 +1 in +2 f +3 g +4 h -3 -4 +5 use"
    assert dtr.rewrite(View(CHAIN, 6 * UNIT, ())) is CHAIN.trace


def test_a_dropped_tensor_is_freed_and_made_again() -> None:
    """Four units hold w, a, b, c; d makes one leave: a (clock 31, last use 11: 10/20) rather than b (10/10).  Then use needs a
    again: w is there, and a is made by `in` once more."""
    assert by_dtr(CHAIN, 4, heuristic="dtr_local") == "+0 +1 in +2 f +3 g -1 +4 h -3 -4 +5 in +6 use"


def test_a_chain_is_made_again_from_where_it_is() -> None:
    """Three units: a leaves for c, b for d; use makes a and b again, and locks both.  There is no room for e beside them."""
    assert by_dtr(CHAIN, 4, heuristic="size") == "+0 +1 in +2 f +3 g -2 +4 h -3 -4 +5 f +6 use"
    half = dtr.rewrite(View(CHAIN, 3 * UNIT, ()), fill=1.0)
    assert half.meta["warnings"] == ["1 operators find no room in 1.5 KiB, whatever is dropped"]
    assert told(build(half, half.duration)) == "+0 +1 in +2 f -1 +3 g -2 +4 h -3 -4 +5 in +6 f +7 use"


def test_what_is_to_lose_an_input_comes_back_before() -> None:
    """a is made from w, and gone when w is changed: it has to be made again before that, and stays."""
    work = program(
        ("in", ["w"], ["a"]), ("f", ["a"], ["b"]), ("g", ["b"], ["C"]), "-C", ("update", ["w"], ["w"]),
        ("h", ["b"], ["d"]), "-d", ("use", ["a"], ["e"]),
    )  # fmt: skip
    assert told(work) == "+0 +1 in +2 f +3 g -3 update +4 h -4 +5 use"
    assert by_dtr(work, 4, heuristic="dtr_local") == "+0 +1 in +2 f -1 +3 g -3 +4 in update +5 h -5 +6 use"


def test_what_is_changed_in_place_is_not_made_again() -> None:
    """x is made by one operator and changed by another, y by an operator that changes x: both stay, whatever the budget."""
    work = program(
        ("in", ["w"], ["x"]), ("add", ["x"], ["x", "y"]), ("f", ["w"], ["z"]), ("g", ["w"], ["v"]),
        ("use", ["x", "y", "z"], ["e"]),
    )  # fmt: skip
    traced = from_trace.read(work)
    assert traced.remade.tolist() == [False, False, False, True, True, True]  # w, x, y; z, v, e
    outcome = replay(traced.program, "lru", 4 * UNIT, lenient=True)
    assert traced.unit[outcome.victims].tolist()[:1] == [3] and set(traced.unit[outcome.victims].tolist()) <= {3, 4, 5}


# --- the optimum ------------------------------------------------------------------------------------------------------


def least(work: Workload, units: int) -> float:
    """The least ns of recomputation, by trying everything: each move drops one tensor, or runs one operator."""
    trace, known = work.trace, from_trace.read(work).remade
    reads, writes = (
        [set(ids[start[o] : start[o + 1]].tolist()) for o in range(trace.ops)]
        for start, ids in ((trace.read_start, trace.read_id), (trace.write_start, trace.write_id))
    )
    fixed, size = {t for t in range(trace.tensors) if not known[t]}, (-(-trace.size // UNIT)).tolist()
    end = {t for t in range(trace.tensors) if t not in trace.arg[trace.kind == FREE]}
    open_: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, tuple(fixed))]
    done = set()
    while open_:
        cost, ops, there_ = heappop(open_)
        there = set(there_)
        if (ops, there_) in done:
            continue
        done.add((ops, there_))
        if ops == trace.ops and end <= there:
            return cost
        for t in there - fixed:
            heappush(open_, (cost, ops, tuple(sorted(there - {t}))))
        for o in range(min(ops + 1, trace.ops)):
            room = sum(size[t] for t in there) + sum(size[t] for t in writes[o])
            if reads[o] <= there and room <= units and (o == ops or not writes[o] <= there):
                more = 0 if o == ops else int(work.duration[o])
                heappush(open_, (cost + more, ops + (o == ops), tuple(sorted(there | writes[o]))))
    return inf


def backward(layers: int) -> Workload:
    """A chain of layers and the backward pass over it, with gradients of no size."""
    steps: list[Any] = [(f"f{i}", [f"a{i - 1}" if i else "w"], [f"a{i}"]) for i in range(layers)]
    for i in reversed(range(layers)):
        steps.append((f"b{i}", [f"a{i}"] if i == layers - 1 else [f"a{i}", f"_g{i + 1}"], [f"_g{i}"]))
    return program(*steps, *(f"-a{i}" for i in range(layers)))


@pytest.mark.parametrize("layers", [3, 5])
def test_the_optimum_is_that_of_trying_everything(layers: int) -> None:
    work = backward(layers)
    traced = from_trace.read(work)
    costs = []
    for units in range(2, layers + 2):
        found, wanted = optimum(traced, units * UNIT), least(work, units)
        assert (found.status, found.cost) == (("ok", wanted) if wanted < inf else ("oom", 0))
        costs.append(wanted)
    assert costs[0] == inf and costs[-1] == 0 and costs == sorted(costs, reverse=True)
    assert len(set(costs)) > 2


@pytest.mark.slow
@example(457345, 9, 0.515625)  # one output of two is made again while the other is there
@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(3, 11), st.floats(0.5, 1.0))
def test_the_optimum_computes_the_same_for_no_more_than_dtr(seed: int, ops: int, share: float) -> None:
    work = named(random_program(seed, ops, parameters=2, largest=1 << 16, kept=0.2, mean_life=5))
    traced, budget = from_trace.read(work), int(work.live_peak * share)
    best, greedy = optimum(traced, budget, states=20_000), replay(traced.program, "dtr", budget)
    if best.status != "ok":
        assert best.status == "given up" or greedy.status == "oom"
        return
    assert greedy.status == "oom" or best.cost <= greedy.remat_cost
    made = rewrite(replace(work.trace, duration=work.duration), traced, best.log)
    after = build(made, made.duration)
    same_results(work, after)
    assert after.live_peak <= budget and after.duration.sum() - work.duration.sum() == best.cost


# z comes while x and y are there, and leaves after x was used.
AHEAD = program(
    ("x", ["w"], ["x"]), ("y", ["w"], ["y"]), ("z", ["w"], ["z"]), ("u", ["x"], ["_u"]), ("v", ["y", "z"], ["_v"]),
    "-x", "-y", "-z",
)  # fmt: skip


def test_a_plan_that_knows_what_comes_drops_less() -> None:
    """dtr drops x, the oldest, and then y to have x again: 20 ns.  The optimum drops y, and x after its last use: 10 ns."""
    assert by_dtr(AHEAD, 3) == "+0 +1 x +2 y -1 +3 z -2 +4 x +5 u -4 +6 y +7 v -6 -3"
    made = checkmate.rewrite(View(AHEAD, 3 * UNIT, ()))
    assert told(build(made, made.duration)) == "+0 +1 x +2 y -2 +3 z +4 u -1 +5 y +6 v -5 -3"
    assert checkmate.rewrite(View(AHEAD, 4 * UNIT, ())) is AHEAD.trace


def test_what_has_no_optimum_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"nothing that is dropped makes 'hand' fit into 1 KiB"):
        checkmate.rewrite(View(AHEAD, 2 * UNIT, ()))
    with pytest.raises(PolicyError, match=r"no optimum within 3 states for 5 tensors that can be recomputed"):
        checkmate.rewrite(View(AHEAD, 3 * UNIT, ()), states=3)
    step = named(load_trace(TRACES / "unet3d-train.npz"))
    with pytest.raises(PolicyError, match=r"a search over \d+ tensors that can be recomputed does not come to an end"):
        checkmate.rewrite(View(step, step.live_peak // 2, ()))


def test_a_wrong_heuristic_is_refused_when_it_is_read() -> None:
    with pytest.raises(PolicyError, match=r"there is no heuristic 'dtr_equal' \(did you mean 'dtr_eq'"):
        registry.get("plan", "dtr(heuristic=dtr_equal)")


# --- real programs, through the engine --------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "share"), [("gpt2-small-train", 0.6), ("resnet50-train", 0.4), ("unet3d-train", 0.5)])
def test_a_training_step_computes_the_same(name: str, share: float) -> None:
    trace = load_trace(TRACES / f"{name}.npz")
    work = named(trace)
    traced = from_trace.read(work)
    outcome = replay(traced.program, "dtr_eq", int(peak(traced.program) * share))
    assert outcome.status == "ok" and outcome.reruns > 100
    after = rewritten(work, outcome, traced)
    same_results(work, after)
    assert after.live_peak == outcome.peak <= share * work.live_peak


def test_the_engine_runs_it_within_the_memory() -> None:
    """What fits nowhere without evicting fits with recomputation: nothing is swapped, and the time is that of the replay."""
    trace, machine = load_trace(TRACES / "resnet50-train.npz"), catalogue.load("a100-sxm4-80gb")
    work = build(trace, durations(trace, machine)[0])
    room = int(0.6 * work.live_peak)

    def run(plan: str, capacity: int = room) -> Any:
        return simulate(trace, machine, plan=plan, evict="none", place="best_fit", capacity_bytes=capacity, log=True)

    assert run("none").outcome == "oom"
    result, free = run("dtr"), run("none", 2 * work.live_peak)
    assert result.outcome == free.outcome == "finished" and result.metrics["h2d_bytes"] == 0
    assert result.program is not None and result.program.ops > trace.ops
    slower = durations(result.program, machine)[0].sum() / work.duration.sum()
    assert result.metrics["makespan_ns"] / free.metrics["makespan_ns"] == pytest.approx(slower, rel=0.05)
    assert "checked" in str(referee.check(result, trace))


def test_checkpointing_is_the_transform_whatever_the_memory() -> None:
    """Beside dtr, which drops nothing while there is room."""
    trace = load_trace(TRACES / "gpt2-small-train.npz")
    work = build(trace, np.ones(trace.ops, np.int64))
    roomy = View(work, 2 * work.live_peak, ())
    full, root = checkpointing.rewrite(roomy), checkpointing.rewrite(roomy, every="sqrt")
    by_hand = transform(trace, "checkpointing")
    assert np.array_equal(full.arg, by_hand.arg) and np.array_equal(full.kind, by_hand.kind) and full.ops == by_hand.ops
    assert dtr.rewrite(roomy) is trace
    peaks = [build(t, np.ones(t.ops, np.int64)).live_peak for t in (root, full, trace)]
    assert peaks == sorted(peaks) and len(set(peaks)) == 3

"""Does a program with recomputation compute what it computed before, in the memory that it was given?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.engine.simulate import simulate
from gpusim.hardware import catalogue
from gpusim.hardware.roofline import durations
from gpusim.policies.plan import dtr
from gpusim.policies.planning import View
from gpusim.remat import from_trace
from gpusim.remat.replay import Outcome, peak, replay
from gpusim.remat.rewrite import rewrite
from gpusim.remat.tables import HEURISTICS
from gpusim.results import referee
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace
from gpusim.trace.synth import random_program
from gpusim.trace.trace import ALLOC, FREE, OP, Trace
from gpusim.trace.workload import Workload, build

TRACES = Path(__file__).parents[1] / "traces"
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


def rewritten(work: Workload, outcome: Outcome, traced: from_trace.Traced) -> Workload:
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


@settings(max_examples=150, deadline=None)
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
    one unit, those with a capital name two."""
    make, ids = TraceBuilder("hand"), {}

    def known(name: str) -> int:
        if name not in ids:
            ids[name] = make.alloc(2 * UNIT if name[0].isupper() else UNIT, "fwd")
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

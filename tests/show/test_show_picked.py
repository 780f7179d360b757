"""Are the best, the front and the axes of very many runs those that a sheet of paper gives?"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from gpusim.results.result import Result
from gpusim.show.picked import overview, overview_markdown
from gpusim.show.table import render
from gpusim.show.values.pareto import front
from gpusim.show.values.picked import effects, picked


def a_run(evict: str, memory: float, seed: int = 0, makespan: float = 1.0, held: int = 1, **others: Any) -> Result:
    spec = {"trace": "t", "profile": "p", "evict": evict, "memory": int(memory * 100), "memory_share": memory, "seed": seed}
    metrics = {"makespan_ns": makespan, "reserved_peak_bytes": held}
    return Result(**{"spec": spec, "outcome": "finished", "metrics": metrics, "bounds": {"bound_no_limit_ns": 1.0}, **others})


@pytest.mark.hand_worked
def test_effects_are_those_of_the_analysis_of_variance() -> None:
    """Makespan = 10 a + b + 4 a b for a and b in 0, 1, twice: 0, 1, 10, 15.

    Mean 6.5, variance 39.25. Means over a: 0.5 and 12.5, variance 36; over b: 5 and 8, variance 2.25. Left where b is held:
    (5 * 5 + 7 * 7) / 2 = 37; where a is held: (0.25 + 6.25) / 2 = 3.25. The seed explains nothing.
    """
    value = {(0, 0): 0.0, (0, 1): 1.0, (1, 0): 10.0, (1, 1): 15.0}
    runs = [a_run(f"e{a}", (b + 1) / 2, seed, value[a, b] + 1) for a, b, seed in product((0, 1), (0, 1), (0, 1))]
    found = {effect.axis: effect for effect in effects(runs, "makespan_ns")}
    assert list(found) == ["evict", "memory_share", "seed"]
    for axis, alone, together in (("evict", 36, 37), ("memory_share", 2.25, 3.25), ("seed", 0, 0)):
        assert found[axis].alone == pytest.approx(alone / 39.25) and found[axis].together == pytest.approx(together / 39.25)
    assert [(level.name, level.runs, level.mean, level.best) for level in found["evict"].levels] == [
        ("e0", 4, 1.5, 1.0), ("e1", 4, 13.5, 11.0),
    ]  # fmt: skip


@pytest.mark.hand_worked
def test_the_front_has_what_no_other_beats_in_both() -> None:
    shape = {"a": (1, 9.0), "b": (2, 5.0), "c": (3, 6.0), "d": (4, 5.0), "e": (5, 2.0), "f": (1, 10.0)}
    runs = [a_run(name, 0.5, makespan=time, held=held) for name, (held, time) in shape.items()]
    program = picked(runs, "makespan_ns").programs[0]
    assert [point.runs[0].spec["evict"] for point in program.front] == ["a", "b", "e"]
    assert [point.runs[0].spec["evict"] for point in program.best] == ["e", "b", "d", "c", "a", "f"]
    assert [point.value for point in front(program.best, -1)] == [10.0], "more is better: the least memory has the most"


def test_seeds_are_one_point_and_what_did_not_finish_is_none() -> None:
    runs = [a_run("lru", 0.5, seed, makespan=seed + 1.0) for seed in range(3)]
    runs += [a_run("fifo", 0.5, 0), a_run("fifo", 0.5, 1, outcome="oom")]
    runs += [a_run("belady", 0.5, 0, makespan=0.5)]
    runs[-1].spec["oracles"] = ["evict"]
    found = picked(runs, "makespan_ns")
    assert found.endings == {"out of memory": 1} and found.runs == 6
    (point,) = found.programs[0].best
    assert point.value == 2.0 and len(point.runs) == 3
    levels = next(effect.levels for effect in effects(runs, "makespan_ns") if effect.axis == "evict")
    unfinished = {level.name: (level.finished, level.runs) for level in levels}
    assert unfinished == {"lru": (3, 3), "fifo": (1, 2), "belady": (1, 1)}


def test_programs_and_machines_are_apart() -> None:
    runs = [a_run(e, 0.5, makespan=m) for e, m in (("lru", 1.0), ("fifo", 2.0))]
    other = [Result({**r.spec, "trace": "u"}, "finished", {**r.metrics, "makespan_ns": 9.0}, bounds=r.bounds) for r in runs]
    found = picked([*runs, *other], "makespan_ns")
    assert [(p.name, [point.value for point in p.best]) for p in found.programs] == [("t", [1.0, 2.0]), ("u", [9.0, 9.0])]


def many(count: int) -> list[Result]:
    return [a_run(f"e{i % 5}", 0.5 + 0.1 * (i % 3), i, makespan=1.0 + i % 5, held=100 - i % 3) for i in range(count)]


def test_two_hundred_runs_are_listed_and_more_are_told() -> None:
    assert overview(many(200), width=100) == render(many(200), width=100)
    told = overview(many(201), width=100)
    assert told.startswith("201 runs; summary.csv has a row for each.") and len(told.splitlines()) < 40
    assert "Best\nevict  memory  slowdown  memory held  runs\n" in told
    assert "Variance of slowdown by axis, alone and together with others" in told
    written = overview_markdown(many(201))
    assert "### Best\n\n| evict | memory | slowdown | memory held | runs |\n| --- | --- | --- | --- | --- |" in written


def test_runs_none_of_which_finished_are_told() -> None:
    runs = [a_run(f"e{i % 2}", 0.5, i, outcome="oom") for i in range(300)]
    told = overview(runs)
    assert told.startswith("300 runs, 300 out of memory;") and "Best" not in told
    assert "e0 (150 of 150)" in told

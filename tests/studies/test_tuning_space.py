"""The key `tune`: which points it spans, and what of it is refused where in the file."""

from __future__ import annotations

import pytest

from gpusim.base.errors import ConfigError, GpusimError
from gpusim.base.yaml import document
from gpusim.base.yaml.find import names
from gpusim.experiment import load
from gpusim.experiment.resolved import resolved
from gpusim.studies.tuning.goals import Goal, goals
from gpusim.studies.tuning.space import Space, at, space

HEAD = """question: Which?
trace: gpt-medium-infer
profile: l4
memory: 60 %
policies: {place: best_fit, evict: [lru, cost_aware, belady], prefetch: next_k(k=4)}
"""
UNIFIED = """question: Which?
trace: stream_sweep
profile: l4
unified: driver
bounds: false
"""


def made(tune: str, head: str = HEAD, *sets: str) -> Space:
    return space(load.experiment(document.loads(f"{head}tune:\n{tune}", "mine.yaml"), sets))


TWO = "  policies.prefetch.next_k.k: {from: 1, to: 8}\n  policies.evict.cost_aware.staleness: [0, 1]\n"


def test_lists_of_the_experiment_are_chosen_from_and_parameters_count_where_they_belong() -> None:
    found = made(TWO)
    assert [knob.path for knob in found.knobs] == [
        "policies.evict", "policies.prefetch.next_k.k", "policies.evict.cost_aware.staleness",
    ]  # fmt: skip
    assert found.knobs[0].values == ("lru", "cost_aware")  # belady reads the future: there to compare with
    assert found.size() == 8 + 2 * 8
    point = {"policies.evict": "cost_aware", "policies.prefetch.next_k.k": 7, "policies.evict.cost_aware.staleness": "0"}
    assert found.lines(point) == {"policies.evict": "cost_aware(staleness=0)", "policies.prefetch": "next_k(k=7)"}
    assert found.point(found.lines(point)) == point
    assert [k.path for k in found.active({"policies.evict": "lru"})] == ["policies.prefetch.next_k.k"]


def test_the_experiment_as_written_is_found_in_the_space_with_its_defaults() -> None:
    found = made("  policies.evict.cost_aware.staleness: {from: 0, to: 4}\n")
    assert [lines["policies.evict"] for lines in found.given] == ["lru", "cost_aware", "belady"]
    assert [found.point(lines) for lines in found.given] == [
        {"policies.evict": "lru"}, {"policies.evict": "cost_aware", "policies.evict.cost_aware.staleness": 1.0}, None,
    ]  # fmt: skip
    assert made("  policies.prefetch.next_k.k: {from: 8, to: 16}\n").point(dict(found.given[0], **{
        "policies.prefetch": "next_k(k=4)"})) is None  # fmt: skip


@pytest.mark.parametrize("budget", [3, 10, 24, 100])
def test_a_grid_is_the_finest_within_its_budget_and_has_no_point_twice(budget: int) -> None:
    found = made(TWO)
    points = found.grid(budget)
    assert len(points) <= budget and len({frozenset(point.items()) for point in points}) == len(points)
    # One level more is 1 point for lru and 2 for cost_aware.
    assert len(points) == {3: 3, 10: 9, 24: 24, 100: 24}[budget]
    assert not made(TWO).grid(2)  # the lists alone span three


def test_parameters_of_transforms_and_tiers_are_those_of_the_step_that_has_them() -> None:
    sets = ("transform=checkpointing(every=2) | offload", "tiers=host > nvme(direct=1)")
    tuned = "  transform.checkpointing.every: {from: 1, to: 4}\n  tiers.nvme.queue_depth: {from: 1, to: 64}\n"
    found = made(tuned, HEAD, *sets)
    assert found.lines({"transform.checkpointing.every": 3, "tiers.nvme.queue_depth": 8, "policies.evict": "lru"}) == {
        "policies.evict": "lru", "transform": "checkpointing(every=3) | offload",
        "tiers": "host > nvme(direct=1, queue_depth=8)",
    }  # fmt: skip
    assert found.point(found.given[0]) == {
        "policies.evict": "lru", "transform.checkpointing.every": 2, "tiers.nvme.queue_depth": 32,
    }  # fmt: skip


def test_each_point_is_an_experiment_that_can_be_written() -> None:
    loaded = load.experiment(document.loads(f"{HEAD}tune:\n{TWO}", "mine.yaml"))
    for point in space(loaded).grid(10):
        lines = space(loaded).lines(point)
        assert str(at(loaded, lines).experiment.policies.evict[0]) == lines["policies.evict"]
    assert load.experiment(document.loads(resolved(loaded.experiment), "mine.yaml")).experiment.tune == loaded.experiment.tune


def test_a_point_is_what_its_run_in_the_grid_is_whatever_it_would_be_alone() -> None:
    # Alone, the disk would make the size of host memory a mistake; in this list the host has a use for it.
    head = HEAD.replace("memory: 60 %", "memory: 60 %\nhost_memory: 8 GiB\ntiers: [host > nvme, nvme]")
    doc = document.loads(f"{head}tune:\n  tiers.nvme.request: {{from: 64 KiB, to: 4096 KiB}}\n", "mine.yaml")
    found = space(load.experiment(doc))
    assert [found.point(lines) for lines in found.given[::3]] == [
        {"tiers": tiers, "policies.evict": "lru", "tiers.nvme.request": 1024} for tiers in ("host > nvme", "nvme")
    ]
    alone = at(load.experiment(doc), {"tiers": "nvme(request=64 KiB)"}).experiment
    assert alone.tiers == ("nvme(request=64 KiB)",) and len(alone.policies.evict) == 3


@pytest.mark.parametrize(
    ("tune", "place", "said", "hint"),
    [
        ("policies.prefetch.next_kk.k: [1, 2]", "7:3", "there is no prefetch policy 'next_kk'", "did you mean 'next_k'"),
        ("policies.prefetch.next_k.kk: [1, 2]", "7:3", "'next_k' has no parameter 'kk'", "did you mean 'k'"),
        ("policies.prefetch.stride.degree: [1, 2]", "7:3", "nothing here has stride: policies.prefetch is next_k", ""),
        ("policies.prefetch.next_k: [1, 2]", "7:3", "names no parameter", "policies.prefetch.NAME.PARAMETER"),
        ("policies.prefetch.next_k.k: {from: 1.5, to: 4}", "7:31", "k of next_k is a whole number", ""),
        ("policies.prefetch.next_k.k: {from: -2, to: 4}", "7:38", "is negative (-2)", "default: 4"),
        ("policies.prefetch.next_k.k: {from: 4, to: 2}", "7:31", "the range is empty", "smaller end"),
        ("policies.evict: [lru, fifo]", "7:3", "lists 3 values of policies.evict, and tune has its own", "one of them"),
        ("policies.prefetch: {from: 1, to: 4}", "7:22", "is one of several, not a number", "[a, b]"),
        ("policies.prefetch: [none, nextk]", "7:29", "there is no prefetch policy 'nextk'", "next_k"),
        ("polices.prefetch: [none, next_k]", "7:3", "there is no axis 'polices'", "policies."),
        ("trace: [gpt-medium-infer, gpt-medium-train]", "7:3", "another program is another question", ""),
        ("memory.hbm.size: [1, 2]", "7:3", "have no parameters", ""),
        ("grain: {from: 100 B, to: 300 B}", "7:17", "no multiple of 512 B", ""),
        ("tiers: [host, host > nvm]", "7:17", "there is no tier 'nvm'", "nvme"),
        ("transform: [none, checkpointing(evry=2)]", "7:21", "has no parameter 'evry'", "every"),
        ("unified: [none, driver]", "7:19", "under unified memory the driver decides", ""),
    ],
)
def test_what_cannot_be_tuned_is_refused_at_its_place(tune: str, place: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        made(f"  {tune}\n")
    words = str(refused.value)
    assert f"mine.yaml:{place}: " in words and said in words and hint in words


def test_shipped_searches_have_a_space_with_their_experiment_in_it() -> None:
    shipped = {name: load.experiment(name) for name in names("experiment")}
    tuned = {name: loaded for name, loaded in shipped.items() if loaded.experiment.tune}
    assert set(tuned) == {"prefetch", "ssd", "what_if"}
    for loaded in tuned.values():
        found = space(loaded)
        assert any(found.point(lines) for lines in found.given) and len(found.knobs) > len(found.chosen)


def test_a_choice_that_says_what_is_varied_is_a_contradiction() -> None:
    with pytest.raises(ConfigError, match=r"'next_k\(k=2\)' says what k is, and tune varies it"):
        made("  policies.prefetch: [none, next_k(k=2)]\n  policies.prefetch.next_k.k: {from: 1, to: 8}\n")


@pytest.mark.parametrize(
    ("tune", "said"),
    [
        ("unified.driver.uvm_perf_prefetch_threshold: {from: 0, to: 300}", "outside of 0..100"),
        ("unified.driver.uvm_perf_fault_coalesce: [0, 1]", "without effect here"),
        ("unified.driver.uvm_perf_prefetch_treshold: [0, 1]", "did you mean 'uvm_perf_prefetch_threshold'"),
        ("policies.evict: [lru, fifo]", "under unified memory the driver decides"),
    ],
)
def test_parameters_of_the_driver_are_those_that_it_obeys(tune: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        made(f"  {tune}\n", UNIFIED)
    assert said in str(refused.value)


def test_an_experiment_without_anything_to_choose_says_so() -> None:
    with pytest.raises(ConfigError, match="nothing of this experiment can be tuned"):
        space(load.experiment(document.loads(UNIFIED, "mine.yaml")))


# --- what is asked for


def asked(tune: str, *names: str, sets: tuple[str, ...] = (), per: str = "", most: tuple[str, ...] = ()) -> tuple[Goal, ...]:
    loaded = load.experiment(document.loads(f"{HEAD}tune:\n{tune}", "mine.yaml"), sets)
    return goals(names, most, per, space(loaded), loaded.experiment)


BATCH = "  transform.batch.factor: {from: 0.25, to: 4, log: true}\n"
BATCHED = ("transform=batch(factor=0.5)",)


def test_slowdown_is_asked_for_where_all_runs_have_one_reference() -> None:
    assert asked(TWO) == (Goal("slowdown"),)
    assert asked(TWO, sets=("bounds=false",)) == (Goal("makespan_ns"),)
    assert asked("  transform: [none, checkpointing]\n") == (Goal("makespan_ns"),)
    assert asked(TWO, "slowdown", "reserved_peak_bytes", most=("prefetch_hits",)) == (
        Goal("slowdown"), Goal("reserved_peak_bytes"), Goal("prefetch_hits", -1),
    )  # fmt: skip


def test_time_of_batches_is_compared_by_the_batch() -> None:
    per = "transform.batch.factor"
    assert asked(BATCH, "makespan_ns", "reserved_peak_bytes", sets=BATCHED, per=per) == (
        Goal("makespan_ns", per=per), Goal("reserved_peak_bytes"),
    )  # fmt: skip
    with pytest.raises(GpusimError, match=r"another transform\.batch\.factor is another amount of work .*--per"):
        asked(BATCH, sets=BATCHED)
    with pytest.raises(GpusimError, match="do different amounts of work"):
        asked("  transform: [none, batch(factor=0.5)]\n")
    assert asked("  transform: [none, batch(factor=0.5) | accumulate(steps=2)]\n") == (Goal("makespan_ns"),)


@pytest.mark.parametrize(
    ("names", "sets", "per", "said"),
    [
        (("slowdwn",), (), "", "did you mean 'slowdown'"),
        (("slowdown", "slowdown"), (), "", "named twice"),
        (("slowdown",), ("bounds=false",), "", "bounds: false leaves out what it is measured against"),
        (("over_best_plan",), (), "", "--set bounds=search"),
        (("makespan_ns",), (), "policies.evict", "no number of this name is tuned"),
        (("makespan_ns",), (), "policies.evict.cost_aware.staleness", "no number of this name is tuned"),
    ],
)
def test_goals_that_say_nothing_are_refused(names: tuple[str, ...], sets: tuple[str, ...], per: str, said: str) -> None:
    with pytest.raises(GpusimError) as refused:
        asked(TWO, *names, sets=sets, per=per)
    assert said in str(refused.value)


def test_slowdowns_against_different_references_are_not_compared() -> None:
    with pytest.raises(GpusimError, match="does not compare runs that differ in transform"):
        asked("  transform: [none, checkpointing]\n", "slowdown")

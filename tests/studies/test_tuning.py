"""A search: the same trials for any number of workers, what is kept, what is best, and what out of memory counts as."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gpusim.base.errors import GpusimError, GridError
from gpusim.base.yaml import document
from gpusim.experiment import load
from gpusim.experiment.load import Loaded
from gpusim.results.folder import load_folder, missing
from gpusim.results.metrics import same
from gpusim.show import tuned as shown
from gpusim.studies.tuning import tune as study
from gpusim.studies.tuning.goals import Goal
from gpusim.studies.tuning.search import Search, importance
from gpusim.studies.tuning.space import space
from gpusim.studies.tuning.trials import BACK, GRID, REFUSED, SEARCH, WRITTEN
from gpusim.studies.tuning.tune import Tuned, tune

pytestmark = pytest.mark.slow

HEAD = """question: Which?
trace: gpt-medium-train
profile: a100-pcie-40gb
memory: 60 %
policies: {evict: [lru, cost_aware, belady], prefetch: next_k}
tune:
"""
KNOBS = """  policies.prefetch.next_k.k: {from: 1, to: 32, log: true}
  policies.evict.cost_aware.staleness: {from: 0, to: 4}
"""
FEW = "  policies.prefetch.next_k.k: {from: 3, to: 8}\n"
MEMORY = """  memory: {from: 2 %, to: 60 %}
  policies.prefetch.next_k.k: {from: 1, to: 32, log: true}
"""


def loaded(tune: str = KNOBS, *sets: str) -> Loaded:
    return load.experiment(document.loads(f"{HEAD}{tune}", "mine.yaml"), sets)


def told(found: Tuned) -> str:
    return json.dumps(study.state(found), sort_keys=True)


def test_one_job_and_two_and_a_search_that_was_stopped_run_the_same_trials(tmp_path: Path) -> None:
    first = tune(loaded(), tmp_path / "one", budget=20, batch=4, jobs=1)
    assert told(tune(loaded(), tmp_path / "two", budget=20, batch=4, jobs=2)) == told(first)

    def stop(done: int, total: int) -> None:
        if done >= 11:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(loaded(), tmp_path / "stopped", budget=20, batch=4, progress=stop)
    there = {path.name for path in (tmp_path / "stopped" / "runs").iterdir()}
    left = load_folder(tmp_path / "stopped")  # readable as any other, though stopped
    assert 11 <= len(left) < len(first.results) and missing(tmp_path / "stopped") == 0
    assert (tmp_path / "stopped" / "tune.json").is_file()
    stamps = {name: (tmp_path / "stopped" / "runs" / name / "result.json").stat().st_mtime_ns for name in there}
    assert told(tune(loaded(), tmp_path / "stopped", budget=20, batch=4)) == told(first)
    # What was there has not run again.
    assert {n: (tmp_path / "stopped" / "runs" / n / "result.json").stat().st_mtime_ns for n in there} == stamps


def test_a_larger_budget_begins_with_the_trials_of_a_smaller_one_and_another_seed_with_others(tmp_path: Path) -> None:
    def searched(budget: int, seed: int = 0) -> list[dict[str, str]]:
        found = tune(loaded(), tmp_path, budget=budget, batch=4, seed=seed)
        assert len(found.of(WRITTEN, SEARCH)) == budget
        points = [tuple(sorted((t.point or t.lines).items())) for t in found.of(WRITTEN, SEARCH)]
        assert len(set(points)) == budget  # none is asked for twice
        return [dict(t.lines) for t in found.of(SEARCH)]

    few = searched(11)
    assert searched(19)[: len(few)] == few
    assert searched(11, seed=1) != few


def test_a_space_within_the_budget_is_run_whole_and_its_best_is_the_best_there_is(tmp_path: Path) -> None:
    found = tune(loaded(FEW), tmp_path, budget=40)
    assert found.complete and len(found.of(WRITTEN, SEARCH)) == 2 * 6 + 1  # belady is written, and no point of the space
    every = load_folder(tmp_path, timeline=False)
    best = found.best()
    assert best is not None and best.values is not None
    possible = [r.metrics["slowdown"] for r in every if not r.oracle]
    assert best.values[0] == min(possible) and len(possible) == 12
    assert "These are all points of the space." in shown.said(found)
    reference = next(t for t in found.of(WRITTEN) if t.lines["policies.evict"] == "belady")
    assert reference.oracle and reference.point is None and reference not in found.found


def test_ties_the_grid_and_each_knob_back_are_those_of_the_trials(tmp_path: Path) -> None:
    found = tune(loaded(), tmp_path, budget=24, grid=True)
    best, written, by_grid = found.best(), found.best(origins=(WRITTEN,)), found.best(origins=(GRID,))
    assert best and written and by_grid and best.values and written.values and by_grid.values
    assert best.values <= written.values
    assert 12 < len(found.of(GRID)) <= 24
    values = [t.values[0] for t in found.of(WRITTEN, SEARCH, BACK) if t.values and not t.oracle]
    assert len(found.tied()) == sum(same(v, best.values[0]) for v in values) - 1
    for knob in found.space.knobs:
        trial = found.back(knob)
        if trial is not None:
            assert trial.origin == BACK and trial.lines[knob.axis] != best.lines[knob.axis]
            assert {a: line for a, line in trial.lines.items() if a != knob.axis} == {
                a: line for a, line in best.lines.items() if a != knob.axis
            }
    words = shown.text(found, "mine.yaml")
    assert f"grid of {len(found.of(GRID))}" in words and "alone as written" in words
    assert words.endswith("\n\n" + shown.command(best, "mine.yaml"))


def test_the_lines_to_copy_make_the_best_run(tmp_path: Path) -> None:
    found = tune(loaded(), tmp_path / "tuned", budget=16)
    best = found.best()
    assert best is not None
    again = load.experiment(document.loads(f"{HEAD}{KNOBS}", "mine.yaml"), shown.sets(best))
    from gpusim.experiment.tasks import plan

    assert tuple(task.key for task in plan(again, tmp_path / "tuned").grid) == best.runs
    import yaml

    lines = yaml.safe_load(shown.copied(best))
    assert lines["policies"]["prefetch"] == best.lines["policies.prefetch"]


def test_out_of_memory_is_a_failed_trial_and_its_shortfall_leads_to_where_programs_fit(tmp_path: Path) -> None:
    sets = ("policies.evict=lru", "trace=resnet50-train")
    found = tune(loaded(MEMORY, *sets), tmp_path, minimise=["reserved_peak_bytes"], budget=40)
    failed = [t for t in found.trials if t.values is None]
    assert failed and {t.why for t in failed} == {"oom"} and all(0 < t.shortfall < REFUSED for t in failed)
    finished = [t for t in found.trials if t.values is not None]
    best = found.best()
    assert best in finished and "out of memory" in shown.text(found)

    def share(trial: object) -> int:
        return int(trial.lines["memory"].removesuffix(" %"))  # type: ignore[attr-defined]

    failed.sort(key=share)
    # Less memory, a shorter way: the shortfall falls as memory grows.
    assert failed[0].shortfall > failed[-1].shortfall
    # The search goes to the edge, from above: later trials fail less often than those that are drawn at first.
    half = len(found.trials) // 2
    edge = min(share(t) for t in finished)
    assert max(share(t) for t in failed) <= edge + 5
    assert sum(share(t) <= edge + 10 for t in found.trials[half:]) > sum(share(t) <= edge + 10 for t in found.trials[:half])


def test_where_nothing_fits_the_shortfall_is_searched_as_a_metric_is() -> None:
    doc = document.loads(f"{HEAD}  memory: {{from: 1 %, to: 100 %}}\n", "mine.yaml")
    made = space(load.experiment(doc, ["policies.evict=lru"]))

    def searched(seed: int, fits: bool) -> list[int]:
        tried, search = [], Search(made, [Goal("slowdown")], seed)
        for _ in range(6):
            for point in search.ask(5):
                tried.append(int(point["memory"]))
                short = 1 - tried[-1] / 101
                search.tell(point, (short,) if fits else None, short)
        return tried

    before, after = 0.0, 0.0
    for seed in range(3):
        tried = searched(seed, fits=False)
        assert tried == searched(seed, fits=True)
        before, after = before + sum(tried[:10]) / 10, after + sum(tried[10:]) / 20
    assert after / 3 > before / 3 + 15  # towards more memory: the first ten are drawn at random


def test_what_is_refused_when_it_runs_is_a_failed_trial_with_its_reason(tmp_path: Path) -> None:
    marks = "".join(f"  policies.release.watermark.{name}: {{from: 0.05, to: 0.3}}\n" for name in ("low", "high"))
    found = tune(loaded(marks, "policies.evict=lru", "policies.release=watermark"), tmp_path, budget=10)
    refused = [t for t in found.of(SEARCH) if t.values is None]
    assert refused and len(refused) < 9
    for trial in found.of(SEARCH):
        assert trial.point is not None
        low, high = (float(trial.point[f"policies.release.watermark.{name}"]) for name in ("low", "high"))
        assert (trial.values is None) == (low > high)
    assert all(t.shortfall == REFUSED and "above its high one" in t.why for t in refused)
    assert f"{len(refused)} came to nothing: {len(refused)} policy 'watermark' has its low mark" in shown.text(found)


def test_several_places_count_alike_and_several_goals_give_a_front(tmp_path: Path) -> None:
    found = tune(loaded(KNOBS, "memory=80 %,60 %", "policies.evict=lru,cost_aware"), tmp_path, budget=14,
                 minimise=["slowdown", "h2d_bytes"], grid=True)  # fmt: skip
    results = {r.key: r for r in found.results}
    assert found.places == 2
    for trial in found.trials:
        both = [results[key].metrics["slowdown"] for key in trial.runs]
        assert trial.values is not None
        assert len(both) == 2 and trial.values[0] == pytest.approx((both[0] * both[1]) ** 0.5)
    front = found.front()
    pairs = [t.values for t in found.of(WRITTEN, SEARCH) if t.values]
    for values in (t.values for t in front):
        assert values and not any(p[0] <= values[0] and p[1] <= values[1] and p != values for p in pairs)
    assert [t.values for t in front] == sorted({p for p in pairs if not any(
        o[0] <= p[0] and o[1] <= p[1] and o != p for o in pairs)})  # fmt: skip
    assert "The Pareto front has" in shown.text(found) and found.importance.keys() == {"slowdown", "h2d_bytes"}


def test_importance_is_that_of_the_knob_that_decides() -> None:
    made = space(loaded())
    points = made.grid(200)
    values = [abs(int(point["policies.prefetch.next_k.k"]) - 7) + 0.0 for point in points]
    found = importance(made, Goal("slowdown"), points, values)
    assert next(iter(found)) == "policies.prefetch.next_k.k" and sum(found.values()) == pytest.approx(1)
    assert importance(made, Goal("slowdown"), points[:5], values[:5]) == {}


def test_references_are_those_of_the_goals_and_of_the_allocators_as_written(tmp_path: Path) -> None:
    found = tune(loaded("  policies.place: [best_fit, first_fit]\n", "policies.evict=lru"), tmp_path, budget=5)
    assert found.complete and len(found.of(WRITTEN, SEARCH)) == 3
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    measured = [of["bound_no_limit_ns"] for of in manifest["references"].values()]
    assert len(measured) == 3 and len({tuple(keys) for keys in measured}) == 1  # the allocator as written, for all
    assert all(set(of) == {"bound_no_limit_ns"} for of in manifest["references"].values())


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"budget": 0}, GpusimError, "a budget of 0 leaves nothing to run"),
        ({"batch": 0}, GpusimError, "a batch of 0 leaves nothing to run"),
        ({"budget": 2}, GpusimError, "as written has 3 trials, and the budget is 2"),
        ({"budget": 10**6}, GridError, "more than max_runs = 1,000"),
        ({"budget": 600, "grid": True}, GridError, "and as many of the grid"),
        ({"budget": 9, "minimise": ["gpu_faults"]}, GpusimError, "no run of this experiment measures 'gpu_faults'"),
    ],
)
def test_what_cannot_be_searched_is_refused(arguments: dict, error: type, said: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=said):
        tune(loaded(), tmp_path / "out", **arguments)


def test_without_optuna_a_search_names_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(GpusimError, match=r"a search needs Optuna \(pip install 'gpusim\[tune\]'\)"):
        tune(loaded(), tmp_path / "out", budget=5)
    assert not (tmp_path / "out").exists()

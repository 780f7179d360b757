"""Do error bars of a profile reach the answer: intervals, ties of policies that take turns, and the number that flips the best?

The program has two tensors, S of 1 block and L of 2, in memory for 3.  Four times a block of its own pushes one of them out:
`lru` takes S, which is written each time, so 4 copies of 1 block leave and 4 come; `largest` takes L, which is only read, so
1 copy of 2 blocks leaves and 4 come.  A block comes in 1024 ns and leaves in 10240 / d2h.  Of the 14 kernels of 100 ns the
four that use the tensor that stays run beside copies:

    lru      1000 + 4 * 1024 + 4 * 10240 / d2h      at 8 bytes/ns  10216, at 4 bytes/ns  15336
    largest  1000 + 8 * 1024 + 2 * 10240 / d2h      at 8 bytes/ns  11752, at 4 bytes/ns  14312

They are equal where 4096 = 2 * 10240 / d2h, at 5 bytes/ns.  Between a low end l and the value 8, which is the high end as
well, a draw is below 5 with the probability ((5 - l) / (8 - l))^2: 1/16 from 4, 4/25 from 3.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hand_worked import BLOCK, ROUND_NUMBERS, Steps
from made_results import run as made_run
from typer.testing import CliRunner

from gpusim.base.yaml import find
from gpusim.cli.app import app
from gpusim.engine.run.simulate import simulate
from gpusim.experiment import grid, load
from gpusim.experiment.reach import TrafficCounts, reach, weighs_times
from gpusim.experiment.resolved import resolved
from gpusim.experiment.spec import KINDS, Capacity, Policies, PolicySpec, RunSpec, Uncertainty
from gpusim.experiment.tasks import inputs, plan
from gpusim.machine import catalogue
from gpusim.machine.constants import machine as machine_of
from gpusim.machine.kernels.durations import durations
from gpusim.machine.sampling import draws, intervals, with_numbers
from gpusim.policies import registry
from gpusim.programs.recordings import import_trace
from gpusim.results.result import Result
from gpusim.results.sampled import Sampled
from gpusim.show.answer import answer
from gpusim.show.figures import draw
from gpusim.show.report import report
from gpusim.show.table import render, rows
from gpusim.trace.files import load_trace, save_trace
from gpusim.trace.trace import MOVES
from gpusim.trace.workload import build

ROOT = Path(__file__).parents[2]


def exact(name: str, d2h: float) -> float:
    return 1000 + 4 * 1024 + 4 * BLOCK / d2h if name == "lru" else 1000 + 8 * 1024 + 2 * BLOCK / d2h


def program() -> Steps:
    steps = Steps()
    small, large = steps.alloc(1), steps.alloc(2)
    steps.kernel(100, writes=(small,))
    steps.kernel(100, writes=(large,))
    for _ in range(4):
        other = steps.alloc(1)
        steps.kernel(100, writes=(other,))
        steps.free(other)
        steps.kernel(100, reads=(small,), writes=(small,))
        steps.kernel(100, reads=(large,))
    return steps


def machine(folder: Path, d2h: str, name: str = "round", **bars: str) -> None:
    """A machine file of round numbers, all measured and none uncertain but the rate to the host."""
    text = yaml.safe_load(find.find("profile", "a100-pcie-40gb").read_text())

    def certain(part: Any, path: str) -> None:
        for key, item in part.items():
            here = f"{path}.{key}".lstrip(".")
            if isinstance(item, dict) and "value" in item:
                item.update(basis="measured")
                for bar in ("low", "high"):
                    item.pop(bar, None)
                if here in ROUND_NUMBERS:
                    value = ROUND_NUMBERS[here]
                    unit = "ns" if path != "link" or "latency" in key else "B/s"
                    item["value"] = value if isinstance(value, int) else f"{value} {unit}"
            elif isinstance(item, dict) and here != "sources":
                certain(item, here)

    certain(text, "")
    text["name"] = name
    text["link"]["latency_queued"]["value"] = "0 ns"
    text["link"]["d2h"].update(value=d2h, **bars)
    text["link"]["both"]["value"] = "14 GB/s"
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(text))


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Runs the program under both policies on a machine with this rate to the host; the results."""
    save_trace(program().trace(), tmp_path / "program.npz")

    def play(*sets: str, d2h: str = "8 GB/s", out: str = "out", jobs: int = 1, told: Any = None, **bars: str) -> list[Result]:
        machine(tmp_path, d2h, **bars)
        path = tmp_path / "e.yaml"
        path.write_text(
            f"question: Which?\ntrace: program.npz\nprofile: round.yaml\nmemory: {3 * BLOCK} B\n"
            "policies: {place: first_fit, evict: [lru, largest]}\n"
        )
        loaded = load.experiment(str(path), sets)
        todo = plan(loaded, tmp_path / out)
        done = grid.run(
            todo, resolved(loaded.experiment), inputs(loaded), uncertainty=loaded.experiment.uncertainty, jobs=jobs,
            progress=lambda *counts: None if told is None else told.append(counts),
        )  # fmt: skip
        assert not done.failures
        return done.results

    return play



def by_policy(results: list[Result]) -> dict[str, Result]:
    return {r.spec["evict"]: r for r in results}


def samples(folder: Path) -> dict[str, Any]:
    (file,) = (folder / "uncertainty").iterdir()
    found: dict[str, Any] = json.loads(file.read_text())
    return found


# --- the answer


@pytest.mark.slow
def test_every_sample_is_the_run_on_its_machine(run: Any, tmp_path: Path) -> None:
    results = by_policy(run("uncertainty=25", low="4 GB/s"))
    (number,) = samples(tmp_path / "out")["numbers"]
    assert (number["path"], number["low"], number["high"], number["assumed"]) == ("link.d2h", 4e9, 8e9, False)
    for name, result in results.items():
        assert result.metrics["makespan_ns"] == exact(name, 8)
        expected = [exact(name, draw / 1e9) for draw in number["draws"]]
        assert np.allclose(result.sampled.values["makespan_ns"], expected, rtol=0, atol=8)  # each copy ends at a whole ns
        slowdown = np.array(result.sampled.values["makespan_ns"]) / 1400
        assert np.array_equal(result.sampled.values["slowdown"], slowdown)


@pytest.mark.slow
def test_policies_that_lead_by_turns_tie(run: Any) -> None:
    results = run("uncertainty=50", low="3 GB/s")
    told = answer(results)
    assert told.startswith("lru and largest tie, slowdown 7.30× (7.4")
    assert "On 50 sampled machines lru and largest take turns." in told
    assert [row["tied_for_best"] for row in rows(results)] == [True, True]
    a, b = (np.array(r.sampled.values["makespan_ns"]) for r in results)
    assert 7 <= (a > b).sum() <= 9  # 4/25 of 50, drawn in 50 equal parts


@pytest.mark.slow
def test_a_rare_change_of_order_is_no_tie_but_told(run: Any) -> None:
    results = run("uncertainty=50", low="4 GB/s")
    told = answer(results)
    assert told.startswith("lru has the lowest slowdown, 7.30× (7.4") and "largest has 8.39×" in told
    assert "lru is best or tied on 47 of 50 sampled machines." in told or "on 46 of 50" in told
    assert [row["tied_for_best"] for row in rows(results)] == [True, False]


@pytest.mark.slow
def test_the_number_that_would_change_the_best_is_named(run: Any) -> None:
    results = run("uncertainty=5", low="4 GB/s")
    pushed = {name: list(r.sampled.pushed.values()) for name, r in by_policy(results).items()}
    assert pushed == {"lru": [exact("lru", 4)], "largest": [exact("largest", 4)]}
    assert "With link.d2h of round.yaml at 4 GB/s instead of 8 GB/s, largest would be best." in answer(results)
    assert [row["best_with"] for row in rows(results)] == [
        [], [{"number": "link.d2h", "profile": "round.yaml", "at": "4 GB/s", "instead_of": "8 GB/s"}],
    ]  # fmt: skip


@pytest.mark.slow
def test_no_number_is_named_when_none_changes_it(run: Any) -> None:
    results = run("uncertainty=5", low="6 GB/s")
    told = answer(results)
    assert "lru is best or tied on all 5 sampled machines." in told and "instead of" not in told
    assert [row["best_with"] for row in rows(results)] == [[], []]


@pytest.mark.slow
def test_a_machine_without_error_bars_has_no_spread(run: Any) -> None:
    results = run("uncertainty=3")
    for r in results:
        assert r.sampled.values["makespan_ns"] == (r.metrics["makespan_ns"],) * 3 and not r.sampled.pushed


@pytest.mark.slow
def test_table_figure_and_report_show_the_interval(run: Any) -> None:
    results = run("uncertainty=50", low="3 GB/s")
    lines = render(results, width=100).splitlines()
    low, high = np.quantile(results[0].sampled.values["slowdown"], [0.1, 0.9])
    assert "p10 to p90" in lines[0] and f"{low:.2f} to {high:.2f}" in lines[1]
    assert rows(results)[0]["p10_p90"] == pytest.approx((low, high))
    text = report(results)
    assert "1 of its numbers between error bars of their own, 0 estimates within 15 %" in text
    assert "## How sure" in text and "- On 50 sampled machines lru and largest take turns." in text
    assert "run with `--uncertainty`" in report([replace(r, sampled=None) for r in results])
    drawn = {str(artist.get_gid()): artist for artist in draw("policy_comparison", results).axes[0].lines}
    assert list(drawn["interval:lru"].get_xdata()) == pytest.approx([low, high])


def test_a_policy_that_does_not_finish_everywhere_is_told() -> None:
    """`b` is faster where it finishes, which is on two of four machines: they take turns."""
    about = {"pushed": {}, "given": 1, "assumed": 0, "estimated": 0.15}
    a, b = (
        replace(made_run(name, slowdown=slow), sampled=Sampled({"slowdown": column}, **about))
        for name, slow, column in (("a", 1.5, (1.4, 1.5, 1.5, 1.6)), ("b", 1.4, (1.3, 1.4, np.inf, np.inf)))
    )
    told = answer([a, b])
    assert told.startswith("b and a tie, slowdown 1.40× (1.31× to 1.39×). On 4 sampled machines b and a take turns.")
    assert "b does not finish on 2 of 4 sampled machines." in told


# --- the same plain results, the same samples


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*")) if p.is_file() and p.name != "machine.json"
    }  # fmt: skip


@pytest.mark.slow
def test_sampling_leaves_the_runs_as_they_are(run: Any, tmp_path: Path) -> None:
    run(out="plain", low="4 GB/s")
    run("uncertainty=5", out="sampled", low="4 GB/s")
    plain, sampled = contents(tmp_path / "plain"), contents(tmp_path / "sampled")
    differ = {name for name in plain if plain[name] != sampled[name]}
    assert differ == {"manifest.json", "experiment.yaml"}  # both say that it was asked for
    assert {Path(name).parts[0] for name in sampled.keys() - plain.keys()} == {"uncertainty"}
    assert all(r.sampled is None for r in run(out="sampled", low="4 GB/s"))


@pytest.mark.slow
def test_the_same_samples_for_any_number_of_workers(run: Any, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    for jobs in (1, 2):
        run("uncertainty=5", out=str(jobs), jobs=jobs, low="4 GB/s", told=told)
        assert told[-2:] == [(0, 15), (15, 15)]  # five machines, on each two runs and one without a limit
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    run("uncertainty.seed=1", "uncertainty.samples=5", out="other", low="4 GB/s")
    one, other = samples(tmp_path / "1"), samples(tmp_path / "other")
    assert one["numbers"][0]["draws"] != other["numbers"][0]["draws"]


@pytest.mark.slow
def test_figures_follow_what_is_sampled(run: Any, tmp_path: Path) -> None:
    """Runs that are there are not simulated again, but their figure is drawn with the intervals, and then without."""
    run(out="prepared", low="4 GB/s")
    figure = tmp_path / "out" / "figures" / "policy_comparison.svg"
    drawn = []
    for words in [], ["--uncertainty", "3"], []:
        command = ["run", str(tmp_path / "e.yaml"), "-o", str(tmp_path / "out"), "--format", "svg", "-j", "1"]
        assert CliRunner().invoke(app, [*command, *words]).exit_code == 0
        drawn.append(figure.read_text())
    assert "interval:lru" in drawn[1] and "interval:lru" not in drawn[0] and drawn[0] == drawn[2]


# --- which machines are drawn


def test_what_varies_and_how_far() -> None:
    """From the profile's text: `link.h2d` is an estimate without bars, `link.latency_queued` has both, `both` has none."""
    profile = catalogue.load("a100-pcie-80gb")
    found = {u.path: u for u in intervals(profile, 0.15)}
    known = dict(catalogue.quantities(profile))
    for path, u in found.items():
        q = known[path]
        assert u.low <= u.value <= u.high and u.low < u.high
        assert q.basis == "estimated" or (q.low, q.high) != (None, None)
    assert (found["link.h2d"].low, found["link.h2d"].high) == pytest.approx((0.85 * 25.7e9, 1.15 * 25.7e9))
    assert found["link.h2d"].assumed and not found["link.latency_queued"].assumed
    assert found["memory.read"].high == known["memory.bandwidth"].value  # below what the pins do
    certain = known.keys() - found.keys()
    assert {"link.nominal", "memory.bandwidth", "nvme.read", "host.capacity", "copy_engines.h2d"} <= certain
    assert {u.path for u in intervals(profile, 0.0)} == {
        path for path, q in known.items() if q.low is not None or q.high is not None
    }  # fmt: skip


def test_draws_cover_each_interval_evenly_and_know_only_their_own_name() -> None:
    profile = catalogue.load("gh200-96gb")
    uncertain = intervals(profile, 0.15)
    drawn = draws(profile, uncertain, 20, seed=3)
    for u in uncertain:
        column = np.array([numbers[u.path] for numbers in drawn])
        assert u.low <= column.min() and column.max() <= u.high
        if "B/s" in u.quantity.text():
            edges = u.at(np.linspace(0, 1, 21))
            assert np.array_equal(np.histogram(column, edges)[0], np.ones(20))
    alone = draws(profile, uncertain[3:4], 20, seed=3)
    assert [n[uncertain[3].path] for n in alone] == [n[uncertain[3].path] for n in drawn]


def test_the_triangle() -> None:
    """From 4 over 8 to 16: below the peak lies a third, of which a quarter below the middle; the ends are never left."""
    (u,) = [replace(u, low=4.0, value=8.0, high=16.0) for u in intervals(catalogue.load("l4"), 0.1) if u.path == "link.h2d"]
    assert u.at(np.array([0.0, 1 / 12, 1 / 3, 5 / 6, 1.0])) == pytest.approx([4, 6, 8, 12, 16])


def test_curves_and_both_directions_follow() -> None:
    profile = catalogue.load("v100-pcie-32gb")
    slower = with_numbers(profile, {"link.h2d": profile.link.h2d.value / 2, "link.d2h": profile.link.d2h.value / 2})
    assert [rate for _, rate in slower.link.size_curve] == [rate / 2 for _, rate in profile.link.size_curve]
    assert slower.link.both.value <= slower.link.h2d.value + slower.link.d2h.value
    assert profile == catalogue.load("v100-pcie-32gb")


@pytest.mark.slow
def test_most_measured_rates_lie_within_the_share_that_estimates_get() -> None:
    """What an estimate does, "the same share of nominal as others reach", tried where the truth is known."""
    nominal = dict.fromkeys(("read", "write", "copy", "copy_engine"), "bandwidth") | {"h2d": "nominal", "d2h": "nominal"}
    off = []
    for name, of in nominal.items():
        parts = [p.memory if of == "bandwidth" else p.link for p in map(catalogue.load, catalogue.names())]
        reached = [getattr(p, name).value / getattr(p, of).value for p in parts if getattr(p, name).basis == "measured"]
        off += [abs(r / np.median(reached) - 1) for r in reached]
    assert len(off) > 40 and 0.7 < np.mean(np.array(off) <= Uncertainty().estimated) < 0.95


# --- which runs need not be simulated again


@pytest.mark.slow
@pytest.mark.parametrize("policies", [
    {}, {"place": "best_fit", "prefetch": "next_k"}, {"place": "cuda_async", "evict": "largest"}, {"evict": "arc"},
    {"evict": "cost_aware"}, {"place": "cuda_malloc", "evict": "fifo"}, {"place": "best_fit", "defrag": "slide"},
])  # fmt: skip
def test_no_number_changes_a_run_by_more_than_its_reach(policies: dict[str, str]) -> None:
    trace, profile = load_trace(ROOT / "traces" / "resnet50-train.npz"), catalogue.load("gh200-96gb")
    work = build(trace, durations(trace, profile)[0])
    capacity = int(0.6 * work.live_peak)
    named = {kind: PolicySpec(policies.get(kind, getattr(Policies(), kind)[0].name)) for kind in KINDS}
    spec = RunSpec("", "", Capacity(), Capacity(), **named)
    counts = TrafficCounts(trace.ops, int(np.isin(trace.activity, MOVES).sum()), trace.events)
    before = simulate(trace, profile, capacity_bytes=capacity, work=work, **policies)
    bounded = 0
    for u in intervals(profile, 0.15):
        for value in (u.low, u.high):
            other = with_numbers(profile, {u.path: value})
            there = build(trace, durations(trace, other)[0])
            kernels = float(np.abs(there.duration - work.duration).sum())
            machines = [machine_of(trace, p, capacity) for p in (profile, other)]
            most = reach(before.metrics, counts, weighs_times(spec, registry.of()), kernels, *machines)
            if 0 < most < float("inf"):
                after = simulate(trace, other, capacity_bytes=capacity, work=there, **policies)
                assert abs(after.metrics["makespan_ns"] - before.metrics["makespan_ns"]) <= most, u.path
                bounded += 1
    assert bounded >= (8 if "prefetch" in policies else 10)  # its copies change places: kernels and links are simulated


# --- the command, and what a recording repeats of itself


@pytest.mark.slow
def test_the_verb_samples_sixteen_machines_or_as_many_as_asked(run: Any, tmp_path: Path) -> None:
    run(out="prepared", low="4 GB/s")
    for words, count in (["--uncertainty"], 16), (["--uncertainty", "3"], 3), (["--uncertainty", "--json"], 16):
        done = CliRunner().invoke(
            app, ["run", str(tmp_path / "e.yaml"), "-o", str(tmp_path / f"{len(words)}{count}"), "--no-figures", *words]
        )
        assert done.exit_code == 0, done.stderr
        if "--json" in words:
            assert len(json.loads(done.stdout)[0]["samples"]) == count
        else:
            assert f"Sampled: {count} machines per profile" in done.stdout


@pytest.mark.slow
def test_a_recording_with_times_is_first_repeated(tmp_path: Path) -> None:
    """Of a step of 56.055 ms on a V100 the recorded kernels and host times, replayed without a limit, make 2 % more."""
    save_trace(import_trace(ROOT / "tests/data/traces/kineto_v100_resnet50.json.gz"), tmp_path / "step.npz")
    (tmp_path / "e.yaml").write_text("question: How long?\ntrace: step.npz\nprofile: v100-sxm2-32gb\n")
    done = CliRunner().invoke(app, ["run", str(tmp_path / "e.yaml"), "-o", str(tmp_path / "out"), "--no-figures"])
    assert done.exit_code == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "Kernel times: all recorded. Baseline:" in words and "the model is off" not in words  # it has no flops
    assert "Baseline: without a memory limit the replay takes 57.2 ms, the recording 56.1 ms (+2.0 %)." in words


@pytest.mark.slow
def test_a_recording_with_segments_is_first_repeated(tmp_path: Path) -> None:
    text = "question: How much?\ntrace: gpt-medium-infer-snapshot\nprofile: l4\npolicies: {evict: none}\n"
    (tmp_path / "e.yaml").write_text(text)
    done = CliRunner().invoke(app, ["run", str(tmp_path / "e.yaml"), "-o", str(tmp_path / "out"), "--no-figures"])
    assert done.exit_code == 0, done.stderr
    assert "the model puts 1,666 of 1,666 allocations at their recorded addresses" in done.stdout

"""Is unified memory an axis like the others: from the YAML through the grid to results, tables and what is told?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gpusim.base.errors import ConfigError, TraceError
from gpusim.base.yaml.find import find_run, is_managed
from gpusim.base.yaml.values import PolicySpec
from gpusim.cli.app import app
from gpusim.engine.pages.before import holds_all
from gpusim.engine.pages.run import simulate_unified
from gpusim.engine.pages.settings import DriverSettings
from gpusim.experiment import grid, load
from gpusim.experiment.resolved import resolved
from gpusim.experiment.spec import expand
from gpusim.experiment.tasks import inputs, plan
from gpusim.machine import catalogue
from gpusim.programs.managed import text
from gpusim.results.compare import changes
from gpusim.results.folder import load_folder
from gpusim.results.summary import summary

PROGRAM = """
arrays: {a: 4 MiB, b: 4 MiB}
steps:
  - host_write: a
  - start
  - repeat: 2
    steps:
      - kernel: copy
        accesses: [{read: a}, {write: b}]
"""
YAML = """
question: What does the driver cost?
trace: program.yaml
profile: l4
memory: [100 %, 50 %]
unified: [driver, driver(advice=zero_copy)]
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    (tmp_path / "program.yaml").write_text(PROGRAM)
    path = tmp_path / "e.yaml"
    path.write_text(YAML)
    return path


def execute(path: Path, out: Path, *sets: str, jobs: int = 1):
    loaded = load.experiment(str(path), sets)
    todo = plan(loaded, out)
    return todo, grid.run(todo, resolved(loaded.experiment), inputs(loaded), jobs=jobs)


def problems(path: Path, *sets: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load.experiment(str(path), sets)
    return [str(problem) for problem in caught.value.problems]


def test_a_run_that_does_not_name_it_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text("question: q?\ntrace: gpt-medium-infer\nprofile: l4\n")
    (plain,) = expand(load.experiment(str(path)).experiment)
    (named,) = expand(load.experiment(str(path), ["unified=none"]).experiment)
    (other,) = expand(load.experiment(str(path), ["unified=driver"]).experiment)
    assert plain == named and plain.hash == named.hash != other.hash
    assert "unified" not in plain.plain() and other.plain()["unified"] == "driver"
    assert "unified" not in resolved(load.experiment(str(path)).experiment)


def test_the_axis_spans_the_grid_and_comes_back_from_the_resolved_file(experiment: Path, tmp_path: Path) -> None:
    sets = ["unified=driver,driver(evict=lru, uvm_perf_prefetch_threshold=0)"]
    first = load.experiment(str(experiment), sets).experiment
    assert first.unified[1] == PolicySpec("driver", (("evict", "lru"), ("uvm_perf_prefetch_threshold", 0)))
    assert len(runs := expand(first)) == 4
    again = tmp_path / "again.yaml"
    again.write_text(resolved(first))
    assert [run.hash for run in expand(load.experiment(str(again)).experiment)] == [run.hash for run in runs]
    assert yaml.safe_load(resolved(first))["unified"] == ["driver", "driver(evict=lru, uvm_perf_prefetch_threshold=0)"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("unified=drivr", "there is no unified memory 'drivr'"),
        ("unified=driver(evct=lru)", "driver has no parameter 'evct'"),
        ("unified=driver(evict=lr)", "unified memory has no evict policy 'lr'"),
        ("unified=driver(prefetch=tre)", "unified memory has no prefetch policy 'tre'"),
        ("unified=driver(advice=zero)", "there is no advice 'zero'"),
        ("unified=driver(uvm_perf_prefetch_treshold=3)", "did you mean 'uvm_perf_prefetch_threshold'?"),
        ("unified=driver(uvm_perf_prefetch_threshold=high)", "not a whole number"),
        ("unified=none", "it runs under unified memory only"),
        ("policies.evict=belady", "there is no evict policy"),
        ("policies.release=watermark", "there is no release policy"),
        ("grain=2 MiB", "there is no grain"),
        ("tiers=host > nvme", "there is no tiers"),
        ("transform=batch(factor=2)", "which no transform can change"),
        ("trace=vector_ad", "vector_add"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(experiment: Path, said: str, told: str) -> None:
    assert told in problems(experiment, said)[0]


def test_the_drivers_fallback_is_told_and_no_mistake(experiment: Path) -> None:
    loaded = load.experiment(str(experiment), ["unified=driver(uvm_perf_prefetch_threshold=130)"])
    assert load.told(loaded) == ["uvm_perf_prefetch_threshold=130 is outside of 0..100: the driver takes its default, 51"]
    ran = CliRunner().invoke(app, ["validate", str(experiment), "--set", "unified=driver(uvm_perf_prefetch_threshold=130)"])
    assert ran.exit_code == 0 and "gpusim: note: uvm_perf_prefetch_threshold=130" in ran.stderr


def test_programs_are_found_by_name_like_traces() -> None:
    found = find_run("vector_add")
    assert is_managed(found) and found.name == "vector_add.yaml"
    assert not is_managed(find_run("gpt-medium-infer"))
    with pytest.raises(TraceError, match="vector_add"):
        find_run("vector-ad")


@pytest.mark.slow
def test_a_grid_runs_and_what_it_counts_adds_up(experiment: Path, tmp_path: Path) -> None:
    todo, done = execute(experiment, tmp_path / "out")
    assert not done.failures and len(done.results) == 4
    half = {str(r.spec["unified"]): r for r in done.results if r.spec["memory_share"] == 0.5}
    full = {str(r.spec["unified"]): r for r in done.results if r.spec["memory_share"] == 1.0}
    driver = full["driver"]
    # Array a comes once and in full, b begins on the GPU; nothing leaves.
    assert driver.metrics["h2d_bytes"] == 4 << 20 == driver.metrics["demanded_bytes"] + driver.metrics["prefetched_bytes"]
    assert (driver.metrics["d2h_bytes"], driver.metrics["evictions"]) == (0, 0)
    assert driver.metrics["chunks_peak_bytes"] == 8 << 20 == driver.spec["footprint"]
    # Memory as large as the footprint is no limit; without one, zero-copy is the faster of both: two passes are too few.
    least = full["driver(advice=zero_copy)"]
    assert least.metrics["slowdown"] == 1.0
    assert driver.metrics["slowdown"] == driver.metrics["makespan_ns"] / least.metrics["makespan_ns"]
    squeezed = half["driver"]
    assert squeezed.metrics["evictions"] > 0 and squeezed.metrics["refetched_bytes"] > 0
    assert squeezed.metrics["chunks_peak_bytes"] == 4 << 20
    assert squeezed.metrics["d2h_bytes"] == squeezed.metrics["evicted_bytes"]
    assert squeezed.metrics["slowdown"] > 1
    zero = half["driver(advice=zero_copy)"]
    # Two reads of a and two writes of b, each byte over the link, none of them kept.
    assert (zero.metrics["remote_bytes"], zero.metrics["h2d_bytes"]) == (4 * (4 << 20), 0)
    assert zero.metrics["makespan_ns"] == full["driver(advice=zero_copy)"].metrics["makespan_ns"]
    for result in load_folder(tmp_path / "out"):  # with timelines, which the grid leaves to those that draw
        m = result.metrics
        assert m["stall_ns"] == sum(m[f"stall_{cause}_ns"] for cause in ("fault", "migration", "remote", "explicit", "host"))
        assert abs(m["compute_busy_ns"] + m["stall_ns"] - m["makespan_ns"]) <= 12, "every ns is work or a wait, but for ticks"
        assert result.timeline["reserved_bytes"].max() <= result.spec["capacity"]
    again, second = execute(experiment, tmp_path / "out")
    assert second.ran == 0, "equal runs are read, not repeated"
    assert [t.key for t in again.tasks] == [t.key for t in todo.tasks]
    assert not changes(load_folder(tmp_path / "out"), done.results)
    header, *rows = summary(done.results).splitlines()
    assert "unified" in header.split(",") and len(rows) == 4


@pytest.mark.agreement
@pytest.mark.slow
def test_one_job_and_two_jobs_leave_the_same_bytes(experiment: Path, tmp_path: Path) -> None:
    execute(experiment, tmp_path / "one", jobs=1)
    execute(experiment, tmp_path / "two", jobs=2)
    for file in (tmp_path / "one" / "runs").rglob("*.*"):
        assert file.read_bytes() == (tmp_path / "two" / file.relative_to(tmp_path / "one")).read_bytes(), file.name


@pytest.mark.slow
def test_references_are_not_run_where_they_would_be_runs_of_the_grid(experiment: Path, tmp_path: Path) -> None:
    todo = plan(load.experiment(str(experiment)), tmp_path / "out")
    full, half, zero, other = todo.grid
    # What has room for everything, and what leaves everything where it is, measures itself and others.
    assert todo.no_limit[half.key] == todo.no_limit[full.key] == (full.key, zero.key) == todo.no_limit[other.key]
    assert (todo.oracle[full.key], todo.oracle[zero.key], todo.oracle[other.key]) == ((full.key,), (zero.key,), (other.key,))
    (best,) = [task for task in todo.tasks if task not in todo.grid]
    assert todo.oracle[half.key] == (best.key,) and str(best.spec.unified) == "driver(evict=belady)"
    assert todo.extent() == "1 more to measure them against: 1 with oracle eviction; bounds: false leaves them out"
    assert plan(load.experiment(str(experiment), ["bounds=false"]), tmp_path / "out").extent() == ""
    alone = plan(load.experiment(str(experiment), ["memory=50 %", "unified=driver"]), tmp_path / "out")
    assert "1 without a memory limit, 1 with oracle eviction" in alone.extent()
    said = CliRunner().invoke(app, ["validate", str(experiment)]).stdout
    assert "runs: 4, and 1 more to measure them against" in said


@pytest.mark.slow
@pytest.mark.parametrize("evict", ["driver", "lru", "clean_drop"])
@pytest.mark.parametrize("advice", ["none", "zero_copy", "prefetch"])
def test_a_run_with_room_for_everything_is_what_its_references_would_be(experiment: Path, evict: str, advice: str) -> None:
    program, profile = text.load(experiment.parent / "program.yaml"), catalogue.load("a100-pcie-80gb")
    own = DriverSettings(evict=evict, advice=advice)
    half = program.footprint // 2
    sizes = [size for size in (half, program.footprint) if holds_all(program, profile, own, size)]
    assert (half in sizes) == (advice == "zero_copy")
    ran = [simulate_unified(program, profile, settings=own, capacity_bytes=size) for size in (*sizes, 16 * program.footprint)]
    ran.append(simulate_unified(program, profile, settings=replace(own, evict="belady"), capacity_bytes=sizes[0]))
    for r in ran[1:]:
        assert r.metrics == ran[0].metrics


@pytest.mark.parametrize(
    ("settings", "hints", "kind", "holds"),
    [
        (DriverSettings(), "", "managed", False),
        (DriverSettings(advice="zero_copy"), "", "managed", True),
        (DriverSettings(advice="a:zero_copy b:zero_copy"), "", "managed", False),  # not worth a look
        (DriverSettings(advice="zero_copy"), "  - prefetch: a\n", "managed", False),
        (DriverSettings(advice="zero_copy"), "", "system", False),
        (DriverSettings(advice="zero_copy", evict="early"), "", "managed", False),
    ],
)
def test_half_the_memory_holds_all_only_where_nothing_comes(
    tmp_path: Path, settings: DriverSettings, hints: str, kind: str, holds: bool
) -> None:
    said = PROGRAM.replace("b: 4 MiB", f"b: {{bytes: 4 MiB, kind: {kind}}}").replace("  - start\n", f"{hints}  - start\n")
    (tmp_path / "p.yaml").write_text(said)
    program = text.load(tmp_path / "p.yaml")
    assert holds_all(program, catalogue.load("l4"), settings, program.footprint // 2) is holds
    assert holds_all(program, catalogue.load("l4"), settings, program.footprint) is (settings.evict != "early")


def test_a_few_runs_of_pages_are_worth_workers(experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A managed program is some lines of text, however long its runs take."""
    monkeypatch.setattr(grid, "cores", lambda: 7)
    runs = plan(load.experiment(str(experiment)), tmp_path / "out").grid
    assert len(runs) == 4 and grid._helpful(runs) == 7
    assert grid._helpful(runs[:2]) == 1 and grid._helpful(runs[:2], times=2) == 7

"""Does `gpusim init` write an experiment that runs, and does `--dry-run` say what a run will be?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpusim.base.files import read_json, write_json
from gpusim.base.yaml.find import names
from gpusim.cli.app import app
from gpusim.experiment import walls
from gpusim.experiment.walls import PAGES, TENSORS, Timed

YAML = """
question: How long?
trace: gpt-medium-infer
profile: l4
memory: 80 %
policies: {place: best_fit, evict: [lru, fifo]}
"""


def gpusim(*said: object, code: int = 0) -> Any:
    done = CliRunner().invoke(app, [str(word) for word in said])
    assert done.exit_code == code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done


def table(*said: object) -> Any:
    return json.loads(gpusim(*said, "--json").stdout)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- init


@pytest.mark.slow
@pytest.mark.parametrize("name", [*names("trace"), *names("managed program")])
def test_every_shipped_trace_gets_an_experiment_that_is_valid(name: str, here: Path) -> None:
    gpusim("init", name, "-o", "x.yaml")
    assert table("validate", "x.yaml")["runs"] > 1


@pytest.mark.slow
def test_the_experiment_runs_and_can_be_checked(here: Path) -> None:
    said = gpusim("init", "gpt-medium-infer", "--on", "l4,l40s").stdout
    assert said.startswith("gpt-medium-infer-experiment.yaml: an experiment on gpt-medium-infer; `gpusim run")
    text = (here / "gpt-medium-infer-experiment.yaml").read_text()
    assert text.count("#") > 8 and 'profile: ["l4", "l40s"]' in text
    rows = table("run", "gpt-medium-infer-experiment.yaml", "--set", "memory=80 %", "--no-figures")
    assert len(rows) == 8 and {row["outcome"] for row in rows} == {"finished"}
    assert "8 runs are right, 0 wrong" in gpusim("check", "results/gpt-medium-infer-experiment").stdout


def test_only_what_the_trace_can_answer_is_asked(here: Path) -> None:
    gpusim("init", "gpt-medium-infer-snapshot")
    text = (here / "gpt-medium-infer-snapshot-experiment.yaml").read_text()
    assert "prefetch" not in text and "transform" not in text and "its results are without swaps and times" in text
    assert "evict: none" in text and "place: [" in text
    gpusim("init", "triad")
    text = (here / "triad-experiment.yaml").read_text()
    assert "unified: [driver" in text and "policies" not in text


def test_a_trace_of_ones_own_is_found_from_the_experiments_folder(here: Path) -> None:
    log = here / "rmm.csv"
    log.write_text("Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000000,allocate,0x100,1024,0\n")
    gpusim("import", log)
    gpusim("init", "rmm.npz")
    assert 'trace: "rmm.npz"' in (here / "rmm-experiment.yaml").read_text()
    (here / "below").mkdir()
    gpusim("init", "rmm.npz", "-o", "below/x.yaml")
    assert table("validate", "below/x.yaml")["traces"] == 1


def test_no_file_is_overwritten_and_none_hides_the_trace(here: Path) -> None:
    (here / "x.yaml").write_text("mine")
    said = gpusim("init", "gpt-medium-infer", "-o", "x.yaml", code=2).stderr
    assert "x.yaml: there is such a file already (name another one: -o FILE)" in said
    assert (here / "x.yaml").read_text() == "mine"
    said = gpusim("init", "gpt-medium-infer", "-o", "gpt-medium-infer.yaml", code=2).stderr
    assert "would be taken for the trace of its name (-o gpt-medium-infer-experiment.yaml)" in said
    assert not (here / "gpt-medium-infer.yaml").exists()


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (("gpt-medium-infr",), "there is no trace 'gpt-medium-infr' (did you mean 'gpt-medium-infer'"),
        (("gpt-medium-infer", "--on", "l44"), "there is no profile 'l44'"),
        (("gpt-medium-infer", "--on", "2 x l4"), "'2 x l4' is 2 GPUs, and a run simulates one (write l4)"),
    ],
)
def test_mistakes_leave_no_file(said: tuple[str, ...], answer: str, here: Path) -> None:
    assert answer in gpusim("init", *said, code=2).stderr
    assert not list(here.iterdir())


# --- run --dry-run


@pytest.fixture
def experiment(here: Path) -> Path:
    path = here / "x.yaml"
    path.write_text(YAML)
    return path


def test_nothing_is_run_and_no_time_is_told_where_none_is_known(experiment: Path, here: Path) -> None:
    said = gpusim("run", experiment, "--dry-run").stdout
    assert said.startswith("2 runs, and 2 more to measure them against: 1 without a memory limit, 1 with oracle eviction;")
    assert "0 of 4 are in results/x; 4 to do" in said
    assert "expected time: not known: no run of this kind (tensors move) was timed here before" in said
    assert [path.name for path in here.iterdir()] == ["x.yaml"]
    assert table("run", experiment, "--dry-run")["seconds"] is None


@pytest.mark.slow
def test_a_run_is_expected_to_take_what_those_of_its_folder_took(experiment: Path, here: Path) -> None:
    gpusim("run", experiment, "--no-figures")
    (row,) = read_json(here / "results/x/machine.json")["timed"]
    assert (row["kind"], row["runs"]) == (TENSORS, 4) and row["seconds"] > 0 and row["events"] > 4000
    found = table("run", experiment, "--dry-run")
    assert (found["runs"], found["references"], found["there"], found["to_do"], found["seconds"]) == (2, 2, 4, 0, 0.0)
    walls.keep(here / "results/x", [Timed(TENSORS, 4, 8.0, row["events"])])
    said = gpusim("run", experiment, "--dry-run", "--force", "--set", "policies.evict=lru,fifo,lfu").stdout
    assert "expected time: about 10 s, without compiling and drawing: 4 runs in results/x took 8.0 s" in said
    assert "4 of 5 are in results/x; 5 to do" in said


def test_a_run_in_a_new_folder_is_expected_by_the_events_of_others(experiment: Path, here: Path) -> None:
    gpusim("run", experiment, "--no-figures", "-o", "results/one")
    events = read_json(here / "results/one/machine.json")["timed"][0]["events"]
    walls.keep(here / "results/one", [Timed(TENSORS, 4, 2.0, events)])
    found = table("run", experiment, "--dry-run", "-o", "results/two")
    assert found["seconds"] == pytest.approx(2.0)
    assert f"4 runs in other folders of results did {events / 2:,.0f} events a second" == found["basis"]
    assert not (here / "results/two").exists()


def test_runs_of_another_kind_tell_nothing(experiment: Path, here: Path) -> None:
    gpusim("run", experiment, "--no-figures", "-o", "results/one")
    events = read_json(here / "results/one/machine.json")["timed"][0]["events"]
    walls.keep(here / "results/one", [Timed(PAGES, 4, 2.0, events)])
    said = gpusim("run", experiment, "--dry-run", "-o", "results/two").stdout
    assert "expected time: not known: no run of this kind (tensors move)" in said


def test_times_of_a_grid_add_up_over_reruns_and_survive_a_damaged_file(experiment: Path, here: Path) -> None:
    gpusim("run", experiment, "--no-figures", "--set", "policies.evict=lru", "--set", "bounds=false")
    gpusim("run", experiment, "--no-figures", "--set", "policies.evict=lru,fifo", "--set", "bounds=false")
    (row,) = walls.read(here / "results/x")
    assert row.runs == 2 and row.seconds > 0
    write_json(here / "results/x/machine.json", {"timed": "nonsense"})
    assert walls.read(here / "results/x") == []
    assert "not known" in gpusim("run", experiment, "--dry-run", "--force").stdout


def test_repeats_on_sampled_machines_have_a_time_of_their_own(experiment: Path, here: Path) -> None:
    said = gpusim("run", experiment, "--dry-run", "--uncertainty", "4").stdout
    assert "2 of 2 to repeat on 4 sampled machines each" in said
    assert "expected time of that: not known: no sampled run of this kind (tensors move) was timed here before" in said
    gpusim("run", experiment, "--no-figures", "--uncertainty", "2", "--set", "policies.evict=lru")
    (sampled,) = (row for row in walls.read(here / "results/x") if row.kind == "tensors sampled")
    assert sampled.runs == 2 and sampled.seconds > 0
    walls.keep(here / "results/x", [Timed("tensors sampled", 2, 3.0, sampled.events)])
    asked = ("run", experiment, "--dry-run", "--set", "policies.evict=lru", "--uncertainty")
    found = table(*asked, "4")
    assert (found["to_do"], found["to_sample"], found["sample_seconds"]) == (0, 1, pytest.approx(6.0))
    assert "expected time of that: about 6 s, without compiling and drawing: 2 sampled runs in results/x took 3.0 s" in (
        gpusim(*asked, "4").stdout
    )
    assert "expected" not in gpusim(*asked, "2").stdout  # these are there
    found = table(*asked, "4", "-o", "results/other")
    assert found["sample_seconds"] == pytest.approx(6.0)

"""Does a grid that lies in columns do all that one in folders does?"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gpusim.base import files
from gpusim.cli.app import app
from gpusim.results import folder, segments

YAML = """
question: Does it work?
trace: gpt-medium-infer
profile: l4
memory: [100 %, 60 %]
policies:
  place: best_fit
  evict: [lru, random, belady]
seed: [0, 1, 2]
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(folder, "COLUMNS_FROM", 10)
    path = tmp_path / "e.yaml"
    path.write_text(YAML)
    return path


def gpusim(*words: object) -> Result:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done


def run(experiment: Path, out: Path, *words: object) -> Result:
    return gpusim("run", experiment, "-o", out, "--no-figures", "--jobs", 1, *words)


def contents(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file() and p.name != "machine.json"}


@pytest.mark.agreement
@pytest.mark.slow
def test_columns_and_folders_are_equal_to_the_last_bit(
    experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(experiment, tmp_path / "columns")
    run(experiment, tmp_path / "again", "--jobs", 2)
    assert contents(tmp_path / "columns") == contents(tmp_path / "again")
    monkeypatch.setattr(folder, "COLUMNS_FROM", 1000)
    run(experiment, tmp_path / "folders")
    assert not (tmp_path / "folders" / "columns").exists() and not list((tmp_path / "columns" / "runs").iterdir())
    assert "equal" in gpusim("compare", tmp_path / "folders", tmp_path / "columns", "--exact").output
    for name in ("summary.csv", "report.md", "experiment.yaml"):
        assert (tmp_path / "folders" / name).read_text() == (tmp_path / "columns" / name).read_text()
    table = gpusim("compare", tmp_path / "folders").output
    assert gpusim("compare", tmp_path / "columns").output == table
    assert table.startswith(run(experiment, tmp_path / "columns").output.partition("\n\n")[2].partition("\n\n")[0])


@pytest.mark.slow
def test_a_complete_folder_on_a_read_only_disk_is_shown_and_not_written(
    experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in (10, 1000):
        out = tmp_path / str(columns)
        monkeypatch.setattr(folder, "COLUMNS_FROM", columns)
        first = run(experiment, out).stdout
        with monkeypatch.context() as m:

            def refused(*args: object, **options: object) -> None:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))

            m.setattr(files, "write_atomic", refused)
            m.setattr(segments, "write_atomic", refused)
            again = run(experiment, out).stdout
            shown = gpusim("compare", out).stdout
        assert "all runs were there" in again and "executed" in first
        assert shown in again.replace("all runs were there", "")


@pytest.mark.slow
@pytest.mark.parametrize("file", ["manifest.json", "columns", "machine.json", "experiment.yaml"])
def test_the_named_command_repairs_what_is_damaged(experiment: Path, tmp_path: Path, file: str) -> None:
    """From the folder alone: it has the experiment; its columns are done again, all else is written anew."""
    out = tmp_path / "out"
    run(experiment, out)
    run(out / "experiment.yaml", out)
    before = contents(out)
    path = next((out / "columns").iterdir()) if file == "columns" else out / file
    source = experiment if file == "experiment.yaml" else out / "experiment.yaml"
    path.write_bytes(path.read_bytes()[:-30])
    said = run(source, out)
    if file in ("manifest.json", "columns"):
        assert f"{path}: " in said.stderr and "so it is written again" in said.stderr
    assert ("all runs were there" in said.stdout) is (file != "columns")
    after = contents(out)
    assert after.keys() == before.keys()
    differ = [name for name in after if after[name] != before[name]]
    assert set(differ) <= ({"experiment.yaml", "report.md"} if file == "experiment.yaml" else set())


@pytest.mark.slow
def test_a_log_that_is_asked_for_makes_folders_beside_the_columns(experiment: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(experiment, out)
    sets = ("--set", "policies.evict=lru", "--set", "memory=60 %", "--set", "seed=0", "--log")
    run(experiment, out, *sets)
    assert len(list((out / "runs").iterdir())) == 1
    assert "1 run is right" in gpusim("check", out).output
    assert "all runs were there" in run(experiment, out).stdout


def test_a_grid_by_mistake_names_its_size_and_the_ways_out(experiment: Path) -> None:
    seeds = ",".join(map(str, range(200_000)))
    done = CliRunner().invoke(app, ["run", str(experiment), "--set", f"seed={seeds}"])
    assert done.exit_code == 2
    assert "the grid has 1,200,000 runs (2 x 3 x 200000), more than max_runs = 1,000" in done.output
    assert "shorten a list, raise max_runs, or pass --allow-large" in done.output

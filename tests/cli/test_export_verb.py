"""`gpusim export` of results, and the same calls in Python: each format is written, and what cannot be is one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gpusim
from gpusim.base.errors import ResultError
from gpusim.cli.app import app
from gpusim.results.folder import load_folder

EXPERIMENT = """
question: q?
trace: resnet50-train
profile: a100-pcie-40gb
memory: 60 %
policies: {evict: [lru, fifo]}
bounds: false
"""
MANAGED = "arrays: {a: 4 MiB}\nsteps:\n  - host_write: a\n  - start\n  - kernel: k\n    accesses: [{read: a}]\n"


def call(*words: str, code: int = 0) -> str:
    ran = CliRunner().invoke(app, list(words))
    assert ran.exit_code == code, ran.output + str(ran.exception)
    return ran.output


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Results with logs, without them, and of a managed program."""
    here = tmp_path_factory.mktemp("runs")
    (here / "e.yaml").write_text(EXPERIMENT)
    (here / "p.yaml").write_text(MANAGED)
    (here / "m.yaml").write_text("question: q?\ntrace: p.yaml\nprofile: l4\nunified: driver\nbounds: false\n")
    for name, file, options in (("logged", "e", ["--log"]), ("bare", "e", []), ("managed", "m", ["--log"])):
        call("run", str(here / f"{file}.yaml"), "-o", str(here / name), "--no-figures", *options)
    return {name: here / name for name in ("logged", "bare", "managed")}


def keys(folder: Path) -> list[str]:
    return [result.key for result in load_folder(folder)]


@pytest.mark.parametrize("format", ["perfetto", "chrome", "parquet", "arrow"])
def test_a_run_is_written_and_the_same_each_time(format: str, folders: dict[str, Path], tmp_path: Path) -> None:
    key = keys(folders["logged"])[0]
    said = call("export", str(folders["logged"]), "--format", format, "--run", key, "-o", str(tmp_path / "a"))
    assert "activities on" in said or "rows, 14 columns" in said
    assert ("ui.perfetto.dev" in said) == (format in ("perfetto", "chrome"))
    call("export", str(folders["logged"]), "--format", format, "--run", key, "-o", str(tmp_path / "b"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_exported_run_is_imported_and_says_what_is_lost(folders: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    call("export", str(folders["logged"]), "--format", "chrome", "--run", keys(folders["logged"])[1], "-o", str(file))
    said = call("import", str(file))
    assert "0 tensors" in said and "2,067 operators" in said
    assert "format 'gpusim-chrome' lacks allocations, accesses" in said and "swap_out" in said and "of the run itself" in said
    assert json.loads(call("import", str(file), "--json"))["run"]["outcome"] == "finished"


def test_a_managed_program_has_a_timeline(folders: dict[str, Path], tmp_path: Path) -> None:
    said = call("export", str(folders["managed"]), "--format", "perfetto", "-o", str(tmp_path / "m.pftrace"))
    assert "activities on" in said
    assert "of unified memory, which has no allocator's blocks" in call("export", str(folders["managed"]), code=2)


def test_all_runs_are_a_table(folders: dict[str, Path], tmp_path: Path) -> None:
    from pyarrow import parquet

    file = tmp_path / "t.parquet"
    assert "2 rows" in call("export", str(folders["bare"]), "--format", "parquet", "-o", str(file))
    table = parquet.read_table(file)
    assert table.column("evict").to_pylist() == ["lru", "fifo"] and table.column("run").to_pylist() == keys(folders["bare"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("logged", "--format", "perfetto"), "2 runs here kept their event log (choose one: --run"),
        (("bare", "--format", "chrome"), "no run here kept its event log (run with --log)"),
        (("logged", "--format", "perfetto", "--run", "xyz"), "there is no run 'xyz'"),
        (("logged", "--format", "perfeto"), "there is no format 'perfeto' (did you mean 'perfetto'?)"),
        (("logged", "--format", "parquet", "--place", "slab"), "--place has no meaning for the format 'parquet'"),
        (("logged", "--format", "chrome", "--device", "1"), "--device is for a trace"),
        (("missing", "--format", "perfetto"), "the format 'perfetto' is for results"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence(words: tuple[str, ...], expected: str, folders: dict[str, Path]) -> None:
    what = str(folders.get(words[0], Path("/nowhere/at/all")))
    assert expected in call("export", what, *words[1:], code=2).replace("\n", " ")


def test_a_run_without_a_log_among_others(folders: dict[str, Path]) -> None:
    said = call("export", str(folders["bare"]), "--format", "perfetto", "--run", keys(folders["bare"])[0], code=2)
    assert "kept no event log" in said


def test_python_calls_do_the_same(tmp_path: Path, folders: dict[str, Path]) -> None:
    result = gpusim.simulate("resnet50-train", on="a100-pcie-40gb", memory="60 %", bounds=False, log=True)
    assert sum(result.activities().stalls().values()) == result.stall_ns
    assert "activities on" in result.export(tmp_path / "run.pftrace.gz")
    assert "activities on" in result.export(tmp_path / "run.json")
    assert "14 columns" in result.export(tmp_path / "run.arrow")
    frame: Any = result.frame("activities")
    assert set(frame["kind"]) >= {"kernel", "swap_in", "swap_out", "stall"}
    with pytest.raises(ResultError, match=r"the suffix '\.jso' names no format \(did you mean '\.json'\?\)"):
        result.export(tmp_path / "run.jso")
    with pytest.raises(ResultError, match="kept no event log"):
        gpusim.simulate("resnet50-train", on="a100-pcie-40gb", bounds=False).export(tmp_path / "x.json")
    results = gpusim.run(str(folders["bare"].parent / "e.yaml"), folder=folders["logged"])
    assert "2 rows" in results.export(tmp_path / "all.parquet")
    assert "activities on" in results[0].export(tmp_path / "kept.json")
    with pytest.raises(ResultError, match="is a timeline, of one run"):
        results.export(tmp_path / "all.json")

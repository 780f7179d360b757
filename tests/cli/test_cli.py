"""Does every verb do its work, and say one clear sentence where it cannot?"""

from __future__ import annotations

import json
import os
import pickle
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpusim.cli.app import app
from gpusim.results.folder import note_results
from gpusim.results.seal import write_sealed

YAML = """
question: Does it work?
trace: gpt-medium-infer
profile: l4
memory: 60 %
policies:
  place: best_fit
  evict: [lru, belady]
options: {log: true}
"""


def gpusim(*words: object, code: int = 0) -> Any:
    """Run a verb in this process; its result (stdout, stderr)."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done


def table(*words: object) -> Any:
    return json.loads(gpusim(*words, "--json").stdout)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "mine.yaml"
    path.write_text(YAML)
    return path


@pytest.fixture(scope="module")
def results(experiment: Path) -> Path:
    out = experiment.parent / "out"
    gpusim("run", experiment, "-o", out, "--no-figures")
    return out


# --- run, plot, compare, check


def test_run_answers_the_question_with_a_table(experiment: Path, tmp_path: Path) -> None:
    said = gpusim("run", experiment, "-o", tmp_path / "out", "--no-figures").stdout
    assert said.startswith("Does it work?\n")
    assert "lru" in said and "belady *" in said and "reads the future" in said
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "experiment.yaml", "machine.json", "manifest.json", "report.md", "runs", "summary.csv",
    }  # fmt: skip


@pytest.mark.slow
def test_run_as_json_has_every_metric_in_base_units(experiment: Path, results: Path) -> None:
    rows = table("run", experiment, "-o", results, "--no-figures")
    assert [(row["evict"], row["outcome"], row["oracle"]) for row in rows] == [
        ("lru", "finished", False), ("belady", "finished", True),
    ]  # fmt: skip
    assert all(row["makespan_ns"] >= row["bound_no_limit_ns"] > 0 for row in rows)


def test_results_go_to_a_folder_named_like_the_experiment(
    experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gpusim("run", experiment, "--no-figures", "--set", "policies.evict=lru")
    assert (tmp_path / "results" / "mine" / "summary.csv").is_file()


@pytest.mark.slow
def test_plot_draws_what_is_asked_for(results: Path, tmp_path: Path) -> None:
    made = table("plot", results, "--figure", "policy_comparison", "-o", tmp_path)
    assert sorted(Path(p).name for p in made) == [f"policy_comparison.{end}" for end in ("pdf", "png", "svg")]
    assert all(Path(p).stat().st_size > 1000 for p in made)


@pytest.mark.slow
def test_run_draws_all_formats_or_those_asked_for(experiment: Path, tmp_path: Path) -> None:
    one = ("--set", "policies.evict=lru")
    gpusim("run", experiment, "-o", tmp_path / "all", *one)
    drawn = tmp_path / "all" / "figures"
    assert {p.suffix for p in drawn.iterdir()} == {".png", ".svg", ".pdf"} and not [*drawn.glob(".*")]
    said = (tmp_path / "all" / "report.md").read_text()
    assert "](figures/policy_comparison.png)" in said and "[PDF](figures/policy_comparison.pdf)" in said
    gpusim("run", experiment, "-o", tmp_path / "some", *one, "--format", "svg, pdf")
    assert {p.suffix for p in (tmp_path / "some" / "figures").iterdir()} == {".svg", ".pdf"}
    said = gpusim("run", experiment, "-o", tmp_path, "--format", "pgn", code=2).stderr
    assert "figures do not come as 'pgn' (did you mean 'png'?)" in said


@pytest.mark.slow
def test_workers_draw_what_one_process_draws(experiment: Path, tmp_path: Path) -> None:
    for jobs in (1, 2):
        gpusim("run", experiment, "-o", tmp_path / str(jobs), "-j", jobs)
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / jobs / "figures").iterdir()} for jobs in "12")
    assert one == two and len(one) % 3 == 0 and all(one.values())


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_figures_that_cannot_be_written_are_one_sentence(jobs: int, experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "figures").write_text("in the way")
    said = gpusim("run", experiment, "-o", tmp_path, "-j", jobs, "--format", "svg", code=2).stderr
    progress = re.compile(r"gpusim: \d+ of \d+ runs, \d+ s")  # said on a slow machine
    assert len([line for line in said.splitlines() if not progress.fullmatch(line)]) == 1
    assert "the figure " in said and "was not drawn" in said and "File exists" in said


def test_a_bug_in_a_figure_is_told_as_one(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.delenv("GPUSIM_TRACEBACK", raising=False)
    monkeypatch.setattr("gpusim.cli.draw.cores", lambda: 1)
    monkeypatch.setattr("gpusim.show.figures.draw_all", fail)
    said = gpusim("plot", results, "-o", tmp_path, "--figure", "traffic", code=1).stderr
    assert "internal error: RuntimeError: traffic: KeyError: 'a bug'" in said


def test_run_says_how_sure_its_kernel_times_are(results: Path) -> None:
    assert "\nKernel times: all estimated from the vendor's numbers.\n" in gpusim("compare", results).stdout


@pytest.mark.slow
def test_an_address_map_shows_what_blocks_hold(experiment: Path, tmp_path: Path) -> None:
    gpusim("run", experiment, "-o", tmp_path, "--no-figures", "--set", "policies.evict=lru", "--log")
    gpusim("plot", tmp_path, "--figure", "address_map", "--format", "svg")
    drawn = (tmp_path / "figures" / "address_map.svg").read_text()
    assert "<!-- param -->" in drawn and "64 KiB" not in drawn


def test_plot_knows_its_figures(results: Path, tmp_path: Path) -> None:
    said = gpusim("plot", results, "--figure", "policy_comparisn", code=2).stderr
    assert "there is no figure 'policy_comparisn' (did you mean 'policy_comparison'?)" in said
    assert "not a results folder" in gpusim("plot", tmp_path, code=2).stderr


@pytest.mark.slow
def test_compare_shows_one_folder_or_what_changed(experiment: Path, results: Path, tmp_path: Path) -> None:
    assert "slowdown" in gpusim("compare", results).stdout
    assert "equal" in gpusim("compare", results, results).stdout
    gpusim("run", experiment, "-o", tmp_path / "b", "--no-figures", "--set", "memory=50 %")
    rows = table("compare", results, tmp_path / "b")
    worse = [row for row in rows if row["metric"] == "h2d_bytes"]
    assert worse and all(row["change"].startswith("+") for row in worse)
    # Runs are paired by what differs within either folder; those of one folder alone are named.
    gpusim("run", experiment, "-o", tmp_path / "c", "--no-figures", "--set", "memory=60 %,50 %")
    for folder, other in ((tmp_path / "b", "60 %"), (results, "50 %")):
        rows = table("compare", folder, tmp_path / "c")
        assert [(row["metric"], row["A"], row["B"]) for row in rows] == [("run", "not there", "finished")] * 2
        assert all(f"{other} memory" in row["run"] for row in rows)


@pytest.mark.slow
def test_check_asks_the_referee_and_keeps_its_verdict(results: Path) -> None:
    assert "2 runs are right, 0 wrong" in gpusim("check", results).stdout
    assert [row["ok"] for row in table("check", results)] == [True, True]
    assert ",yes," in (results / "summary.csv").read_text().splitlines()[1]


@pytest.mark.slow
def test_check_tells_a_forged_result(experiment: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    gpusim("run", experiment, "-o", out, "--no-figures", "--set", "policies.evict=lru")
    run = table("check", out)[0]["run"]
    path = out / "runs" / run / "result.json"
    forged = json.loads(path.read_text())
    forged["metrics"]["h2d_bytes"] -= 512
    path.write_text(json.dumps(forged))
    assert "result.json: this file is not the one that the run wrote" in gpusim("check", out, code=2).stderr
    write_sealed(path, forged)  # as a simulator that counts wrong would have left it
    note_results(out, [run])
    assert "h2d_bytes" in gpusim("check", out, code=1).stdout


@pytest.mark.slow
def test_check_without_logs_says_how_to_get_them(experiment: Path, tmp_path: Path) -> None:
    gpusim("run", experiment, "-o", tmp_path, "--no-figures", "--set", "options.log=false", "--set", "policies.evict=lru")
    assert "--log" in gpusim("check", tmp_path, code=2).stderr


# --- validate


def test_validate_says_what_a_file_comes_to(experiment: Path) -> None:
    assert table("validate", experiment)["runs"] == 2
    assert table("validate", experiment, "--set", "seed=0,1,2")["runs"] == 6
    assert table("validate", "h100-sxm-80gb")["kind"] == "profile"


def test_validate_reports_all_mistakes_with_their_places(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        "question: What?\ntrace: resnet51-train\nprofile: a100\nmemory: 60\npolicies:\n  evict: lur\n"
        "  prefetch: next_k(kk=2)\nseeed: 1\n"
    )
    said = gpusim("validate", path, code=2).stderr
    for place, suggestion in (
        (":2:", "resnet50-train"), (":3:", "a100-"), (":4:", "60 %"), (":6:", "'lru'"), (":7:", "'k'"), (":8:", "'seed'"),
    ):  # fmt: skip
        assert place in said and suggestion in said, (place, said)


# --- import and trace


@pytest.mark.slow
def test_import_makes_a_trace_that_trace_describes(tmp_path: Path) -> None:
    log = tmp_path / "rmm.csv"
    log.write_text(
        "Thread,Time,Action,Pointer,Size,Stream\n"
        "1,10:00:00.000000,allocate,0x100,1024,0\n1,10:00:00.000010,allocate,0x800,2048,0\n"
        "1,10:00:00.000020,free,0x100,1024,0\n"
    )
    assert "2 tensors, 3 events" in gpusim("import", log, "-o", tmp_path / "t.npz").stdout
    found = table("trace", tmp_path / "t.npz")
    assert (found["counts"]["tensors"], found["live"]["peak"]) == (2, 3072)


def test_import_takes_a_name_and_a_device_and_says_what_it_doubts(tmp_path: Path) -> None:
    log = tmp_path / "rmm.csv"
    log.write_text("Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000000,free,0x100,1024,0\n")
    done = gpusim("import", log, "--name", "mine")
    assert "gpusim: warning: 1 frees are of allocations older than the log" in done.stderr
    assert table("trace", tmp_path / "rmm.npz")["name"] == "mine"
    assert "no option 'device'" in gpusim("import", log, "--device", "1", code=2).stderr


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path}/ran",)

    (tmp_path / "evil.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": [Evil()]}))
    gpusim("import", tmp_path / "evil.pickle", "-o", tmp_path / "t.npz", code=2)
    assert not (tmp_path / "ran").exists() and not (tmp_path / "t.npz").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"\x80\x04]", b"a,b\n1,2\n", os.urandom(512)])
def test_what_is_no_recording_or_trace_is_refused_in_a_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    assert "Traceback" not in gpusim("import", tmp_path / "x", "-o", tmp_path / "t.npz", code=2).stderr
    assert "Traceback" not in gpusim("trace", tmp_path / "x", code=2).stderr
    assert not (tmp_path / "t.npz").exists()


# --- catalogue


@pytest.mark.slow
def test_profiles_policies_and_metrics_are_listed_and_explained() -> None:
    assert len(table("profiles")) >= 24
    assert {row["basis"] for row in table("profiles", "a40")["numbers"]} <= {"measured", "published", "estimated"}
    kinds = {(row["kind"], row["policy"]) for row in table("policies")}
    assert {("evict", "lru"), ("evict", "belady"), ("place", "pytorch"), ("prefetch", "next_k")} <= kinds
    assert "staleness" in gpusim("policies", "cost_aware").stdout
    assert {"makespan_ns", "slowdown"} <= {row["metric"] for row in table("metrics")}


def test_a_policy_of_ones_own_is_listed(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    text = "from gpusim import policy\n\n\n@policy.evict\ndef mine(last_use):\n    'Mine alone.'\n    return last_use\n"
    mine.write_text(text)
    assert "Mine alone." in gpusim("policies", "--use", mine).stdout


@pytest.mark.slow
def test_the_schema_is_json_and_names_the_keys() -> None:
    assert "question" in json.loads(gpusim("schema", "experiment").stdout)["properties"]
    assert "gpu" in json.loads(gpusim("schema", "profile").stdout)["properties"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "evicton"], "'eviction'"),
        (["profiles", "a100-pcie-40"], "'a100-pcie-40gb'"),
        (["policies", "beladi"], "'belady'"),
        (["trace", "resnet-train"], "'resnet50-train'"),
        (["schema", "experimnt"], "'experiment'"),
        (["validate", "nothing-like-it.yaml"], "nothing-like-it.yaml"),
        (["run", "eviction", "--set", "policy.evict=lru"], "'policies'"),
        (["run", "eviction", "--set", "memory"], "key=value"),
        (["run", "eviction", "--set", "memory=60"], "60 %"),
        (["run", "eviction", "--set", "profile=a1000"], "a100"),
        (["run", "eviction", "--set", "policies.evict=cost_aware(stale=1)"], "'staleness'"),
        (["check", "."], "gpusim run"),
    ],
)
def test_an_unknown_name_is_answered_with_a_suggestion(words: list[str], said: str, tmp_path: Path) -> None:
    stderr = gpusim(*words, *(["-o", tmp_path / "out"] if words[0] == "run" else []), code=2).stderr
    assert said in stderr and "Traceback" not in stderr
    assert not (tmp_path / "out").exists()


# --- what the machine refuses


def test_a_million_runs_by_mistake_are_refused_with_the_flag_that_allows_them(experiment: Path, tmp_path: Path) -> None:
    million = [f"seed={','.join(map(str, range(1000)))}", f"memory=[{','.join(f'{i} MiB' for i in range(400, 900))}]"]
    said = gpusim("run", experiment, "-o", tmp_path / "out", "--set", million[0], "--set", million[1], code=2).stderr
    assert "1,000,000 runs" in said and "--allow-large" in said
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_a_sentence(experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    said = gpusim("run", experiment, "-o", tmp_path / "file" / "out", code=2).stderr
    assert "file" in said and "-o" in said and "Traceback" not in said


@pytest.mark.slow
def test_a_full_disk_is_a_sentence_and_leaves_nothing_half_written(experiment: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: writing beyond it fails in the same way."""

    def small_files() -> None:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    command = [sys.executable, "-m", "gpusim", "run", str(experiment), "-o", str(tmp_path / "out"), "--no-figures"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=small_files, timeout=300)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and "cannot write" in done.stderr
    assert not list(tmp_path.rglob("*.part")) and not list((tmp_path / "out").glob("runs/*/log.npz"))


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_stops_the_verb_quietly() -> None:
    command = f"{sys.executable} -m gpusim trace llama-1b-decode --json | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr, done.returncode) == ("{\n", "", 0)

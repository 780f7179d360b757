"""What `gpusim run` leaves and says when not all is well: a trace with gaps, no memory, a grid that is stopped."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import gpusim

from gpusim.cli import progress
from gpusim.results.folder import load_folder

SNAPSHOT = "gpt-medium-infer-snapshot"
YAML = """
question: Does it work in 60 %?
trace: gpt-medium-infer
profile: l4
memory: 60 %
policies: {place: best_fit, evict: [lru, fifo, largest]}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(YAML)
    return path


# --- what a trace cannot answer


def test_eviction_on_a_snapshot_is_refused_with_a_way(experiment: Path, tmp_path: Path) -> None:
    said = gpusim("run", experiment, "--set", f"trace={SNAPSHOT}", "-o", tmp_path / "out", code=2).stderr
    assert "what lru or fifo costs cannot be told" in said and "does not say which tensors each operator" in said
    assert "gpusim record" in said and "gpusim oom" in said and "--set policies.evict=none" in said
    assert not (tmp_path / "out").exists()
    assert gpusim("validate", experiment, "--set", f"trace={SNAPSHOT}", code=2).stderr == said


@pytest.mark.slow
def test_what_allocators_hold_of_a_snapshot_is_answered_without_times(tmp_path: Path) -> None:
    out, chosen = tmp_path / "out", (f"trace={SNAPSHOT}", "memory=150 %", "policies.place=best_fit,pytorch")
    sets = [word for each in chosen for word in ("--set", each)]
    said = gpusim("run", "allocators", *sets, "-o", out, "--format", "png").stdout
    assert "slowdown" not in said and "makespan" not in said and "reserved [GiB]" in said
    assert f"{SNAPSHOT} does not say which tensors each operator reads and writes: its results" in said
    assert "its results are without swaps and times." in said
    assert "not drawn: address_map: no run kept its event log" in said
    assert {path.stem for path in (out / "figures").iterdir()} == {"policy_comparison", "fragmentation", "memory_over_time"}
    with (out / "summary.csv").open() as file:
        header = next(csv.reader(file))
    assert "reserved_peak_bytes" in header and not [name for name in header if name.endswith("_ns") or "swap" in name]
    assert "without swaps and times" in (out / "report.md").read_text()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("plan", SNAPSHOT, "--on", "l4", "--plan", "swap_idle"), "gpusim plan"),
        (("adapt", SNAPSHOT, "--on", "l4"), "gpusim adapt"),
        (("transform", SNAPSHOT, "precision", "-o", "x.npz"), "the transform precision"),
        (("export", SNAPSHOT, "--format", "dtr", "-o", "x.log"), "a DTR log"),
        (("export", SNAPSHOT, "--format", "oracleGeneral", "-o", "x.bin"), "a list of requests"),
    ],
)
def test_verbs_that_need_accesses_refuse_a_snapshot(words: tuple[str, ...], what: str) -> None:
    said = gpusim(*words, code=2).stderr
    assert said.startswith(f"gpusim: {what} needs which tensors each operator reads and writes, which {SNAPSHOT} does not say")


def test_a_trace_says_what_it_can_answer() -> None:
    assert "answers         allocator; not accesses, times and flops\n" in gpusim("trace", SNAPSHOT).stdout
    can = json.loads(gpusim("trace", "gpt-medium-infer", "--json").stdout)["answers"]
    assert can == {"allocator": True, "accesses": True, "times": True, "flops": True}


# --- nothing fits, and what the question then is


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["1MiB", "1MiB,2MiB"])
def test_a_grid_in_which_nothing_fits_ends_in_a_sentence(memory: str, tmp_path: Path) -> None:
    sets = ["--set", f"memory={memory}", "--set", "policies.evict=lru,fifo", "--set", "trace=gpt-medium-infer,gpt-medium-train"]
    done = gpusim("run", "eviction", *sets, "-o", tmp_path, "--format", "png")
    assert "No run finished: out of memory. gpt-medium-infer: " in done.stdout
    assert "not drawn: policy_comparison: no run finished\n" in done.stdout
    assert not (tmp_path / "figures" / "policy_comparison.png").exists()
    report = (tmp_path / "report.md").read_text()
    assert "Not drawn: policy comparison, since no run finished" in report
    gpusim("compare", tmp_path)
    said = gpusim("plot", tmp_path, "--figure", "policy_comparison", code=2).stderr
    assert "nothing to show as policy_comparison (policy_comparison: no run finished)" in said


@pytest.mark.slow
def test_another_grid_does_not_keep_the_question_of_the_file(experiment: Path, tmp_path: Path) -> None:
    words = ["run", experiment, "--no-figures", "--set", "policies.evict=lru", "-o", tmp_path / "out"]
    assert gpusim(*words, "--set", "memory=80 %").stdout.startswith("mine with policies.evict=lru, memory=80 %\n")
    assert (tmp_path / "out" / "report.md").read_text().startswith("# mine with policies.evict=lru, memory=80 %\n")
    assert gpusim(*words, "--set", "question=Does it?").stdout.startswith("Does it?\n")
    own = gpusim("run", experiment, "--no-figures", "-o", tmp_path / "own", "--log", "--set", "bounds=false")
    assert own.stdout.startswith("Does it work in 60 %?\n")


@pytest.mark.slow
def test_check_brings_the_report_up_to_date(experiment: Path, tmp_path: Path) -> None:
    gpusim("run", experiment, "--no-figures", "-o", tmp_path, "--log")
    report = tmp_path / "report.md"
    assert "None of the 3 runs was recomputed from an event log yet: `gpusim check` does it." in report.read_text()
    gpusim("check", tmp_path)
    assert "recomputed" not in report.read_text()


# --- a grid that is stopped

RUNS = 400  # of some ten milliseconds: too many to be over before it is stopped


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_grid_can_be_read(how: signal.Signals, experiment: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sets = ["--set", f"seed={','.join(map(str, range(RUNS)))}", "--set", "policies.evict=lru"]
    words = [sys.executable, "-m", "gpusim", "run", str(experiment), "-o", str(out), "-j", "1", "--no-figures", *sets]
    run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    while len(list(out.glob("runs/*/result.json"))) < 8:
        assert run.poll() is None, run.communicate()
        time.sleep(0.02)
    run.send_signal(how)
    told = run.communicate()[1]
    there = len(load_folder(out))
    assert 0 < there < RUNS
    if how != signal.SIGKILL:
        stopped = f"stopped: {there} of {RUNS} runs are in {out}; `gpusim compare {out}` shows them"
        assert run.returncode == 130 and stopped in told
        missing = RUNS - there
        assert f"**{missing} of {RUNS} runs are missing**" in (out / "report.md").read_text()
        assert len((out / "summary.csv").read_text().splitlines()) == there + 1
    done = gpusim("compare", out)
    assert f"{there} of {RUNS} runs are there" in done.stderr and "slowdown" in done.stdout
    assert all("slowdown" in result.metrics for result in load_folder(out)[:-1])  # but for the one that was being written


# --- progress


def test_off_a_terminal_progress_is_plain_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST", 0.0)
    monkeypatch.setattr(progress, "AGAIN", 0.02)
    monkeypatch.setattr(progress, "_TICK", 0.01)

    def lines(wanted: int) -> list[str]:
        said: list[str] = []
        while len(said) < wanted:
            time.sleep(0.01)
            said += capsys.readouterr().err.splitlines()
        return said

    with progress.bar("runs", "compiling") as reached:
        assert lines(1)[0].startswith("gpusim: compiling, ")
        reached(3, 40)
        assert any(line.startswith("gpusim: 3 of 40 runs, ") for line in lines(3))
    assert "gpusim" not in capsys.readouterr().out


def test_what_is_soon_done_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.bar("runs") as reached:
        reached(0, 2)
        reached(2, 2)
    assert capsys.readouterr() == ("", "")

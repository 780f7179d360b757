"""Does a grid run every point once, the same for any number of workers, and continue where it stopped?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpusim.base.errors import GridError
from gpusim.cli.app import app
from gpusim.experiment import grid, load
from gpusim.experiment.resolved import resolved
from gpusim.experiment.tasks import GridPlan, inputs, plan
from gpusim.results import folder, run_files
from gpusim.results.seal import write_sealed

YAML = """
question: Does it work?
trace: gpt-medium-infer
profile: l4
memory: [100 %, 60 %]
policies:
  place: best_fit
  evict: [lru, belady]
"""


FREE = 'profile=["l4(allocation.malloc=0 us, allocation.malloc_per_gib=0 us)"]'
"""Without the costs of the driver's calls, of which a run that evicts makes fewer than one without a limit."""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "e.yaml"
    path.write_text(YAML)
    return path


def execute(path: Path, out: Path, *sets: str, **options: object) -> tuple[GridPlan, grid.Finished]:
    loaded = load.experiment(str(path), sets)
    todo = plan(loaded, out)
    return todo, grid.run(todo, resolved(loaded.experiment), inputs(loaded), **options)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file that equal experiments must have in common."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name != "machine.json"
    }


@pytest.mark.agreement
@pytest.mark.slow
def test_one_job_and_two_jobs_leave_the_same_bytes(experiment: Path, tmp_path: Path) -> None:
    execute(experiment, tmp_path / "one", jobs=1)
    execute(experiment, tmp_path / "two", jobs=2)
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two")
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []


@pytest.mark.slow
def test_results_stand_in_the_order_of_the_grid(experiment: Path, tmp_path: Path) -> None:
    _, done = execute(experiment, tmp_path / "out", jobs=2)
    found = [(r.spec["memory_share"], r.spec["evict"]) for r in done.results]
    assert found == [(1.0, "lru"), (1.0, "belady"), (0.6, "lru"), (0.6, "belady")]


@pytest.mark.formulas
def test_bounds_are_shared_and_hold(experiment: Path, tmp_path: Path) -> None:
    """2 x 2 runs need one reference without limit; the oracle references are the grid's own belady runs.

    Calls of the driver are free: a run that evicts makes fewer of them than one without a limit, and is no slower for it.
    """
    todo, done = execute(experiment, tmp_path / "out", FREE)
    assert done.ran == len(todo.tasks) == 5
    unlimited = {r.bounds["bound_no_limit_ns"] for r in done.results}
    assert len(unlimited) == 1
    for result in done.results:
        assert result.finished
        assert result.metrics["makespan_ns"] >= result.bounds["bound_no_limit_ns"]
        assert result.metrics["slowdown"] == result.metrics["makespan_ns"] / result.bounds["bound_no_limit_ns"]
        assert result.metrics["h2d_bytes"] >= result.bounds["bound_swap_in_bytes"]
        held, live, planned = (
            result.metrics["reserved_peak_bytes"], result.bounds["bound_live_bytes"], result.bounds["bound_plan_bytes"],
        )  # fmt: skip
        assert live <= planned <= 1.01 * live
        if not result.metrics["swap_outs"]:
            assert result.metrics["avoidable_share"] == max(0.0, 1 - planned / held)
    assert {r.metrics["over_oracle"] for r in done.results if r.spec["evict"] == "belady"} == {1.0}


def test_a_share_of_memory_is_of_the_live_peak(experiment: Path, tmp_path: Path) -> None:
    """Every tensor rounded up to 512 bytes, recomputed here from the trace alone."""
    from gpusim.base.yaml.find import find
    from gpusim.trace.files import load_trace
    from gpusim.trace.trace import ALLOC, FREE

    trace = load_trace(find("trace", "gpt-medium-infer"))
    live = peak = 0
    for kind, tensor in zip(trace.kind.tolist(), trace.arg.tolist(), strict=True):
        if kind in (ALLOC, FREE):
            size = -(-int(trace.size[tensor]) // 512) * 512
            live += size if kind == ALLOC else -size
            peak = max(peak, live)
    _, done = execute(experiment, tmp_path / "out")
    assert {r.spec["memory"] for r in done.results} == {peak, -(-peak * 6 // 10)}


def test_a_second_run_executes_nothing_and_changes_nothing(experiment: Path, tmp_path: Path) -> None:
    execute(experiment, tmp_path / "out")
    before = contents(tmp_path / "out")
    _, again = execute(experiment, tmp_path / "out")
    assert again.ran == 0
    assert len(again.results) == 4
    assert contents(tmp_path / "out") == before


@pytest.mark.slow
def test_a_larger_grid_runs_only_what_is_new(experiment: Path, tmp_path: Path) -> None:
    execute(experiment, tmp_path / "out")
    _, more = execute(experiment, tmp_path / "out", "policies.evict=lru,fifo,belady")
    assert more.ran == 2  # fifo at two sizes; the references are there
    assert len(more.results) == 6


@pytest.mark.slow
def test_force_runs_everything_again(experiment: Path, tmp_path: Path) -> None:
    execute(experiment, tmp_path / "out")
    before = contents(tmp_path / "out")
    _, again = execute(experiment, tmp_path / "out", force=True)
    assert again.ran == 5
    assert contents(tmp_path / "out") == before


@pytest.mark.slow
def test_asking_for_logs_runs_what_has_none(experiment: Path, tmp_path: Path) -> None:
    execute(experiment, tmp_path / "out", "policies.evict=lru")
    _, again = execute(experiment, tmp_path / "out", "policies.evict=lru", "options.log=true")
    assert again.ran == 2
    assert len(list((tmp_path / "out").glob("runs/*/log.npz"))) == 2


@pytest.mark.agreement
@pytest.mark.slow
def test_a_log_does_not_change_the_result(experiment: Path, tmp_path: Path) -> None:
    _, without = execute(experiment, tmp_path / "a")
    _, logged = execute(experiment, tmp_path / "b", "options.log=true")
    assert [r.key for r in without.results] == [r.key for r in logged.results]
    assert [r.metrics for r in without.results] == [r.metrics for r in logged.results]


def test_a_changed_trace_is_another_run(experiment: Path, tmp_path: Path) -> None:
    from gpusim.base.yaml.find import find

    copy = tmp_path / "mine.npz"
    copy.write_bytes(find("trace", "gpt-medium-infer").read_bytes())
    first, _ = execute(experiment, tmp_path / "out", "trace=mine.npz")
    copy.write_bytes(find("trace", "gpt-medium-train").read_bytes())
    second = plan(load.experiment(str(experiment), ["trace=mine.npz"]), tmp_path / "out")
    assert not {t.key for t in first.tasks} & {t.key for t in second.tasks}


@pytest.mark.slow
def test_a_changed_policy_file_runs_only_its_own_policy_again(experiment: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    text = "from gpusim import policy\n\n\n@policy.evict\ndef patient(last_use, now):\n    return last_use - now\n"
    mine.write_text(text)
    sets = ("use=[mine.py]", "policies.evict=lru,patient")
    execute(experiment, tmp_path / "out", *sets)
    mine.write_text(text.replace("last_use - now", "2.0 * (last_use - now)"))
    program = (
        "import sys; from pathlib import Path; from gpusim.experiment import load; from gpusim.experiment.tasks import plan;"
        "waiting = plan(load.experiment(sys.argv[1], sys.argv[3:]), Path(sys.argv[2])).waiting();"
        "print(sorted(str(t.spec.evict) for t in waiting))"
    )
    command = [sys.executable, "-c", program, str(experiment), str(tmp_path / "out"), *sets]
    assert subprocess.check_output(command, text=True).strip() == "['patient', 'patient']"


def test_a_grid_by_mistake_is_refused_before_anything_is_made(experiment: Path, tmp_path: Path) -> None:
    seeds = ",".join(map(str, range(1000)))
    loaded = load.experiment(str(experiment), [f"seed={seeds}"])
    with pytest.raises(GridError, match="4,000 runs"):
        plan(loaded, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_failing_policy_costs_only_its_own_runs(experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "from gpusim import policy\n\n\n@policy.evict(columns=True)\ndef broken(size):\n    raise ValueError('no idea')\n"
    )
    _, done = execute(experiment, tmp_path / "out", "use=[bad.py]", "policies.evict=lru,broken", "memory=60 %")
    assert [str(task.spec.evict) for task, _ in done.failures] == ["broken"]
    assert not done.failures[0][1].is_bug and "no idea" in done.failures[0][1].message
    assert [r.spec["evict"] for r in done.results] == ["lru"]


@pytest.mark.slow
def test_the_resolved_experiment_gives_the_same_grid(experiment: Path, tmp_path: Path) -> None:
    first, _ = execute(experiment, tmp_path / "out", "seed=0,1", "policies.evict=cost_aware(staleness=2.0)")
    second = plan(load.experiment(str(tmp_path / "out" / "experiment.yaml")), tmp_path / "out")
    assert [t.key for t in first.grid] == [t.key for t in second.grid]


@pytest.mark.slow
def test_ctrl_c_keeps_finished_runs_and_the_next_call_does_the_rest(experiment: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sets = ["--set", "policies.evict=random", "--set", f"seed={','.join(map(str, range(400)))}", "--set", "memory=60 %"]
    command = [sys.executable, "-m", "gpusim", "run", str(experiment), *sets, "--no-figures", "-o", str(out)]
    few = load.experiment(str(experiment), ["policies.evict=random", "seed=0,1,2,3,4,5,6,7", "memory=60 %"])
    wanted = {task.key for task in plan(few, tmp_path / "few").tasks}
    running = subprocess.Popen(
        [*command, "--jobs", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    for _ in range(6000):
        there = {p.parent.name for p in out.glob("runs/*/result.json")}
        if (len(there) >= 3 and there & wanted) or running.poll() is not None:
            break
        time.sleep(0.1)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to the command and its workers
    _, said = running.communicate(timeout=600)
    assert running.returncode == 130, said
    assert "the same command does the rest" in said
    finished = {p.parent.name for p in out.glob("runs/*/result.json")}
    for name in finished:
        json.loads((out / "runs" / name / "result.json").read_text())
    rest = plan(few, out)
    left = [task.key for task in rest.tasks if task.key not in finished]
    done = grid.run(rest, resolved(few.experiment), inputs(few))
    assert done.ran == len(left) < len(rest.tasks)
    assert len(done.results) == 8


ENDLESS = """
from pathlib import Path

import numpy as np

from gpusim import policy


@policy.evict
class endless:
    def state(n_units, capacity, params, seed):
        Path(__file__).with_name("began").touch()
        return np.zeros(1, np.int64), np.zeros(1)

    def insert(S, X, unit, size, key):
        return 0

    touch = remove = insert

    def victim(S, X, incoming, size, locked):
        while S[0] >= 0:
            S[0] += 1 - S[0] // 2
        return -1
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_compiled_policy_that_does_not_end(experiment: Path, tmp_path: Path) -> None:
    """One job, and the run before it is kept."""
    out = tmp_path / "out"
    (tmp_path / "mine.py").write_text(ENDLESS)
    sets = [f"use=[{tmp_path / 'mine.py'}]", "policies.evict=lru,endless", "memory=60 %", "bounds=false"]
    command = [sys.executable, "-m", "gpusim", "run", str(experiment), *(w for s in sets for w in ("--set", s))]
    running = subprocess.Popen(
        [*command, "--jobs", "1", "--no-figures", "-o", str(out)], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        while not (tmp_path / "began").exists() and running.poll() is None:
            time.sleep(0.1)
        time.sleep(1)  # it asks for its first victim
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=600)
        assert running.returncode == 130 and "the same command does the rest" in said, said
        (kept,) = out.glob("runs/*/result.json")
        assert json.loads(kept.read_text())["spec"]["evict"] == "lru"
        with pytest.raises(ProcessLookupError):  # soon nothing goes on behind
            for _ in range(6000):
                os.killpg(running.pid, 0)
                time.sleep(0.1)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)


@pytest.mark.slow
def test_every_result_is_written_once(experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the grid, its bounds and the summary; the referee's verdict does not touch it either."""
    out, written = tmp_path / "out", []
    monkeypatch.setattr(run_files, "write_sealed", lambda path, value: (written.append(path), write_sealed(path, value)))
    todo, done = execute(experiment, out, "options.log=true", FREE, jobs=1)
    assert sorted(written) == sorted(out / "runs" / task.key / "result.json" for task in todo.tasks)
    assert all(result.metrics["slowdown"] >= 1 for result in done.results)
    before = {path: path.read_bytes() for path in written}
    assert "4 runs are right" in CliRunner().invoke(app, ["check", str(out)]).output
    assert {path: path.read_bytes() for path in written} == before
    assert [result.checked for result in folder.load_folder(out)] == [True] * 4


@pytest.mark.slow
def test_a_result_that_was_edited_is_run_again(experiment: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    todo, _ = execute(experiment, out)
    before = contents(out)
    file = out / "runs" / todo.grid[0].key / "result.json"
    made = json.loads(file.read_text())["metrics"]["makespan_ns"]
    for old, new in ((str(made), str(made // 2)), ('"metrics": {', '"metrics": {}, "was": {')):
        file.write_text(file.read_text().replace(old, new))
        assert execute(experiment, out)[1].ran == 1
        assert contents(out) == before
    (file.parent / "timeline.npz").write_bytes(b"")
    again, done = execute(experiment, out)
    assert [f"{file.parent / 'timeline.npz'}: this file is not the one that the run wrote"] == [*again.changed.values()]
    assert done.ran == 1
    assert contents(out) == before
    assert execute(experiment, out)[1].ran == 0


def test_an_edited_result_is_neither_checked_nor_compared_nor_drawn(experiment: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    todo, _ = execute(experiment, out, "options.log=true", "policies.evict=lru", "memory=60 %", "bounds=false")
    run = CliRunner()
    assert "1 run is right" in run.invoke(app, ["check", str(out)]).output
    file = out / "runs" / todo.grid[0].key / "result.json"
    file.write_text(file.read_text().replace('"metrics": {', '"metrics": {}, "was": {'))
    for words in (["check", str(out)], ["compare", str(out)], ["plot", str(out)], ["check", str(file.parent)]):
        said = run.invoke(app, words)
        assert said.exit_code == 2 and "result.json: this file is not the one that the run wrote" in said.output, words

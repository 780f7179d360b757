"""Do the workers of a dask scheduler leave what this process alone would, whatever happens to them?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from gpusim.base.errors import GpusimError
from gpusim.experiment import batches, far, grid, load
from gpusim.experiment.batches import Batch, Ended, RunBatches, execute
from gpusim.experiment.executor import Futures, LocalWorkers
from gpusim.experiment.pool import Failure, Lost
from gpusim.experiment.resolved import resolved
from gpusim.experiment.tasks import GridPlan, inputs, plan
from gpusim.experiment.where import opened
from gpusim.results import folder

distributed = pytest.importorskip("distributed")

YAML = """
question: Does it work?
trace: gpt-medium-infer
profile: l4
memory: [100 %, 80 %, 60 %]
policies:
  place: best_fit
  evict: [lru, random, belady]
seed: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
"""
LIMIT_S = 600
ROOT = Path(__file__).parents[2]


@pytest.fixture
def todo(tmp_path: Path) -> GridPlan:
    (tmp_path / "e.yaml").write_text(YAML)
    return plan(load.experiment(str(tmp_path / "e.yaml")), tmp_path / "out")


def execute_all(todo: GridPlan, path: Path, **options: object) -> grid.Finished:
    loaded = load.experiment(str(path / "e.yaml"))
    return grid.run(todo, resolved(loaded.experiment), inputs(loaded), **options)  # type: ignore[arg-type]


def contents(out: Path) -> dict[str, bytes]:
    files = sorted(p for p in out.rglob("*") if p.is_file() and p.name != "machine.json")
    return {str(p.relative_to(out)): p.read_bytes() for p in files}


def start(stack: ExitStack, *words: str, path: Path | None = None) -> subprocess.Popen[bytes]:
    env, here = {**os.environ, "PYTHONPATH": str(path or ROOT)}, path or ROOT  # both are where Python looks first
    made = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]], env=env, cwd=here, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    stack.callback(_end, made)
    return made


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def worker(stack: ExitStack, address: str, path: Path | None = None) -> subprocess.Popen[bytes]:
    return start(stack, "dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard", path=path)


@contextmanager
def cluster(tmp_path: Path, workers: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]], ExitStack]]:
    """The scheduler's file, and its workers."""
    with ExitStack() as stack:
        file = tmp_path / "scheduler.json"
        start(stack, "dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        end = time.monotonic() + LIMIT_S
        while not file.is_file():
            assert time.monotonic() < end
            time.sleep(0.1)
        with distributed.Client(scheduler_file=str(file), timeout=60, set_as_default=False) as client:
            address = client.scheduler.address
            started = [worker(stack, address) for _ in range(workers)]
            if workers:
                client.wait_for_workers(workers, timeout=LIMIT_S)
        yield address, started, stack


@pytest.mark.agreement
@pytest.mark.slow
@pytest.mark.parametrize("columns", [False, True])
def test_three_workers_one_of_them_killed_leave_the_bytes_of_one_process(
    tmp_path: Path, todo: GridPlan, columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """180 runs and their references; a worker is killed with -9 when the first batch has ended."""
    monkeypatch.setattr(folder, "COLUMNS_FROM", 100 if columns else 10_000)
    there = plan(load.experiment(str(tmp_path / "e.yaml")), tmp_path / "here")
    alone = execute_all(there, tmp_path, jobs=1)
    assert alone.ran == len(there.tasks) and there.in_columns is columns
    with cluster(tmp_path, 3) as (address, workers, _):
        killed = []

        def progress(done: int, total: int) -> None:
            if done and not killed:
                killed.append(workers[0])
                os.killpg(workers[0].pid, signal.SIGKILL)

        done = execute_all(todo, tmp_path, executor=f"dask:{address}", progress=progress)
    assert killed and not done.failures
    assert done.ran == len(todo.tasks)
    one, three = contents(tmp_path / "here"), contents(tmp_path / "out")
    assert one.keys() == three.keys()
    assert [name for name in one if one[name] != three[name]] == []
    assert any(name.startswith("columns/") for name in one) is columns
    assert execute_all(plan(load.experiment(str(tmp_path / "e.yaml")), tmp_path / "out"), tmp_path).ran == 0


@pytest.mark.slow
def test_what_is_wrong_with_a_cluster_is_said_before_the_first_batch(
    tmp_path: Path, todo: GridPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker; a worker with another gpusim, without one, or that does not see the results; another dask."""
    monkeypatch.setattr(far, "WORKERS_S", 1)

    def said() -> str:
        with pytest.raises(GpusimError) as error:
            execute_all(todo, tmp_path, executor=f"dask:{address}")
        assert "\n" not in str(error.value)
        return str(error.value)

    other = tmp_path / "other"
    (other / "gpusim").mkdir(parents=True)
    (other / "gpusim" / "__init__.py").write_text("")
    with cluster(tmp_path, 0) as (address, _, stack):
        assert f"the dask scheduler at {address} has no worker (`dask worker {address} --nthreads 1` starts one)" == said()
        monkeypatch.setattr(far, "WORKERS_S", LIMIT_S)
        made = worker(stack, address, path=other)
        assert "has no gpusim.experiment (install the same gpusim in its environment)" in said()
        _end(made)
        worker(stack, address)
        with monkeypatch.context() as m:
            m.setattr(far, "_code", lambda: "another")
            assert "has another gpusim than this one: its source differs (install the same" in said()
        with monkeypatch.context() as m:
            m.setattr(far, "digest", lambda path: "another")
            assert f"does not see the results folder {tmp_path / 'out'} (a folder that all machines share" in said()
        with monkeypatch.context() as m:
            versions = distributed.Client.get_versions

            def older(client: object) -> dict[str, object]:
                found = versions(client)
                found["scheduler"]["packages"]["distributed"] = "1.0"
                return found  # type: ignore[no-any-return]

            m.setattr(distributed.Client, "get_versions", older)
            assert f"the dask scheduler at {address} has distributed 1.0, and here it is {distributed.__version__}" in said()
        assert not list((tmp_path / "out").glob("runs/*/result.json"))


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far, "CONNECT_S", 1)
    for address, words in (
        ("tcp://127.0.0.1:1", "the dask scheduler at tcp://127.0.0.1:1 does not answer (`dask scheduler` starts one"),
        ("no://where", "the dask scheduler at no://where is none: "),
        (str(tmp_path / "gone.json"), "there is no such file of a dask scheduler (`dask scheduler --scheduler-file FILE`"),
    ):
        with pytest.raises(GpusimError) as error, opened(f"dask:{address}", tmp_path, lambda: LocalWorkers(1, False)):
            pass
        assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["dask", "dask:", "ray:there", "local:2", ""])
def test_an_executor_that_there_is_none_of_is_refused(name: str, tmp_path: Path) -> None:
    words = r"needs the address of its scheduler \(dask:ADDRESS" if name.startswith("dask") else "there is no executor"
    with pytest.raises(GpusimError, match=words), opened(name, tmp_path, lambda: LocalWorkers(1, False)):
        pass


def test_any_executor_of_concurrent_futures_will_do(tmp_path: Path, todo: GridPlan) -> None:
    from concurrent.futures import ThreadPoolExecutor

    few = todo.tasks[:3]
    waiting = RunBatches(few, True, 0)
    with ThreadPoolExecutor(1) as threads:
        ended = list(Futures(threads, 2).carry_out(waiting.following, execute))
    assert [task.key for batch, _ in ended for task in batch.tasks] == [task.key for task in few]
    assert all(isinstance(outcome, Ended) and not outcome.failures for _, outcome in ended)
    assert folder.finished(todo.out) == {task.key for task in few}
    assert not (todo.out / "runs").exists()


def test_a_batch_lasts_about_a_second_by_what_runs_took(todo: GridPlan) -> None:
    waiting = RunBatches(todo.tasks, False, 0)
    first = waiting.following()
    assert first is not None and len(first.tasks) > 1
    for seconds, runs in ((0.05, 20), (0.4, 3), (7.0, 1)):
        assert waiting.ended(first, Ended(seconds, {})) == {}
        batch = waiting.following()
        assert batch is not None and len(batch.tasks) == runs
    local = RunBatches(todo.tasks[:10], False, 4)
    sizes = []
    while (batch := local.following()) is not None:
        sizes.append(len(batch.tasks))
    assert sizes[0] == 3 and sum(sizes) == 10, "few runs are divided over the workers that are here"


def test_a_batch_that_takes_too_long_gives_back_what_it_has_not_begun(todo: GridPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that others can do it, and progress is told."""
    monkeypatch.setattr(batches, "LONGEST_S", 0.0)
    few = todo.tasks[:3]
    waiting, seen = RunBatches(few, False, 1), list[str]()
    while (batch := waiting.following()) is not None:
        ended = execute(batch)
        assert ended.left == len(batch.tasks) - 1 and waiting.ended(batch, ended) == {}
        seen.append(batch.tasks[0].key)
    assert seen == [task.key for task in few] and folder.finished(todo.out) == set(seen)


def test_a_lost_batch_is_done_again_in_halves_until_the_run_is_found(todo: GridPlan) -> None:
    """The fifth of nine runs ends every worker that does it."""
    nine = todo.tasks[:9]
    waiting, done, told = RunBatches(nine, False, 0), [], []
    waiting.ended(Batch(tuple(nine), False), Ended(0.1, {}))
    while (batch := waiting.following()) is not None:
        if nine[4] not in batch.tasks:
            done += batch.tasks
        elif not waiting.lost(batch):
            told += batch.tasks
            assert waiting.ended(batch, Lost("ended")) == {0: Lost("ended")}
    assert told == [nine[4]] and sorted(t.key for t in done) == sorted(t.key for t in nine if t != nine[4])


def test_a_batch_whose_results_cannot_be_written_fails_in_all_its_runs(todo: GridPlan) -> None:
    waiting = RunBatches(todo.tasks, False, 0)
    batch = waiting.following()
    assert batch is not None
    failed = waiting.ended(batch, Failure("the disk is full"))
    assert failed == {i: Failure("the disk is full") for i in range(len(batch.tasks))}

"""Does every task of a grid end exactly once, whatever the tasks do to their workers?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpusim.base.errors import PolicyError
from gpusim.experiment.pool import Failure, run_tasks


def write(task: tuple[Path, int]) -> None:
    folder, number = task
    (folder / str(number)).write_text(str(number * number))


def misbehave(number: int) -> None:
    if number == 1:
        raise PolicyError("the policy returned NaN")
    if number == 2:
        raise KeyError("a bug")
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2, 7])
def test_every_task_runs_once_for_any_number_of_jobs(tmp_path: Path, jobs: int) -> None:
    ended = list(run_tasks([(tmp_path, n) for n in range(5)], write, jobs))
    assert sorted(index for index, _ in ended) == list(range(5))
    assert all(failure is None for _, failure in ended)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {str(n): str(n * n) for n in range(5)}


def test_tasks_in_one_process_end_in_order(tmp_path: Path) -> None:
    assert [index for index, _ in run_tasks([(tmp_path, n) for n in range(4)], write, 1)] == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_failing_task_costs_only_itself() -> None:
    failures = dict(run_tasks([0, 1, 2, 3, 4, 5], misbehave, 2))
    assert [failures[n] for n in (0, 4, 5)] == [None, None, None]
    assert failures[1] == Failure("the policy returned NaN") and not failures[1].is_bug
    bug = failures[2]
    assert bug is not None and bug.is_bug and "misbehave" in bug.trace and "KeyError" in bug.message
    killed = failures[3]
    assert killed is not None and "SIGKILL" in killed.message


def test_no_tasks_is_no_work() -> None:
    assert list(run_tasks([], misbehave, 4)) == []


# Started as a program of its own: the ancestor of the workers is one per process.
PROGRAM = """
from gpusim.experiment.pool import prepare, run_tasks
import deeds

prepare(["slow_to_import"])
list(run_tasks([0, 1], deeds.deed, 2))
"""


def _start(folder: Path, deed: str) -> subprocess.Popen[str]:
    """PROGRAM in a process group of its own; `slow_to_import` and the tasks leave files in `folder`."""
    (folder / "slow_to_import.py").write_text(
        f"from pathlib import Path\nimport time\nPath({str(folder / 'imports')!r}).touch()\ntime.sleep(1)\n"
    )
    (folder / "deeds.py").write_text(
        "import sys, time\nfrom pathlib import Path\nhere = Path(__file__).parent\n\ndef deed(number):\n    " + deed + "\n"
    )
    path = os.pathsep.join([str(folder), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def _wait_for(what: Callable[[], bool]) -> None:
    """Until it is so; fails after ten minutes."""
    end = time.monotonic() + 600
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def _is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
def test_workers_need_not_import_what_was_prepared(tmp_path: Path) -> None:
    program = _start(tmp_path, "(here / f'{number} {\"slow_to_import\" in sys.modules}').touch()")
    assert program.communicate(timeout=600)[1] == ""
    assert {p.name for p in tmp_path.iterdir()} >= {"0 True", "1 True"}
    _wait_for(lambda: _is_gone(program.pid))


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["imports", "works"])
def test_ctrl_c_is_heard_by_one_process_and_ends_all(moment: str, tmp_path: Path) -> None:
    program = _start(tmp_path, "(here / 'works').touch(); time.sleep(600)")
    _wait_for((tmp_path / moment).exists)
    os.killpg(program.pid, signal.SIGINT)
    said = program.communicate(timeout=600)[1]
    assert said.count("Traceback") == 1 and said.rstrip().endswith("KeyboardInterrupt")
    _wait_for(lambda: _is_gone(program.pid))


@pytest.mark.slow
def test_one_worker_apart_survives_what_its_tasks_do() -> None:
    failures = dict(run_tasks([0, 3, 4], misbehave, 1, apart=True))
    assert (failures[0], failures[2]) == (None, None)
    killed = failures[1]
    assert killed is not None and "SIGKILL" in killed.message

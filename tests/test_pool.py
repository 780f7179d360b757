"""Does every task of a grid end exactly once, whatever the tasks do to their workers?"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gpusim.errors import PolicyError
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


@pytest.mark.parametrize("jobs", [1, 2, 7])
def test_every_task_runs_once_for_any_number_of_jobs(tmp_path: Path, jobs: int) -> None:
    ended = list(run_tasks([(tmp_path, n) for n in range(5)], write, jobs))
    assert sorted(index for index, _ in ended) == list(range(5))
    assert all(failure is None for _, failure in ended)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {str(n): str(n * n) for n in range(5)}


def test_tasks_in_one_process_end_in_order(tmp_path: Path) -> None:
    assert [index for index, _ in run_tasks([(tmp_path, n) for n in range(4)], write, 1)] == [0, 1, 2, 3]


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

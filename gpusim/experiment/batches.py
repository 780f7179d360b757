"""Runs in batches of about a second, so that what it costs to hand a batch to a worker is little beside its runs.

How long a run takes is learned while the grid goes on, for each program by itself.  Which runs share a batch decides no result.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpusim.experiment.execute import result
from gpusim.experiment.pool import Failure, attempt
from gpusim.experiment.walls import events
from gpusim.results.folder import save_result, save_results
from gpusim.results.result import Result

if TYPE_CHECKING:
    from gpusim.experiment.tasks import Task

LEAST_S = 1.0  # of runs in a batch, as far as there are so many
FIRST_S, EVENT_S = 0.005, 1e-6  # what a run and an event of its trace are taken for before one was timed
LONGEST_S = 3.0  # after which a batch whose runs take longer than was thought begins no other
LARGEST = 2000  # runs in a batch: what a killed worker costs at most


@dataclass(frozen=True)
class Batch:
    """Runs that one worker does, one after the other.

    in_columns  they are kept together, in columns, and not in folders of their own
    """

    tasks: tuple[Task, ...]
    in_columns: bool


@dataclass(frozen=True)
class Ended:
    """What became of a batch.

    seconds   how long a run of it takes
    failures  runs that failed, by their number in it
    left      runs at its end that were not begun
    """

    seconds: float
    failures: dict[int, Failure]
    left: int = 0


def execute(batch: Batch) -> Ended:
    """Simulate the runs and keep their results.  Raises ResultError when these cannot be written."""
    found: dict[str, Result] = {}
    failures: dict[int, Failure] = {}
    ends = [time.perf_counter()]
    try:
        for i, task in enumerate(batch.tasks):

            def run(task: Task) -> None:
                done = result(task)
                if batch.in_columns:
                    found[task.key] = done
                else:
                    save_result(task.out, task.key, done)

            if isinstance(failure := attempt(run, task), Failure):
                failures[i] = failure
            ends.append(time.perf_counter())
            if ends[-1] - ends[0] > LONGEST_S:
                break
    finally:  # what an interrupted batch has done is kept
        save_results(batch.tasks[0].out, found)
    # The first run of a batch may have read its trace.
    alike = ends[1:] if len(ends) > 2 else ends
    return Ended((alike[-1] - alike[0]) / (len(alike) - 1), failures, len(batch.tasks) - len(ends) + 1)


class RunBatches:
    """The tasks of a grid as batches, one after the other.

    workers  so many share what is left; 0: batches are of LEAST_S, however few workers then have something to do
    """

    def __init__(self, tasks: Sequence[Task], in_columns: bool, workers: int) -> None:
        self._left, self._in_columns, self._workers = deque(tasks), in_columns, workers
        self._again: deque[tuple[Task, ...]] = deque()
        self._seconds: dict[tuple[str, str, bool], float] = {}  # of a run of this program

    def following(self) -> Batch | None:
        """The next batch; None while nothing is left."""
        if self._again:
            return Batch(self._again.popleft(), self._in_columns)
        if not self._left:
            return None
        most = min(LARGEST, -(-len(self._left) // self._workers) if self._workers else LARGEST)
        taken, seconds = [self._left.popleft()], 0.0
        seconds += self._takes(taken[0])
        while self._left and seconds < LEAST_S and len(taken) < most:
            taken.append(self._left.popleft())
            seconds += self._takes(taken[-1])
        return Batch(tuple(taken), self._in_columns)

    def ended(self, batch: Batch, outcome: Ended | Failure) -> dict[int, Failure]:
        """What a batch came to: which of its runs failed, by their number in it; all where it failed itself.

        Runs that it did not begin are in later batches.
        """
        if isinstance(outcome, Failure):
            return dict.fromkeys(range(len(batch.tasks)), outcome)
        for program in {_program(task) for task in batch.tasks}:
            self._seconds[program] = outcome.seconds
        self._left.extendleft(reversed(batch.tasks[len(batch.tasks) - outcome.left :]))
        return outcome.failures

    def lost(self, batch: Batch) -> bool:
        """Its worker ended: its runs are done again, in halves, so that a run that ends its worker costs only itself; False
        where that is found."""
        tasks = batch.tasks
        if len(tasks) == 1:
            return False
        half = len(tasks) // 2
        self._again += [tasks[:half], tasks[half:]]
        return True

    def _takes(self, task: Task) -> float:
        program = _program(task)
        if program not in self._seconds:
            self._seconds[program] = FIRST_S + EVENT_S * events([task])
        return self._seconds[program]


def _program(task: Task) -> tuple[str, str, bool]:
    return str(task.trace), task.spec.transform, task.spec.unified.name != "none"



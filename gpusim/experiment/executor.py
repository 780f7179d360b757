"""What does the batches of a grid: worker processes of this machine, or any executor of concurrent.futures, as dask's is.

A worker leaves results in the results folder, which it must see under the same path, and answers how each run ended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from concurrent.futures import Executor as FuturesExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gpusim.base.errors import GpusimError
from gpusim.experiment.pool import Lost, attempt, carry_out

Task = TypeVar("Task")
Following = Callable[[], Task | None]
Outcomes = Generator[tuple[Task, Any], None, None]
AHEAD = 2  # batches that each worker of another machine is given at once, so that it waits for none


@dataclass(frozen=True)
class Stop:
    """What a worker answers that cannot do any task."""

    why: str


class Executor(Protocol):
    """Does tasks that are asked for one by one, and yields each with what came of it."""

    @property
    def workers(self) -> int:
        """Over how many workers a batch of less than a second is divided; 0: over none, they are far."""

    def carry_out(self, following: Following[Task], work: Callable[[Task], Any]) -> Outcomes[Task]:
        """`pool.carry_out`: yields each task with what `work` returned, a Failure, or Lost."""


@dataclass(frozen=True)
class LocalWorkers:
    """Worker processes of this machine, or this one."""

    workers: int
    apart: bool

    def carry_out(self, following: Following[Task], work: Callable[[Task], Any]) -> Outcomes[Task]:
        return carry_out(following, work, self.workers, apart=self.apart)


@dataclass(frozen=True)
class Futures:
    """An executor of concurrent.futures that does so many tasks at once.

    check    called while nothing ends for so long, and when a task was lost: says why, or raises GpusimError
    attempt  does a task where the executor has its workers
    """

    executor: FuturesExecutor
    slots: int
    check: Callable[[], object] = lambda: None
    attempt: Callable[[Callable[[Any], Any], Any], Any] = attempt
    every_s: float = 5.0
    workers: int = 0

    def carry_out(self, following: Following[Task], work: Callable[[Task], Any]) -> Outcomes[Task]:
        given: dict[Future[Any], Task] = {}
        try:
            while True:
                while len(given) < self.slots and (task := following()) is not None:
                    given[self.executor.submit(self.attempt, work, task)] = task
                if not given:
                    return
                ended, _ = wait(given, self.every_s, FIRST_COMPLETED)
                if not ended:
                    self.check()
                for future in ended:
                    task, outcome = given.pop(future), _outcome(future)
                    if isinstance(outcome, Stop):
                        raise GpusimError(outcome.why)
                    if isinstance(outcome, Lost):
                        self.check()
                    yield task, outcome
        finally:
            for future in given:
                future.cancel()


def _outcome(future: Future[Any]) -> Any:
    try:
        return future.result()
    except CancelledError:
        return Lost("its scheduler has ended")
    except Exception as error:  # of the executor: what a task raises comes as a Failure
        return Lost(f"its worker has ended ({type(error).__name__})")

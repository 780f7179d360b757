"""Worker processes that do independent tasks; a task that fails, or kills its worker, costs only itself.

Results do not come back through the pool: a task leaves what it made on disk.  The pool only says how each task ended,
so that any number of workers gives the same bytes.  `carry_out` hands on what `work` returns, which is little.

Workers are copies of one ancestor.  What it has imported they need not import, and it can do so while this process is
still busy with something else: `prepare`.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from gpusim.base.errors import GpusimError

Task = TypeVar("Task")


@dataclass(frozen=True)
class Failure:
    """Why a task did not end well."""

    message: str  # one sentence
    trace: str = ""  # the traceback when it is a bug; "" when the user can act on the message

    @property
    def is_bug(self) -> bool:
        return bool(self.trace)


@dataclass(frozen=True)
class Lost(Failure):
    """Its worker ended before the task did: another may do it."""


# Never a plain fork: a forked copy of a process with threads may hang, and numba's caches differ.
_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prepare(modules: Sequence[str]) -> None:
    """Start the workers' ancestor, which imports these modules; does not wait for it.  The first call counts."""
    if _METHOD != "forkserver":
        return
    from multiprocessing import forkserver, resource_tracker

    # What each worker runs as its main module (python -m gpusim.cli.app) must not be there before.
    main = getattr(sys.modules["__main__"], "__spec__", None)
    forkserver.set_forkserver_preload([module for module in modules if main is None or module != main.name])
    resource_tracker.ensure_running()  # else the ancestor starts it, and that lets Ctrl-C through again
    # Ctrl-C reaches all processes, and the parent decides: the ancestor must not hear it while it imports.
    heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)


def run_tasks(
    tasks: Sequence[Task],
    work: Callable[[Task], object],
    jobs: int = 1,
    meanwhile: Callable[[], object] = lambda: None,
    apart: bool = False,
) -> Generator[tuple[int, Failure | None], None, None]:
    """Call work(task) for every task and yield (index of the task, failure or None) as they end.

    jobs       1 runs in this process, in order; more use that many worker processes, and tasks end in any order.
    meanwhile  called once, here, when the workers have begun
    apart      use a worker process for one job, too
    work and the tasks must be picklable for workers.  Closing the generator (or Ctrl-C) ends them at once.
    """
    waiting = iter(enumerate(tasks))
    numbered = carry_out(lambda: next(waiting, None), _Numbered(work), min(jobs, len(tasks)), meanwhile, apart)
    with closing(numbered) as ending:
        for (index, _), ended in ending:
            yield index, ended if isinstance(ended, Failure) else None


@dataclass(frozen=True)
class _Numbered:
    """Does the second of a pair."""

    work: Callable[[Any], object]

    def __call__(self, pair: tuple[int, Any]) -> None:
        self.work(pair[1])


def carry_out(
    following: Callable[[], Task | None],
    work: Callable[[Task], Any],
    jobs: int = 1,
    meanwhile: Callable[[], object] = lambda: None,
    apart: bool = False,
) -> Generator[tuple[Task, Any], None, None]:
    """The same for tasks that are asked for one by one, whenever a worker is free, until `following` answers None; yields each
    task with what `work` returned, a Failure or a `Lost`, and then asks again."""
    if jobs <= 1 and not apart:
        meanwhile()
        while (task := following()) is not None:
            yield task, attempt(work, task)
        return
    context: Any = multiprocessing.get_context(_METHOD)
    busy: dict[Connection, tuple[BaseProcess, Task]] = {}

    def start() -> bool:
        """A new worker with its first task, when one waits."""
        if (task := following()) is None:
            return False
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(work, theirs), daemon=True)
        with _main_unnamed():
            process.start()
        theirs.close()  # so that a dead worker reads as an end of file
        ours.send(task)
        busy[ours] = (process, task)
        return True

    try:
        while len(busy) < max(jobs, 1) and start():
            pass
        meanwhile()
        while busy:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                process, task = busy.pop(pipe)
                try:
                    ended = pipe.recv()
                except (EOFError, OSError):
                    pipe.close()
                    process.join()
                    yield task, Lost(_obituary(process.exitcode))
                    while len(busy) < max(jobs, 1) and start():  # what was lost may be asked for again, in parts
                        pass
                    continue
                yield task, ended
                if (task_after := following()) is None:
                    pipe.close()  # the worker reads the end of file and leaves
                else:
                    pipe.send(task_after)
                    busy[pipe] = (process, task_after)
                    while len(busy) < max(jobs, 1) and start():  # others left when there seemed to be nothing more
                        pass
    finally:
        for pipe, (process, _) in busy.items():
            process.terminate()
            pipe.close()


@contextmanager
def _main_unnamed() -> Iterator[None]:
    """Workers do not import the program that runs here: a script of the user's would otherwise run once more in each."""
    main = sys.modules["__main__"]
    hidden = {name: getattr(main, name) for name in ("__spec__", "__file__") if getattr(main, name, None) is not None}
    for name in hidden:
        setattr(main, name, None)
    try:
        yield
    finally:
        for name, value in hidden.items():
            setattr(main, name, value)


def attempt(work: Callable[[Task], Any], task: Task) -> Any:
    """What the work returns, or why it failed."""
    try:
        return work(task)
    except GpusimError as error:
        return Failure(str(error))
    except MemoryError:
        return Failure("this machine ran out of memory")
    except OSError as error:
        return Failure(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


def _serve(work: Callable[[Any], object], pipe: Connection) -> None:
    """A worker's life: tasks from the pipe until the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent decides
    gc.freeze()  # what comes from the ancestor stays
    gc.set_threshold(100_000)  # as in the parent: gpusim.cli.app.main
    try:
        while True:
            pipe.send(attempt(work, pipe.recv()))
    except (EOFError, OSError):
        return


def _obituary(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        name = signal.Signals(-exitcode).name
        reason = " (out of memory?)" if name == "SIGKILL" else ""
        return f"the worker process was ended by {name}{reason}"
    return f"the worker process ended with exit code {exitcode}"

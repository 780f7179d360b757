"""The tasks of an experiment, executed, in one folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpusim.base.yaml.values import NONE
from gpusim.experiment import walls
from gpusim.experiment.executor import Executor, LocalWorkers
from gpusim.experiment.pool import Failure, Lost, cores, prepare
from gpusim.experiment.spec import Uncertainty
from gpusim.experiment.tasks import GridPlan, Task, forget_traces
from gpusim.experiment.where import LOCAL, opened
from gpusim.results.folder import discard, finished, load_folder, note_results, open_folder, sampled_in
from gpusim.results.result import Result
from gpusim.results.summary import write_summary

if TYPE_CHECKING:
    from gpusim.experiment.uncertainty import SampledGroup

# Starting workers pays from about this many bytes of trace files on (1 MB simulates in some tenths of a second).
PARALLEL_FROM = 20 * 10**6
OF_PAGES = 5 * 10**6
"""What a run under unified memory counts as: it goes page by page, through a text of some lines or a whole recording."""
NOT_SAMPLED = Uncertainty(samples=0)


@dataclass
class Finished:
    """What became of an experiment."""

    results: list[Result] = field(default_factory=list)  # of the grid, in its order, without timelines
    failures: list[tuple[Task | SampledGroup, Failure]] = field(default_factory=list)
    ran: int = 0  # runs that were executed now; the others were there
    resampled: bool = False  # other machines are sampled than the last time, or none any more


def run(
    plan: GridPlan,
    experiment: str,
    inputs: dict[str, Any],
    *,
    uncertainty: Uncertainty = NOT_SAMPLED,
    jobs: int | None = None,
    executor: str = LOCAL,
    force: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    later: Sequence[str] = (),
) -> Finished:
    """Execute what is not there yet; keep a summary.

    Raises ResultError when the folder cannot be written, GpusimError when the executor is not there.

    experiment  the resolved experiment, as text
    inputs      content hashes of what was read, by name
    uncertainty how many machines to sample, and which
    jobs        worker processes; None: as many as help
    executor    where runs are done: `experiment.executor`
    force       execute also what is there
    progress    called with (runs done, runs to do)
    later       modules that worker processes import meanwhile, for what they will do after the runs
    """
    sampled: list[str] = []
    if uncertainty.samples:
        from gpusim.experiment.uncertainty import names

        sampled = names(plan, uncertainty)
    done = Finished(resampled=sampled != sampled_in(plan.out))
    todo = plan.tasks if force else plan.waiting()
    timed = walls.read(plan.out)
    discarded = (plan.changed, plan.damaged)
    open_folder(
        plan.out, experiment, inputs, [task.key for task in plan.grid], samples=sampled, references=plan.measured,
        waiting=bool(todo),
    )  # fmt: skip
    discard(plan.out, *discarded)  # what no run wrote must not stay where the run fails now

    if todo:
        with opened(executor, plan.out, lambda: _local(todo, jobs, later)) as doing:
            _carry_out(plan, todo, doing, done, timed, progress)
    done.results = _summarise(plan)
    if done.results and sampled:
        with_references = 2 * uncertainty.samples
        local = LocalWorkers(jobs or _helpful(plan.grid, with_references), _uninterruptible(plan.grid))
        with opened(executor, plan.out, lambda: local) as doing:
            _sample(plan, uncertainty, done, doing, force, progress)
    return done


def _local(todo: Sequence[Task], jobs: int | None, later: Sequence[str]) -> LocalWorkers:
    """Worker processes of this machine for these tasks; they begin to import what they will need."""
    local = LocalWorkers(min(jobs or _helpful(todo), len(todo)), _uninterruptible(todo))
    workers = local.workers > 1 or local.apart
    if workers:
        forget_traces()  # every worker reads for itself
    if imports := [*(["gpusim.experiment.batches"] if workers else []), *later]:
        prepare(imports)
    return local


def _carry_out(
    plan: GridPlan, todo: Sequence[Task], doing: Executor, done: Finished, timed: Sequence[walls.Timed],
    progress: Callable[[int, int], None],
) -> None:  # fmt: skip
    """Have these tasks done in batches; what came of them is in `done`."""
    from gpusim.experiment import batches

    waiting, ended = batches.RunBatches(todo, plan.in_columns, doing.workers), list[Task]()
    progress(0, len(todo))
    began = time.monotonic()
    try:
        with closing(doing.carry_out(waiting.following, batches.execute)) as ending:
            for batch, outcome in ending:
                if isinstance(outcome, Lost) and waiting.lost(batch):
                    continue
                failures = waiting.ended(batch, outcome)
                done.failures += [(batch.tasks[i], failure) for i, failure in failures.items()]
                begun = len(batch.tasks) - (0 if isinstance(outcome, Failure) else outcome.left)
                ended += [task for i, task in enumerate(batch.tasks[:begun]) if i not in failures]
                progress(len(ended) + len(done.failures), len(todo))
    except KeyboardInterrupt:
        _summarise(plan)
        raise
    finally:
        done.ran = len(ended)
        walls.keep(plan.out, [*timed, *(walls.of_run(ended, time.monotonic() - began) if ended else [])])


def _summarise(plan: GridPlan) -> list[Result]:
    """The results that are there, with their bounds, and a summary of them; none where there are none."""
    note_results(plan.out, [task.key for task in plan.tasks])
    there = finished(plan.out)
    results = load_folder(plan.out, timeline=False) if any(task.key in there for task in plan.grid) else []
    if results:
        write_summary(plan.out, results)
    return results


def _sample(
    plan: GridPlan, uncertainty: Uncertainty, done: Finished, doing: Executor, force: bool,
    progress: Callable[[int, int], None],
) -> None:
    """Repeat the runs on sampled machines, and let the results have what that showed."""
    from gpusim.experiment.uncertainty import sample, waiting

    todo = plan.grid if force else waiting(plan, uncertainty)
    began, failed = time.monotonic(), len(done.failures)
    done.failures += sample(plan, uncertainty, done.results, doing, force=force, progress=progress)
    if todo and len(done.failures) == failed:
        seconds = time.monotonic() - began
        walls.keep(plan.out, [*walls.read(plan.out), *walls.of_samples(todo, uncertainty.samples, seconds)])
    done.results = load_folder(plan.out, timeline=False)


def _uninterruptible(tasks: Iterable[Task]) -> bool:
    """True for users' policies that are compiled: Ctrl-C does not get into an endless loop of theirs."""
    return any(task.use or task.given.entries for task in tasks) and os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"


def _helpful(tasks: Iterable[Task], times: int = 1) -> int:
    """How many worker processes help: one (this) for work that is done before others have started."""
    cost = times * sum(task.trace.stat().st_size + OF_PAGES * (task.spec.unified != NONE) for task in tasks)
    return 1 if cost < PARALLEL_FROM else cores()

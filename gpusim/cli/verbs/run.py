"""Run an experiment: all runs of its grid, a table, and figures."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.base.errors import GpusimError
from gpusim.cli import say
from gpusim.cli.asked import experiment as asked_for
from gpusim.cli.asked import question
from gpusim.cli.options import (
    FORMATS,
    Experiment,
    Figures,
    Formats,
    Jobs,
    Json,
    Machines,
    MetricsScale,
    OwnKernelTimes,
    Set,
    Use,
    output,
)  # fmt: skip
from gpusim.cli.progress import bar

if TYPE_CHECKING:
    from gpusim.cli.metrics_out import MetricsOut
    from gpusim.experiment.grid import Finished
    from gpusim.experiment.load import Loaded
    from gpusim.experiment.tasks import GridPlan, Task

ASKS = {
    "service": "asks about services", "experts": "asks about experts", "models": "asks about many models",
    "training": "asks about a long training",
}  # fmt: skip
SHOWN = 20  # failed runs that are named


def verb(
    experiment: Experiment,
    *,
    on: Machines = None,
    use: Use = None,
    sets: Set = None,
    kernel_times: OwnKernelTimes = None,
    out: Annotated[Path | None, output("The results folder; default: results/NAME.")] = None,
    jobs: Jobs = None,
    uncertainty: Annotated[
        int | None,
        typer.Option(
            "--uncertainty", metavar="[N]", min=0, max=10_000,
            help="Repeat every run on N machines (16 if N is left out) that the profile's error bars allow: intervals, ties, "
            "and the number that would change which is best. 0 for none.",
        ),
    ] = None,
    executor: Annotated[
        str,
        typer.Option(
            "--executor", metavar="local|dask:ADDRESS",
            help="Where runs are done: local, by worker processes here, or dask:ADDRESS, by a scheduler's (or dask:FILE.json).",
        ),
    ] = "local",
    log: Annotated[bool, typer.Option("--log", help="Keep the event log of every run, for `gpusim check`.")] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", metavar="PATH|:PORT",
            help="Give metrics over time as OpenMetrics: to a file, or to Prometheus at [HOST]:PORT. Keeps event logs.",
        ),
    ] = None,
    metrics_scale: MetricsScale = 0.0,
    figures: Figures = True,
    formats: Formats = FORMATS,
    force: Annotated[bool, typer.Option("--force", help="Run again what is already there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many runs wait, and for how long.")] = False,
    allow_large: Annotated[bool, typer.Option("--allow-large", help="Allow a grid of very many runs.")] = False,
    json: Json = False,
) -> int:
    """`gpusim run`; the exit code: 0, 2 when a run failed by its input, 1 by a bug."""
    from gpusim.cli.show import chosen_formats
    from gpusim.experiment import load
    from gpusim.experiment.tasks import plan
    from gpusim.results.folder import has_result
    from gpusim.studies.monitoring.runs import RecordedRuns

    if what := question(experiment):
        if on or use or sets or uncertainty or log or metrics or dry_run or kernel_times:
            raise GpusimError(f"'{experiment}' {ASKS[what]}: it takes --output, --jobs, --force and --json alone")
        return _answered(what, experiment, out, jobs, force, json)
    if metrics is None and metrics_scale:
        raise GpusimError("--metrics-scale is the clock of --metrics", hint="say where metrics go: --metrics metrics.om")
    drawn = chosen_formats(formats)
    asked = [] if uncertainty is None else [f"uncertainty.samples={uncertainty}"]
    asked += [] if kernel_times is None else [f"kernel_times={dumps(str(kernel_times.resolve()))}"]
    sets = [*(sets or []), *asked, *(["options.log=true"] if log or metrics else [])]
    loaded = asked_for(experiment, sets, on=on, use=use)
    todo = plan(loaded, out or load.default_folder(loaded), allow_large=allow_large)
    for words in load.told(loaded):
        say.note(words)
    for words in [] if force else todo.changed.values():
        say.note(f"{words}, so the run is done again")
    for words in todo.damaged.values():
        say.note(f"{words}, so it is written again, with those of its runs that are nowhere else")
    waiting = todo.tasks if force else todo.waiting()
    load.foresee(loaded, waiting)
    if dry_run:
        from gpusim.cli.rehearsal import rehearse

        rehearse(todo, waiting, loaded.experiment.uncertainty, force=force, json=json)
        return 0
    jobs = jobs or loaded.experiment.jobs
    with _metrics(metrics) as told:
        formats_drawn = drawn if figures else []
        code = carry_out(loaded, todo, waiting, jobs=jobs, executor=executor, force=force, formats=formats_drawn, json=json)
        if told is not None and any(has_result(todo.out, task.key) for task in todo.grid):
            with _ends_on_request():
                told.give(RecordedRuns(todo.out, metrics_scale, loaded.own), quiet=json)
    return code


def _answered(what: str, word: str, out: Path | None, jobs: int | None, force: bool, json: bool) -> int:
    from gpusim.cli.verbs import experts, failures, models, serve
    from gpusim.experiment.pool import cores

    folder = out or Path("results") / Path(word).stem
    if what == "experts":
        experts.answer_question(word, folder, json=json)
    elif what == "models":
        models.answer_question(word, folder, json=json)
    elif what == "training":
        failures.answer_question(word, folder, json=json)
    else:
        serve.answer_question(word, folder, jobs or cores(), force, json)
    return 0


@contextmanager
def _metrics(target: str | None) -> Iterator[MetricsOut | None]:
    """Where metrics over time go, open before anything runs; None where that was not asked for."""
    from gpusim.cli.metrics_out import MetricsOut

    out = None if target is None else MetricsOut(target)
    try:
        yield out
    finally:
        if out is not None:
            out.close()


def carry_out(
    loaded: Loaded, todo: GridPlan, waiting: list[Task], *, jobs: int | None, executor: str, force: bool, formats: list[str],
    json: bool,
) -> int:
    """Run what waits, print what came of it, and draw it in these formats; the exit code as of the verb."""
    if not json:
        typer.echo(f"{loaded.experiment.question}\n")
        if waiting:
            if extent := todo.extent():
                typer.echo(f"{len(todo.grid)} runs, and {extent}\n")
            _recorded_segments(loaded)
    with _ends_on_request():
        done = _execute(loaded, todo, waiting, jobs=jobs, executor=executor, force=force, figures=bool(formats))
        if done.results:
            _show(loaded, todo.out, done, formats, jobs=jobs, json=json)
    for task, failure in done.failures[:SHOWN]:
        say.error(f"this run failed: {task}\n        {failure.message}")
        if failure.is_bug:
            typer.echo(failure.trace, err=True)
    if not done.failures:
        return 0
    more = f", of which {SHOWN} are named above" if len(done.failures) > SHOWN else ""
    say.error(f"{len(done.failures)} of {len(todo.tasks)} runs failed{more}; the others are kept")
    return 1 if any(failure.is_bug for _, failure in done.failures) else 2


def _execute(
    loaded: Loaded, todo: GridPlan, waiting: list[Task], *, jobs: int | None, executor: str, force: bool, figures: bool
) -> Finished:
    """The runs of the grid; what is finished is kept, and can be read, when it is stopped."""
    from gpusim.cli.draw import NEEDS
    from gpusim.cli.report import refresh
    from gpusim.experiment import grid
    from gpusim.experiment.pool import cores
    from gpusim.experiment.resolved import resolved
    from gpusim.experiment.tasks import inputs
    from gpusim.results.folder import finished, load_folder

    try:
        _compile(waiting)
        with bar("runs", f"{len(waiting)} runs") as progress:
            return grid.run(
                todo,
                resolved(loaded.experiment),
                inputs(loaded),
                uncertainty=loaded.experiment.uncertainty,
                jobs=jobs,
                executor=executor,
                force=force,
                progress=progress,
                later=NEEDS if figures and (jobs or cores()) > 1 else (),
            )
    except KeyboardInterrupt:
        there = finished(todo.out)
        kept = sum(task.key in there for task in todo.grid)
        if kept:
            refresh(todo.out, load_folder(todo.out))
        shown = f"`gpusim compare {todo.out}` shows them, " if kept else ""
        left = f"{kept} of {len(todo.grid)} runs are in {todo.out}; {shown}the same command does the rest"
        say.error(f"stopped: {left}")
        raise


@contextmanager
def _ends_on_request() -> Iterator[None]:
    """SIGTERM, with which Slurm and CI end what takes too long, is Ctrl-C."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only that one hears signals
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _compile(waiting: list[Task]) -> None:
    """What these runs need compiled, where none of it is on disk yet; says so."""
    from gpusim.base.yaml.values import NONE
    from gpusim.experiment import warm
    from gpusim.experiment.spec import KINDS

    def said(what: str) -> Any:
        say.told(f"compiling {what}")
        return bar("", "compiling")

    explicit = [task for task in waiting if task.spec.unified == NONE]
    if explicit and warm.is_cold():
        with said("the kernels, once; this takes about 20 seconds"):
            warm.compile_side_by_side(
                (kind, policy.name)
                for task in explicit
                for kind in KINDS
                for policy in (getattr(task.spec, kind),)
            )  # fmt: skip
    if len(explicit) < len(waiting) and warm.is_cold(warm.UNIFIED):
        with said("the model of unified memory, once; this takes about 30 seconds"):
            warm.compile_unified()


def _show(loaded: Loaded, folder: Path, done: Finished, formats: list[str], *, jobs: int | None, json: bool) -> None:
    """Table, answer and figures; without formats no figures.  The report is there even when a figure cannot be drawn."""
    from gpusim.cli.draw import draw
    from gpusim.cli.report import refresh
    from gpusim.cli.show import print_results
    from gpusim.show.figures import left_out

    e, drawn = loaded.experiment, {}

    try:
        drawn = draw(
            folder,
            e.figures if formats else [],
            e.question,
            results=done.results,
            formats=formats,
            jobs=jobs,
            # Equal results give equal figures: what is there from an earlier run need not be drawn again.
            new=bool(done.ran) or done.resampled,
            meanwhile=lambda: print_results(done.results, json=json),
        )
    finally:
        refresh(folder, done.results)
    if json:
        return
    made = [f"{_count(done.ran, 'run')} executed" if done.ran else "all runs were there", "summary.csv", "report.md"]
    made += [f"{_count(len(drawn), 'figure')} in figures/"] if drawn else []
    typer.echo(f"\n{folder}: {', '.join(made)}")
    for figure, why in left_out(e.figures if formats else [], drawn).items():
        typer.echo(f"not drawn: {figure}: {why}")
    typer.echo(f"one page to look into all of it: gpusim report {quote(str(folder))}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _recorded_segments(loaded: Loaded) -> None:
    """Of recordings with addresses: first, how exactly the model of their allocator repeats them."""
    from gpusim.base.yaml.find import is_managed, is_of_ranks
    from gpusim.experiment.tasks import read_trace
    from gpusim.studies.fragmentation.fidelity import in_words

    for name, file in loaded.traces.items():
        if is_managed(file) or is_of_ranks(file):
            continue
        if words := in_words(read_trace(file)):
            typer.echo(f"Baseline of {name}: {words[0].lower()}{words[1:]}\n")

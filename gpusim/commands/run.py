"""`gpusim run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gpusim.commands import load
from gpusim.commands.progress import bar

if TYPE_CHECKING:
    from gpusim.config.load import Loaded


def run(
    name: str,
    sets: Sequence[str],
    out: Path | None,
    *,
    uncertainty: int | None,
    jobs: int | None,
    log: bool,
    figures: bool,
    formats: str,
    force: bool,
    allow_large: bool,
    json: bool,
) -> int:
    """Run the experiment, print what came of it; the exit code: 0, 2 when a run failed by its input, 1 by a bug."""
    from gpusim.commands.draw import NEEDS, draw
    from gpusim.commands.look import chosen_formats, print_results
    from gpusim.config.experiment import KINDS
    from gpusim.config.values import NONE
    from gpusim.experiment import grid, warm
    from gpusim.experiment.plan import inputs, plan
    from gpusim.experiment.pool import cores
    from gpusim.experiment.resolved import resolved
    from gpusim.show.report import write_report

    wanted = chosen_formats(formats)
    asked = [] if uncertainty is None else [f"uncertainty.samples={uncertainty}"]
    loaded = load.experiment(name, [*sets, *asked, *(["options.log=true"] if log else [])])
    jobs = jobs or loaded.experiment.jobs
    folder = out or load.default_folder(loaded)
    todo = plan(loaded, folder, allow_large=allow_large)
    for words in load.told(loaded):
        typer.echo(f"gpusim: note: {words}", err=True)
    for words in [] if force else todo.changed.values():
        typer.echo(f"gpusim: note: {words}, so the run is done again", err=True)
    load.foresee(loaded, todo.tasks if force else todo.waiting())
    if not json:
        typer.echo(f"{loaded.experiment.question}\n")
        if force or todo.waiting():
            if extent := todo.extent():
                typer.echo(f"{len(todo.grid)} runs, and {extent}\n")
            _recorded_segments(loaded)
    if (force or todo.waiting()) and warm.is_cold():
        typer.echo("gpusim: compiling the kernels, once; this takes about 20 seconds", err=True)
        warm.compile_side_by_side(
            (kind, policy.name)
            for task in todo.tasks
            for kind in KINDS
            for policy in (getattr(task.spec, kind),)
        )
    if any(task.spec.unified != NONE for task in (todo.tasks if force else todo.waiting())) and warm.is_cold("batches", "uvm"):
        typer.echo("gpusim: compiling the model of unified memory, once; this takes about a minute", err=True)
        warm.compile_unified()
    try:
        with bar("runs") as progress:
            done = grid.run(
                todo,
                resolved(loaded.experiment),
                inputs(loaded),
                uncertainty=loaded.experiment.uncertainty,
                jobs=jobs,
                force=force,
                progress=progress,
                later=NEEDS if figures and (jobs or cores()) > 1 else (),
            )
    except KeyboardInterrupt:
        typer.echo(f"gpusim: finished runs are kept in {folder}; the same command does the rest", err=True)
        raise
    if done.results:
        e = loaded.experiment
        drawn = draw(
            folder,
            e.figures if figures else [],
            e.question,
            results=done.results,
            formats=wanted,
            jobs=jobs,
            # Equal results give equal figures: what is there from an earlier run need not be drawn again.
            new=bool(done.ran) or done.resampled,
            meanwhile=lambda: print_results(done.results, json=json),
        )
        write_report(folder, done.results, e.question, drawn)
        if not json:
            made = [f"{done.ran} runs executed" if done.ran else "all runs were there", "summary.csv", "report.md"]
            made += [f"{len(drawn)} figures in figures/"] if drawn else []
            typer.echo(f"\n{folder}: {', '.join(made)}")
    for task, failure in done.failures:
        typer.echo(f"gpusim: this run failed: {task}\n        {failure.message}", err=True)
        if failure.is_bug:
            typer.echo(failure.trace, err=True)
    if not done.failures:
        return 0
    typer.echo(f"gpusim: {len(done.failures)} of {len(todo.tasks)} runs failed; the others are kept", err=True)
    return 1 if any(failure.is_bug for _, failure in done.failures) else 2


def _recorded_segments(loaded: Loaded) -> None:
    """Of recordings with addresses: first, how exactly the model of their allocator repeats them."""
    from gpusim.config.find import is_managed
    from gpusim.experiment.plan import read_trace
    from gpusim.fragment.fidelity import in_words

    for name, file in loaded.traces.items():
        if is_managed(file):
            continue
        if words := in_words(read_trace(file)):
            typer.echo(f"Baseline of {name}: {words[0].lower()}{words[1:]}\n")

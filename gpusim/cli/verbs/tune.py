"""Search the parameters that serve an experiment's question best, where a grid would grow too large."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli import complete, say
from gpusim.cli.asked import experiment as asked_for
from gpusim.cli.options import Experiment, Jobs, Json, Machines, Set, Use, output
from gpusim.cli.output import emit_json
from gpusim.cli.progress import bar

if TYPE_CHECKING:
    from gpusim.studies.tuning.tune import Tuned

BUDGET, BATCH = 200, 8


def verb(
    experiment: Experiment,
    *,
    minimise: Annotated[
        str | None,
        typer.Option(
            "--minimise", metavar="METRIC[,METRIC]", autocompletion=complete.metrics,
            help="What there should be least of; several give a Pareto front. Default: slowdown, or makespan_ns where "
            "programs or machines differ.",
        ),
    ] = None,
    maximise: Annotated[
        str | None,
        typer.Option(
            "--maximise", metavar="METRIC[,METRIC]", autocompletion=complete.metrics, help="What there should be most of."
        ),
    ] = None,
    per: Annotated[
        str, typer.Option("--per", metavar="KNOB", help="Divide times by this knob: transform.batch.factor.")
    ] = "",
    budget: Annotated[int, typer.Option("--budget", help="Trials, the experiment as written among them.")] = BUDGET,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Of the search: which trials it draws.")] = 0,
    batch: Annotated[
        int, typer.Option("--batch", help="Trials that are asked for at once; more keep more workers busy, and learn less.")
    ] = BATCH,
    grid: Annotated[bool, typer.Option("--grid", help="Also run the finest grid of the same budget, and compare.")] = False,
    on: Machines = None,
    use: Use = None,
    sets: Set = None,
    out: Annotated[Path | None, output("The results folder; default: results/NAME-tuned.")] = None,
    jobs: Jobs = None,
    allow_large: Annotated[bool, typer.Option("--allow-large", help="Allow very many runs.")] = False,
    json: Json = False,
) -> int:
    """`gpusim tune`; the exit code: 0, 2 when no trial finished, 1 when a run ended by a bug."""
    from gpusim.studies.tuning.tune import tune

    loaded = asked_for(experiment, sets or [], on=on, use=use)
    folder = out or Path("results") / f"{loaded.path.stem}-tuned"
    if loaded.experiment.uncertainty.samples:
        say.note("a search repeats no run on sampled machines: `gpusim run` does, with the lines that it prints")
    try:
        with bar("trials", "the experiment as written") as progress:
            found = tune(
                loaded, folder, minimise=_words(minimise), maximise=_words(maximise), per=per, budget=budget, seed=seed,
                batch=batch, grid=grid, jobs=jobs or loaded.experiment.jobs, allow_large=allow_large, progress=progress,
            )  # fmt: skip
    except KeyboardInterrupt:
        say.error(f"stopped: what has ended is in {folder}; the same command goes on")
        raise
    return _show(found, experiment, json=json)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _show(found: Tuned, experiment: str, *, json: bool) -> int:
    from gpusim.cli.report import refresh
    from gpusim.show import tuned as shown

    if found.results:
        refresh(found.folder, found.results)
    if json:
        emit_json(shown.values(found))
    else:
        typer.echo(f"{found.question}\n\n{shown.text(found, experiment)}")
        if found.results:
            typer.echo(f"\n{found.folder}: {len(found.results)} runs, tune.json, summary.csv, report.md")
    for task, failure in found.bugs:
        say.error(f"this run failed: {task}\n        {failure.message}")
        typer.echo(failure.trace, err=True)
    if found.bugs:
        return 1
    return 2 if found.best() is None else 0

"""Explain the page faults of a run under unified memory: causes, batches, bytes, time, and which hints would help."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.base.errors import ResultError, suggest
from gpusim.cli import complete
from gpusim.cli.asked import experiment, no_program
from gpusim.cli.options import Json, Machines, Set, Use
from gpusim.cli.output import emit, emit_json
from gpusim.cli.progress import bar

if TYPE_CHECKING:
    from gpusim.engine.pages.advisor import Advised
    from gpusim.results.result import Result


def verb(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER", help="A results folder, or an experiment, which is run first.",
            autocompletion=complete.experiments,
        ),
    ],
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Which run: its number, or its key.")] = None,
    *,
    on: Machines = None,
    use: Use = None,
    sets: Set = None,
    advise: Annotated[
        bool | None,
        typer.Option("--advise/--no-advise", help="Find the hints that help, by simulation; default: where that is soon done."),
    ] = None,
    most: Annotated[int | None, typer.Option("--most", min=1, help="Programs that are simulated for it; default: 40.")] = None,
    json: Json = False,
) -> int:
    """Explain the page faults of one run, or list those of all; the exit code."""
    from gpusim.results.folder import load_folder

    folder = Path(what)
    if not folder.is_dir():
        folder, ended = _run_first(what, sets or [], on, use)
        if ended:
            return ended
        typer.echo("")
    elif on or use or sets:
        raise ResultError("--on, --use and --set are for an experiment that is to run", what, "leave them out for a folder")
    results = load_folder(folder, timeline=False)
    seen = [(number, r) for number, r in enumerate(results, 1) if r.faults is not None]
    if not seen:
        raise ResultError("no run here was under unified memory, so there is nothing to explain", str(folder))
    if run is None and len(seen) > 1:
        _overview(folder, seen, json)
        return 0
    number, result = seen[0] if run is None else _chosen(results, run, folder)
    found = _advice(folder, result, advise, most)
    _explain(folder, number, result, [r for _, r in seen], found, json)
    return 0


def _run_first(what: str, sets: list[str], on: list[str] | None, use: list[str] | None) -> tuple[Path, int]:
    """Run the experiment; its results folder and the exit code."""
    from gpusim.base.yaml.find import names
    from gpusim.base.yaml.values import NONE
    from gpusim.cli.verbs.run import verb as run_experiment
    from gpusim.experiment.load import default_folder

    no_program(what)
    if not Path(what).exists() and what not in names("experiment"):
        hint = suggest(what, names("experiment"))
        raise ResultError(f"there is no results folder and no experiment '{what}'", hint=hint)
    loaded = experiment(what, sets, on=on, use=use)
    if loaded.experiment.unified == (NONE,):
        raise ResultError("no run of this experiment is under unified memory", str(loaded.path), "add unified: driver")
    return default_folder(loaded), run_experiment(what, sets=sets, on=on, use=use, figures=False)


def _chosen(results: Sequence[Result], run: str, folder: Path) -> tuple[int, Result]:
    """The number of the run that is named, and its result."""
    from gpusim.results.named import key_of

    keys = [r.key for r in results]
    number = keys.index(key_of(run, keys, folder))
    if results[number].faults is None:
        hint = f"`gpusim faults {folder}` lists those that were"
        raise ResultError(f"run {run} was not under unified memory, so there is nothing to explain", str(folder), hint)
    return number + 1, results[number]


def _overview(folder: Path, seen: Sequence[tuple[int, Result]], json: bool) -> None:
    from gpusim.base.units import show_bytes
    from gpusim.show.view import human, main_metric, run_name, value, varying

    results = [r for _, r in seen]
    metric, keys = main_metric(results), varying(results)
    rows: list[dict[str, Any]] = []
    for number, r in seen:
        report = r.faults
        assert report is not None
        gpu = report.total("gpu_reads") + report.total("gpu_writes")
        moved = {"came": report.moved("came"), "came again": report.sum("again"), "ping-pong": report.sum("ping_pong"),
                 "wasted": report.sum("wasted"), "remote": report.sum("remote")}  # fmt: skip
        rows.append({
            "run": number, "what": run_name(r, keys, "unified"), metric.removesuffix("_ns"): human(metric, value(r, metric)),
            "GPU faults": gpu, "batches": sum(n for _, n in report.batches),
            **(moved | {"key": r.key} if json else {k: show_bytes(v) if v else "-" for k, v in moved.items()}),
        })  # fmt: skip
    emit(rows, json)
    if not json:
        typer.echo(f"\ngpusim faults {folder} RUN explains one of them, by its number")


def _advice(folder: Path, result: Result, advise: bool | None, most: int | None) -> Advised | None:
    """What was found before, or is found now: when that is asked for, or is soon done."""
    from gpusim.engine.pages import advisor
    from gpusim.experiment.advise import SHORT, seconds
    from gpusim.results.afterwards import ADVICE, keep, kept
    from gpusim.results.folder import RUNS

    run = folder / RUNS / result.key
    if advise is False or not result.finished:
        return None
    if advise is None and (before := kept(run, ADVICE)) is not None:
        return advisor.from_plain(before)
    several = result.faults is not None and len(result.faults.processes) > 1  # all of them would be told the same
    if advise is None and (several or seconds(result) > SHORT):
        return None
    found = _search(folder, result, most or advisor.MOST)
    keep(run, ADVICE, found.plain())
    return found


def _search(folder: Path, result: Result, most: int) -> Advised:
    from gpusim.experiment.advise import search
    from gpusim.experiment.tasks import plan
    from gpusim.results.folder import EXPERIMENT

    if not (folder / EXPERIMENT).is_file():
        raise ResultError("advice needs the experiment of this run", str(folder), "name the results folder that it lies in")
    tasks = {task.key: task for task in plan(experiment(str(folder / EXPERIMENT)), folder, allow_large=True).grid}
    if result.key not in tasks:
        raise ResultError("gpusim, or a file that this run read, has changed since", result.key, "run the experiment again")
    with bar("hints") as progress:
        done = 0

        def step(count: int) -> None:
            nonlocal done
            done += count
            progress(done, most)

        return search(tasks[result.key], result, most, step)


def _explain(folder: Path, number: int, result: Result, seen: Sequence[Result], found: Advised | None, json: bool) -> None:
    from gpusim.experiment.advise import seconds
    from gpusim.show import faults as words
    from gpusim.show.view import run_name, varying

    report, free = result.faults, result.bounds.get("bound_no_limit_ns")
    assert report is not None
    if json:
        emit_json({"run": result.key, "spec": result.spec, **report.plain(), "advice": found.plain() if found else None})
        return
    keys = [key for key in ("trace", "profile", "memory_share") if result.spec.get(key) is not None]
    name = run_name(result, list(dict.fromkeys([*keys, *varying(seen), "unified"])), "unified")
    typer.echo(words.text(report, name, free))
    if found is not None:
        typer.echo(f"\n{words.advice(found, free)}")
    elif result.finished:
        typer.echo(
            f"\nWhich hints would help is found by simulation: gpusim faults {folder} {number} --advise "
            f"(up to 40 runs of about {seconds(result):.1f} s)"
        )

"""Recompute every result independently, from its event log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.base.errors import ResultError
from gpusim.cli.options import Json, Use
from gpusim.cli.output import emit_json
from gpusim.cli.words import own_files

if TYPE_CHECKING:
    from gpusim.referee import Report

SHOWN = 5  # violations per run


def verb(
    folder: Annotated[Path, typer.Argument(help="A results folder, or the folder of one run.")],
    *,
    trace: Annotated[Path | None, typer.Option("--trace", help="The trace, when it is not found by its name.")] = None,
    use: Use = None,
    json: Json = False,
) -> int:
    """Let the referee look at every run, keep its verdicts; the exit code: 0 when all that have a log are right."""
    from gpusim import referee
    from gpusim.cli.report import refresh
    from gpusim.cli.show import say_missing
    from gpusim.experiment.beside_checked import check_beside
    from gpusim.experiment.ran import load_machine_of, load_source_of, load_trace_of, own_times_of
    from gpusim.experiment.ranks_checked import check_ranks, collectives_for
    from gpusim.experiment.users import of_folder
    from gpusim.referee import pages
    from gpusim.results.folder import RUNS, load_folder, load_result, mark_checked, run_folders
    from gpusim.results.summary import write_summary

    own = own_files([*(use or ()), *(str(file) for file in of_folder(folder) if not use)])
    found: list[tuple[str, Report]] = []  # by the run's key: its log need not stay in memory
    for run in run_folders(folder):
        result = load_result(run)
        if "unified" in result.spec:
            report = pages.check(result)
        elif result.beside:
            report = check_beside(result, folder, own)
        elif result.ranks:
            report = check_ranks(result, load_source_of(result, folder, trace, own), collectives_for(result, folder), own)
        else:
            machine = load_machine_of(result, folder)
            program = load_trace_of(result, folder, trace, own)
            report = referee.check(result, program, machine, own_times_of(result, machine))
        if report.ok is not None:
            mark_checked(run, report.ok)
        found.append((result.key, report))
    if (folder / RUNS).is_dir():
        results = load_folder(folder)
        write_summary(folder, results)
        refresh(folder, results)
        say_missing(folder)
    if json:
        emit_json([{"run": key, "ok": report.ok, "violations": [str(v) for v in report.violations],
                    "not_checked": list(report.left)} for key, report in found])  # fmt: skip
    else:
        _print(found)
    if all(report.ok is None for _, report in found):
        raise ResultError("no run here kept its event log, so there is nothing to check", str(folder), "run with --log")
    return 1 if any(report.ok is False for _, report in found) else 0


def _print(found: list[tuple[str, Report]]) -> None:
    for key, report in found:
        if report.ok is False:
            typer.echo(f"run {key}: wrong")
            for violation in report.violations[:SHOWN]:
                typer.echo(f"    {violation}")
            if len(report.violations) > SHOWN:
                typer.echo(f"    and {len(report.violations) - SHOWN} more")
    count = {verdict: sum(report.ok is verdict for _, report in found) for verdict in (True, False, None)}
    for said in dict.fromkeys(said for _, report in found for said in report.left):
        typer.echo(f"not checked: {said}")
    right = "1 run is right" if count[True] == 1 else f"{count[True]} runs are right"
    typer.echo(f"{right}, {count[False]} wrong, {count[None]} without an event log")

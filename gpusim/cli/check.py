"""`gpusim check`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gpusim.base.errors import GpusimError, ResultError
from gpusim.cli.output import emit_json

if TYPE_CHECKING:
    from gpusim.policies.registry import Registry
    from gpusim.referee import Report
    from gpusim.results.result import Result
    from gpusim.trace.trace import Trace

SHOWN = 5  # violations per run


def check(folder: Path, trace: Path | None, use: Sequence[str], *, json: bool) -> int:
    """Let the referee look at every run, keep its verdicts; the exit code: 0 when all that have a log are right."""
    from gpusim import referee
    from gpusim.cli.look import say_missing
    from gpusim.cli.report import refresh
    from gpusim.policies import registry
    from gpusim.referee import pages
    from gpusim.results.folder import RUNS, load_folder, load_result, mark_checked, run_folders
    from gpusim.results.summary import write_summary

    own = registry.of(*use)
    found: list[tuple[str, Report]] = []  # by the run's key: its log need not stay in memory
    for run in run_folders(folder):
        result = load_result(run)
        if "unified" in result.spec:
            report = pages.check(result)
        else:
            report = referee.check(result, load_trace_of(result, folder, trace, own))
        if report.ok is not None:
            mark_checked(run, report.ok)
        found.append((result.key, report))
    if (folder / RUNS).is_dir():
        results = load_folder(folder)
        write_summary(folder, results)
        refresh(folder, results)
        say_missing(folder)
    if json:
        emit_json([{"run": key, "ok": report.ok, "violations": [str(v) for v in report.violations]} for key, report in found])
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
    typer.echo(f"{count[True]} runs are right, {count[False]} wrong, {count[None]} without an event log")


def load_trace_of(result: Result, base: Path, other: Path | None = None, own: Registry | None = None) -> Trace:
    """The trace that a run replayed, found from its results folder; `other` is where it is now, `own` a user's transforms."""
    from gpusim.base.yaml.find import find
    from gpusim.policies.registry import SHIPPED

    chain = str(result.spec.get("transform", "none"))
    file, wanted = find("trace", str(other or result.spec["trace"]), base), str(result.spec.get("trace_hash", ""))
    return _load(file, chain, wanted, own or SHIPPED)


@lru_cache(maxsize=2)
def _load(file: Path, chain: str, wanted: str, own: Registry) -> Trace:
    """The trace in the file, transformed unless it already is what ran."""
    from gpusim.programs import transforms
    from gpusim.trace.files import load_trace

    trace = load_trace(file)
    if trace.content_hash == wanted:
        return trace
    try:
        transforms.check(chain, own)
    except GpusimError as error:
        raise ResultError(error.message, hint="name the file that has it: --use FILE") from None
    return transforms.apply(trace, chain, own)

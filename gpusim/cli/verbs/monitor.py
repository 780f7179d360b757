"""Say which alerts fire in the runs of a results folder, or write what Prometheus and Grafana need to show them.

Without a folder: the metrics over time that `gpusim run --metrics` gives.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpusim.base.units import TIME, show
from gpusim.cli import say
from gpusim.cli.options import Json, MetricsScale, Use, output
from gpusim.cli.output import emit, emit_json
from gpusim.cli.words import own_files


def verb(
    folder: Annotated[Path | None, typer.Argument(help="A results folder with event logs.")] = None,
    *,
    out: Annotated[
        Path | None, output("The folder to write: a compose file, alert rules with their tests, and a dashboard.")
    ] = None,
    metrics_scale: MetricsScale = 0.0,
    use: Use = None,
    json: Json = False,
) -> None:
    """Alerts of a folder, the set-up, or the list of metrics."""
    if out is not None:
        _write(out)
    if folder is not None:
        _alerts(folder, metrics_scale, use, json=json)
    elif out is None:
        _list(json=json)


def _list(*, json: bool) -> None:
    """The metrics over time."""
    from gpusim.results.monitoring.families import FAMILIES

    rows = [
        {"metric": f.sample, "type": f.kind, "unit": f.unit, "labels": ", ".join(f.labels), "meaning": f.meaning}
        for f in FAMILIES.values()
    ]
    emit(rows, json, ["metric", "type", "unit", "labels", "meaning"])


def _write(out: Path) -> None:
    """The files of the set-up."""
    from gpusim.show.monitoring.setup import write

    say.told(f"{out}: {', '.join(str(path.relative_to(out)) for path in write(out))}")


def _alerts(folder: Path, scale: float, use: list[str] | None, *, json: bool) -> None:
    """A row for each alert that fires in a run."""
    from gpusim.studies.monitoring.firings import fired
    from gpusim.studies.monitoring.runs import RecordedRuns

    runs = RecordedRuns(folder, scale, own_files(use), apart=True)
    for why in runs.without.values():
        say.warning(f"left out: {why}")
    found = [row for _, rows in fired(runs) for row in rows]
    if json:
        emit_json(found)
        return
    emit([_shown(row) for row in found])
    quiet = len(runs) - len({row["run"] for row in found})
    typer.echo(f"{len(runs)} runs, {quiet} without an alert")


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """For people: times with units, and how far the run was."""
    at = row["first_ns"]
    return {
        "run": row["run"], "trace": row["trace"], "machine": row["profile"], "policy": row["policy"],
        **{name: row[name] for name in ("rank", "tenant") if name in row}, "alert": row["alert"],
        "severity": row["severity"], "first at": show(at, TIME), "of": show(row["makespan_ns"], TIME),
        "outcome": row["outcome"],
    }  # fmt: skip

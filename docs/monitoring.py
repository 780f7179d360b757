"""Makes the tables of docs/monitoring.md anew from what the code does.

    PYTHONPATH=. python docs/monitoring.py             the lists and the incidents, some seconds
    PYTHONPATH=. python docs/monitoring.py RESULTS     also the shipped experiments, whose results with event logs lie in
                                                       RESULTS/NAME, or are simulated there; some minutes
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.base.units import show_time
from gpusim.base.yaml.find import names
from gpusim.results.monitoring.alerts import ALERTS
from gpusim.results.monitoring.cluster_alerts import CLUSTER_ALERTS
from gpusim.results.monitoring.cluster_families import CLUSTER_FAMILIES
from gpusim.results.monitoring.families import FAMILIES
from gpusim.studies.monitoring.incidents import INCIDENTS, observe
from gpusim.studies.monitoring.judged import early, judged
from gpusim.studies.monitoring.runs import RecordedRuns

PAGE = Path(__file__).parent / "monitoring.md"
_BLOCK = "<!-- {}: made by docs/monitoring.py -->\n{}<!-- end -->\n"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of Markdown with the columns of the first row."""
    lines = [[str(row.get(name, "")).replace("|", "\\|") for name in rows[0]] for row in rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [list(rows[0]), ["---"] * len(rows[0]), *lines])


def metrics() -> str:
    """The list of metrics over time."""
    return table([
        {"metric": f"`{f.sample}`", "labels": ", ".join(f.labels), "meaning": f.meaning}
        for f in (*FAMILIES.values(), *CLUSTER_FAMILIES.values())
    ])  # fmt: skip


def alerts() -> str:
    """The alert rules."""
    return table([
        {"alert": f"`{a.name}`", "severity": a.severity, "for": f"{a.hold} s", "fires when": a.meaning}
        for a in (*ALERTS, *CLUSTER_ALERTS)
    ])  # fmt: skip


@cache
def incidents() -> str:
    """What fires at simulated incidents, and how early."""
    rows = []
    for row in early(observe(incident) for incident in INCIDENTS):
        told = row["alert"] is not None
        rows.append({
            "incident": f"{row['incident']}: {row['meaning']}",
            "alert": f"`{row['alert']}`" if told else "none",
            "after it began": f"{_steps(row['after'])}, {show_time(row['after_ns'])}" if told else "",
            "before memory was gone": _before(row) if told else "",
        })  # fmt: skip
    return table(rows)


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


def _before(row: Mapping[str, Any]) -> str:
    if row["before"] is None:
        return ""
    return f"{_steps(row['before'])}, {show_time(row['before_ns'])}" if row["before"] else "at once"


def experiments(results: Path) -> str:
    """How the alerts do in the runs of shipped experiments; those without times are left out."""
    rows: list[dict[str, Any]] = []
    for name in names("experiment"):
        try:
            rows.append({"experiment": name, **of_experiment(name, results)})
        except GpusimError as error:
            print(f"{name}: left out: {error.message}", file=sys.stderr)
    total = {key: sum(row[key] for row in rows) for key in rows[0] if isinstance(rows[0][key], int)}
    alarms = [int(found.split()[0]) for row in rows for found in row["false alarms"].split(", ")]
    return table([*rows, {key: f"**{total.get(key, sum(alarms) if key == 'false alarms' else 'all')}**" for key in rows[0]}])


def of_experiment(name: str, results: Path) -> dict[str, Any]:
    """The row of one experiment, simulated where its results are not there."""
    from gpusim.api.grids import Experiment, run

    run(Experiment.load(name, "options.log=true"), folder=results / name)
    return judged(RecordedRuns(results / name, apart=True))


def page(text: str, results: Path | None = None) -> str:
    """The page with its tables made anew; that of experiments stays where no results are named."""
    made = {"metrics": metrics(), "alerts": alerts(), "incidents": incidents()}
    if results is not None:
        made["experiments"] = experiments(results)
    for name, content in made.items():
        text = re.sub(_BLOCK.format(name, "(?s:.*?)"), lambda _, n=name, c=content: _BLOCK.format(n, c), text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8"), Path(sys.argv[1]) if len(sys.argv) > 1 else None), "utf-8")

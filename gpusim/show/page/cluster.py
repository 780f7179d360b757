"""The page of a cluster: the answer, a table of schedulers, jobs on GPUs over time, and metrics over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gpusim.results.monitoring.alerts import firing
from gpusim.results.monitoring.cluster_alerts import CLUSTER_ALERTS
from gpusim.results.monitoring.family import COUNTER
from gpusim.results.monitoring.samples import Samples
from gpusim.show.cluster import question
from gpusim.show.monitoring.cluster_metrics import clock_of, samples_of
from gpusim.show.page.pack import packed
from gpusim.show.page.single import write_alone
from gpusim.show.page.timeline import timeline
from gpusim.show.values.jobs_in_time import jobs_in_time
from gpusim.studies.cluster.answer import ClusterAnswer

THOUSANDTHS = 0.001


def write_cluster_page(found: ClusterAnswer, answer: str, rows: list[dict[str, Any]], folder: Path) -> Path:
    """FOLDER/report.html.

    answer  what it says at the top; rows: of a table of schedulers
    """
    spec, asked = found.study.spec, question(found)
    runs = [each.outcome for each in found.runs]
    blobs: dict[str, str] = {}
    left, alerts = [], []
    clock = clock_of(runs)
    for run in runs:
        activities, said = jobs_in_time(run)
        left += [f"{run.scheduler}: {said}"] if said else []
        blobs[f"timeline-{run.scheduler}"] = timeline(activities)
        place = samples_of(run, spec.arrivals, spec.gpus, clock)
        blobs[f"metrics-{run.scheduler}"] = _metrics(place)
        alerts += [
            [run.scheduler, one.alert.name, f"{one.first / 3.6e12:,.4g} h", one.alert.meaning]
            for one in firing([place], CLUSTER_ALERTS)
        ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    tables = [{"title": "", "rows": [names, *([str(row.get(name, "")) for name in names] for row in rows)]}]
    if alerts:
        tables.append({"title": "Alerts", "rows": [["scheduler", "alert", "first after", "meaning"], *alerts]})
    part = {"scheduled": {"tables": tables, "said": [], "copied": [], "notes": []}}
    return write_alone(folder, asked, answer, part, blobs, timelines=[run.scheduler for run in runs], left=" ".join(left))


def _metrics(place: Samples) -> str:
    columns: dict[str, Any] = {"at": place.at}
    families, nothing = [], []
    for name, family in place.families.items():
        values = place.curves.get(name, {}).get(())
        if values is None or not values.any():
            nothing += [name] if values is not None else []
            continue
        columns[f"{name}.0"] = np.rint(values / THOUSANDTHS).astype(np.int64)
        families.append({
            "name": name, "group": family.group, "unit": family.unit, "counter": family.kind == COUNTER,
            "meaning": family.meaning, "scale": THOUSANDTHS, "labels": [""],
        })  # fmt: skip
    return packed({"families": families, "nothing": nothing}, columns, list(columns))

"""The figure of `gpusim cluster`: how long after they came jobs have ended, by scheduler, and GPUs in use over time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpusim.base.files import write_json, write_text
from gpusim.engine.cluster.outcome import ClusterOutcome
from gpusim.show.panels import logarithmic
from gpusim.show.style import canvas, headline, looks, save, styled
from gpusim.studies.cluster.answer import ClusterAnswer

POINTS = 300  # of a curve
_STEPS = (("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86400.0))
_TICKS = (1, 10, 60, 600, 3600, 36000, 86400, 864000, 8640000)


def save_answer(found: ClusterAnswer, folder: Path) -> list[Path]:
    """cluster.json, jobs.csv (a row for each job and scheduler, s; empty: never) and the figure, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "cluster.json", folder / "jobs.csv"]
    write_json(paths[0], found.values())
    rows = ["scheduler,job,name,gpus,arrival_s,first_s,end_s"]
    for one in (each.outcome for each in found.runs):
        times = zip(one.arrival.tolist(), one.first.tolist(), one.end.tolist(), strict=True)
        for number, (job, three) in enumerate(zip(one.jobs, times, strict=True)):
            cells = ",".join("" if value != value else f"{value:.3f}" for value in three)
            rows.append(f"\"{one.scheduler}\",{number},\"{job.name}\",{job.gpus},{cells}")
    write_text(paths[1], "\n".join(rows) + "\n")
    return [*paths, *save(draw(found), folder / "cluster")]


@styled
def draw(found: ClusterAnswer) -> Figure:
    """Two panels: completion times, GPUs in use; a line for each scheduler."""
    figure = canvas()
    left, right = figure.subplots(1, 2)
    runs = [each.outcome for each in found.runs]
    look = looks(run.scheduler for run in runs)
    _completion(left, runs, {name: each.colour for name, each in look.items()})
    _in_use(right, runs, {name: each.colour for name, each in look.items()})
    headline(figure, question(found), sentence(found), strip=left.get_legend_handles_labels()[0])
    return figure


def question(found: ClusterAnswer) -> str:
    """What was asked."""
    gpus = found.study.spec.gpus
    if found.goal:
        return f"How many nodes keep {found.goal}?"
    jobs = "does one job" if len(found.study.jobs) == 1 else f"do {len(found.study.jobs):,} jobs"
    return f"When {jobs} end on {Path(gpus).name if '.csv' in gpus else gpus}?"


def sentence(found: ClusterAnswer) -> str:
    """The answer, the best scheduler first."""
    runs = [each.outcome for each in found.runs]
    if found.goal:
        named = zip(runs, found.nodes, strict=True)
        return "GPUs: " + ", ".join(f"{run.scheduler} {run.cluster.gpus} ({nodes} nodes)" for run, nodes in named) + "."
    means = {run.scheduler: float(np.nanmean(run.taken)) for run in runs}
    best = min(means, key=lambda name: means[name])
    order = sorted(means, key=lambda name: (name != best, name))
    return "Mean time from arrival to end: " + ", ".join(f"{_said(means[name])} with {name}" for name in order) + "."


def _completion(panel: Axes, runs: list[ClusterOutcome], colours: dict[str, str]) -> None:
    low, high = np.inf, 1.0
    for run in runs:
        taken = np.sort(run.taken[~np.isnan(run.taken)])
        if not len(taken):
            continue
        at = np.unique(np.linspace(0, len(taken) - 1, POINTS).round().astype(int))
        shown = np.maximum(taken[at], 1.0)
        panel.step(shown, (at + 1) / len(taken) * 100, where="post", color=colours[run.scheduler], label=run.scheduler)
        low, high = min(low, float(shown[0])), max(high, float(shown[-1]))
    logarithmic(panel, min(low, high) / 1.2, high * 1.2, _said, 2)
    inside = [tick for tick in _TICKS if low / 1.2 <= tick <= high * 1.2]
    if len(inside) > 1:
        panel.set_xticks(inside)
    panel.set_ylim(0, 100)
    panel.set_xlabel("time from arrival to end")
    panel.set_ylabel("jobs [%]")


def _in_use(panel: Axes, runs: list[ClusterOutcome], colours: dict[str, str]) -> None:
    begin, end = min(float(run.at[0]) for run in runs), max(float(run.at[-1]) for run in runs)
    unit, size = next((pair for pair in reversed(_STEPS) if end - begin >= 3 * pair[1]), _STEPS[0])
    edges = np.linspace(begin, end, POINTS + 1)
    for run in runs:
        area = np.concatenate([[0.0], np.cumsum(run.busy[:-1] * np.diff(run.at))])
        mean = np.diff(np.interp(edges, run.at, area)) / np.diff(edges)
        panel.plot((edges[1:] + edges[:-1]) / 2 / size - begin / size, mean, color=colours[run.scheduler], linewidth=1.2)
        panel.axhline(run.cluster.gpus, color=colours[run.scheduler], linewidth=0.8, linestyle=":")
    panel.set_xlim(0, (end - begin) / size)
    panel.set_ylim(0, max(run.cluster.gpus for run in runs) * 1.05)
    panel.set_xlabel(f"time [{unit}]")
    panel.set_ylabel("GPUs in use (dotted: there are)")


def _said(seconds: float) -> str:
    unit, size = next((pair for pair in reversed(_STEPS) if seconds >= pair[1]), _STEPS[0])
    return f"{seconds / size:.3g} {unit}"

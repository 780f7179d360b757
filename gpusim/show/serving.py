"""The figure of `gpusim serve`: latencies over the rate with the largest rate that keeps the objectives, how they are
distributed, and what the memory holds over time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpusim.base.files import write_json
from gpusim.results.served import NEVER, Served
from gpusim.show.panels import logarithmic
from gpusim.show.style import (
    ALARM,
    BLUE,
    GREEN,
    GREY,
    INDIGO,
    LIMIT,
    ORANGE,
    PINK,
    SOFT,
    WINE,
    canvas,
    headline,
    save,
    styled,
)  # fmt: skip
from gpusim.show.values.served_memory import capacity_of, engines_share, memory_by_owner
from gpusim.show.view import scale
from gpusim.studies.serving.answer import ServingAnswer
from gpusim.studies.serving.folder import save_rows

F64 = npt.NDArray[np.float64]
POINTS = 400  # of a curve
GIB = 2.0**30


_COLUMNS = ("arrival", "prompt", "output", "engine", "admitted", "first", "last", "made", "cached", "preemptions", "refused")


def save_answer(found: ServingAnswer, folder: Path) -> list[Path]:
    """serving.json, requests.csv (times in ns, empty where something did not happen) and the figure, into a folder.

    Requests of a service beside are in requests_beside.csv.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "serving.json", folder / "requests.csv"]
    write_json(paths[0], found.values())
    _save_requests(found.served, paths[1])
    if found.beside is not None:
        paths.append(folder / "requests_beside.csv")
        _save_requests(found.beside.served, paths[2])
    return [*paths, *save(draw(found), folder / "serving")]


def _save_requests(served: Served, path: Path) -> None:
    columns = [[("" if value >= NEVER else value) for value in getattr(served, name).tolist()] for name in _COLUMNS]
    save_rows([dict(zip(_COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)], path)


@styled
def draw(found: ServingAnswer) -> Figure:
    """Times to the first token, between tokens and to the last, and memory over time; after a search also the first and the
    last of these times by rate, with the largest rate that keeps the objectives."""
    spec, search, served, slo = found.service.spec, found.search, found.served, found.slo
    rates = [(point.rate, point.served) for point in search.points] if search is not None else []
    figure = canvas(rows=2)
    over, axes = list[Axes](), list(figure.subplots(2, 3 if rates else 2).flat)
    if rates and search is not None:
        over = [axes.pop(0), axes.pop(0)]
        _over_rate(over[0], rates, Served.ttft_ns, "time to first token", slo.ttft_ns, search.best)
        _over_rate(over[1], rates, Served.latency_ns, "latency", float("inf"), search.best)
        axes = [*axes[1:], axes[0]]
    _distribution(axes[0], served.ttft_ns(), "time to first token", slo.ttft_ns)
    _distribution(axes[1], served.tpot_ns(), "time per output token", slo.tpot_ns)
    _distribution(axes[2], served.latency_ns(), "latency", float("inf"))
    handles = _memory(axes[3], found)
    question = f"How does {spec.model} serve on {spec.machine}?"
    answer = found.searched() or (f"Limited by {found.limit}." if found.limit else "")
    drawn = [panel.get_legend_handles_labels() for panel in (*over, *axes[:2])]
    lines = {text: handle for handles_, texts in drawn for handle, text in zip(handles_, texts, strict=True)}
    headline(figure, question, answer, strip=list(lines.values()), second=handles)
    return figure


def _over_rate(
    panel: Axes, rates: list[tuple[float, Served]], of: Callable[[Served], F64], what: str, limit: float, best: float
) -> None:
    """99 % and half of some times, by rate; `best` is the largest that keeps the objectives."""
    x = [rate for rate, _ in rates]
    shares = {share: [float(np.nanpercentile(of(served), share)) / 1e6 for _, served in rates] for share in (50, 99)}
    for (share, y), colour in zip(shares.items(), (BLUE, ORANGE), strict=True):
        panel.plot(x, y, marker="o", markersize=3, color=colour, label=f"p{share}", gid=f"{what} p{share}")
    if np.isfinite(limit):
        panel.axhline(limit / 1e6, color=ALARM, linestyle="--", linewidth=1, label="objective")
    if best:
        panel.axvline(best, color=GREEN, linewidth=1, label="largest rate")
    low, high = min(shares[50]) / 1.5, max(shares[99]) * 1.5
    logarithmic(panel, low, high, lambda ms: f"{ms:,.0f}" if ms >= 1 else f"{ms:g}", upright=True)
    panel.set_xlabel("requests a second")
    panel.set_ylabel(f"{what} [ms]")


def _distribution(panel: Axes, ns: F64, what: str, limit: float) -> None:
    known = np.sort(ns[~np.isnan(ns)])
    if not len(known):
        panel.text(0.5, 0.5, f"no {what}", ha="center", transform=panel.transAxes, color=SOFT)
        return
    divisor, unit = scale("ns", float(known[-1]))
    at = np.unique(np.linspace(0, len(known) - 1, POINTS).round().astype(int))
    panel.step(known[at] / divisor, (at + 1) / len(known) * 100, where="post", color=BLUE, gid=what)
    if np.isfinite(limit):
        panel.axvline(limit / divisor, color=ALARM, linestyle="--", linewidth=1, label="objective")
        panel.set_ylim(0, 100)
    panel.set_xlim(left=0)
    panel.set_xlabel(f"{what} [{unit}]")
    panel.set_ylabel("requests [%]")


def _memory(panel: Axes, found: ServingAnswer) -> list[Artist]:
    """What the GPUs hold, one owner upon the other; handles of a legend."""
    owners, last = memory_by_owner(found), float(found.served.makespan_ns)
    owners = {name: owners[name] for name in sorted(owners, key=lambda name: len(owners[name][0]) > 1)}  # what stays below
    at = np.linspace(0.0, last, POINTS)
    levels = [values[np.searchsorted(times, at, side="right") - 1] / GIB for times, values in owners.values()]
    colours = (GREY, INDIGO, *((BLUE,) if found.beside is None else (WINE, BLUE, PINK)))
    handles: list[Artist] = list(panel.stackplot(at / 1e9, levels, labels=list(owners), colors=colours, linewidth=0))
    taken = panel.axhline(engines_share(found) / GIB, color=LIMIT, linewidth=1, linestyle="--", label="what the engines take")
    panel.set_ylim(0, capacity_of(found) / GIB)
    panel.set_xlim(0, max(last / 1e9, 1e-9))
    panel.set_xlabel("time [s]")
    panel.set_ylabel("memory of all GPUs [GiB]")
    return [*handles, taken]

"""The figure of `gpusim serve`: latency over the rate with the largest rate that keeps the objectives, who waits how long, and
how full the memory for keys and values is over time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpusim.base.files import write_json
from gpusim.results.served import NEVER, Objective, Served
from gpusim.show.panels import logarithmic
from gpusim.show.style import ALARM, BLUE, GREEN, ORANGE, SOFT, canvas, headline, save, styled
from gpusim.show.view import scale
from gpusim.studies.serving.answer import ServingAnswer
from gpusim.studies.serving.folder import save_rows

F64 = npt.NDArray[np.float64]
POINTS = 400  # of a curve


_COLUMNS = ("arrival", "prompt", "output", "engine", "admitted", "first", "last", "made", "cached", "preemptions", "refused")


def save_answer(found: ServingAnswer, folder: Path) -> list[Path]:
    """serving.json, requests.csv (times in ns, empty where something did not happen) and the figure, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "serving.json", folder / "requests.csv"]
    write_json(paths[0], found.values())
    columns = [[("" if value >= NEVER else value) for value in getattr(found.served, name).tolist()] for name in _COLUMNS]
    save_rows([dict(zip(_COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)], paths[1])
    spec, search = found.service.spec, found.search
    question = f"How does {spec.model} serve on {spec.machine}?"
    rates = [(point.rate, point.served) for point in search.points] if search is not None else []
    answer = found.searched() or (f"Limited by {found.limit}." if found.limit else "")
    figure = draw(question, answer, found.served, rates, found.slo, search.best if search is not None else 0.0)
    return [*paths, *save(figure, folder / "serving")]


@styled
def draw(
    question: str, answer: str, served: Served, rates: list[tuple[float, Served]], slo: Objective, best: float = 0.0
) -> Figure:
    """Three panels, four with `rates`: (requests a second, what was served) in rising order; `best` is marked among them."""
    panels = 4 if rates else 3
    figure = canvas(rows=2 if rates else 1)
    axes = list(figure.subplots(2, 2).flat) if rates else list(figure.subplots(1, 3))
    if rates:
        _over_rate(axes[0], rates, slo, best)
    _distribution(axes[panels - 3], served.ttft_ns(), "time to first token", slo.ttft_ns)
    _distribution(axes[panels - 2], served.tpot_ns(), "time per output token", slo.tpot_ns)
    _memory(axes[panels - 1], served)
    headline(figure, question, answer, strip=axes[0].get_legend_handles_labels()[0] if rates else ())
    return figure


def _over_rate(panel: Axes, rates: list[tuple[float, Served]], slo: Objective, best: float) -> None:
    """99 % and half of the times to the first token, by rate."""
    x = [rate for rate, _ in rates]
    shares = {share: [float(np.nanpercentile(served.ttft_ns(), share)) / 1e6 for _, served in rates] for share in (50, 99)}
    for (share, y), colour in zip(shares.items(), (BLUE, ORANGE), strict=True):
        panel.plot(x, y, marker="o", color=colour, label=f"p{share}")
    if np.isfinite(slo.ttft_ns):
        panel.axhline(slo.ttft_ns / 1e6, color=ALARM, linestyle="--", linewidth=1, label="objective")
    if best:
        panel.axvline(best, color=GREEN, linewidth=1, label="largest rate")
    low, high = min(shares[50]) / 1.5, max(shares[99]) * 1.5
    logarithmic(panel, low, high, lambda ms: f"{ms:,.0f}" if ms >= 1 else f"{ms:g}", upright=True)
    panel.set_xlabel("requests a second")
    panel.set_ylabel("time to first token [ms]")


def _distribution(panel: Axes, ns: F64, what: str, limit: float) -> None:
    known = np.sort(ns[~np.isnan(ns)])
    if not len(known):
        panel.text(0.5, 0.5, f"no {what}", ha="center", transform=panel.transAxes, color=SOFT)
        return
    divisor, unit = scale("ns", float(known[-1]))
    at = np.unique(np.linspace(0, len(known) - 1, POINTS).round().astype(int))
    panel.step(known[at] / divisor, (at + 1) / len(known) * 100, where="post", color=BLUE)
    if np.isfinite(limit):
        panel.axvline(limit / divisor, color=ALARM, linestyle="--", linewidth=1, label="objective")
        panel.set_ylim(0, 100)
    panel.set_xlim(left=0)
    panel.set_xlabel(f"{what} [{unit}]")
    panel.set_ylabel("requests [%]")


def _memory(panel: Axes, served: Served) -> None:
    share = served.kv_share().mean(axis=0) * 100
    seconds = (np.arange(len(share)) + 0.5) * float(served.samples["width_ns"]) / 1e9
    step = max(1, -(-len(share) // POINTS))
    kept = len(share) // step * step
    if kept:
        seconds, share = (values[:kept].reshape(-1, step).mean(axis=1) for values in (seconds, share))
    panel.fill_between(seconds, share, color=BLUE, alpha=0.35, linewidth=0)
    panel.plot(seconds, share, color=BLUE, linewidth=1)
    panel.set_ylim(0, 100)
    panel.set_xlim(0, float(seconds[-1]) if len(seconds) else 1.0)
    panel.set_xlabel("time [s]")
    panel.set_ylabel("blocks for keys and values in use [%]")

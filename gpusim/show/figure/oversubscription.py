"""What does it cost when the data outgrow the GPU's memory?  Throughput over oversubscription, a line per policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from gpusim.results.result import Result
from gpusim.show.answer import answer
from gpusim.show.figure.curves import curves
from gpusim.show.panels import MOST_PANELS
from gpusim.show.style import SOFT, canvas, empty, headline, styled
from gpusim.show.values.comparison import comparison
from gpusim.show.view import OVERSUBSCRIPTION, layout, main_metric, number, value

THROUGHPUT = "touched_per_s"


@styled
def draw(results: Sequence[Result], question: str = "", metric: str = "") -> Figure:
    """`metric` (throughput where it is known) over the footprint divided by the memory, logarithmic; a panel per machine."""
    shared = [r for r in results if number(r.spec.get("memory_share"))]
    plan = layout(shared)
    if plan.across != "memory_share":
        figure = canvas()
        empty(figure, "The memory is no share of what the programs need, or always the same.")
        return figure
    metric = metric or (THROUGHPUT if any(value(r, THROUGHPUT) for r in shared) else main_metric(shared))
    plan = replace(plan, across=OVERSUBSCRIPTION)
    whole = comparison(shared, metric, plan)
    shown = replace(whole, panels=whole.panels[:MOST_PANELS])
    figure = curves(shown, logarithmic=True)
    for panel in figure.axes:
        if panel.axison:
            panel.axvline(1.0, color=SOFT, lw=0.9, ls=":", zorder=1, gid="fits")
    note = f"{len(shown.panels)} of {len(whole.panels)} panels are shown. " if len(shown.panels) < len(whole.panels) else ""
    note += "Dotted: memory and data are equally large."
    headline(figure, question or "What does oversubscription cost?", answer(shared, metric, most=320), note)
    return figure

"""Which policy loses least?  One line per policy over the memory (or another number), or sorted bars without one."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.answer import answer
from gpusim.show.figure.bars import bars
from gpusim.show.figure.curves import curves
from gpusim.show.groups import grouped
from gpusim.show.interval import interval
from gpusim.show.panels import MOST_PANELS
from gpusim.show.style import canvas, empty, headline, styled
from gpusim.show.view import Layout, kind_of, layout, main_metric


@styled
def draw(results: Sequence[Result], question: str = "", metric: str = "") -> Figure:
    """`metric` by policy: slowdown over no limit where known, else makespan.  Oracles are dashed, failures marked."""
    if not results:
        figure = canvas()
        empty(figure, "There are no runs.")
        return figure
    metric = metric or main_metric(results)
    plan = layout(results)
    panels = grouped(results, plan.panels)
    shown = dict(list(panels.items())[:MOST_PANELS])
    note = f"{len(shown)} of {len(panels)} panels are shown." if len(shown) < len(panels) else ""
    if not plan.across and any(interval([r], metric) for r in results):
        note = f"{note} Bars: p10 to p90 over sampled machines.".strip()
    figure = (curves if plan.across else bars)(shown, plan, metric)
    headline(figure, question or _question(plan, metric), answer(results, metric, most=320), note)
    return figure


def _question(plan: Layout, metric: str) -> str:
    verbs = {"slowdown": "loses least", "makespan_ns": "is fastest"}
    what = verbs.get(metric, f"has the best {declared(metric).label}")
    over = {"memory": " as memory shrinks", "memory_share": " as memory shrinks", "": ""}
    return f"Which {kind_of(plan.lines)} {what}{over.get(plan.across, f' over {plan.across}')}?"

"""Which policy loses least?  A line per policy over the memory or another number, dots where they are many; else bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.artist import Artist
from matplotlib.figure import Figure

from gpusim.base.text import join
from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.answer import answer
from gpusim.show.figure.bars import bars, ticks
from gpusim.show.figure.curves import curves
from gpusim.show.figure.dots import FROM, dots
from gpusim.show.panels import MOST_PANELS
from gpusim.show.style import canvas, empty, headline, styled
from gpusim.show.values.comparison import PolicyComparison, comparison
from gpusim.show.view import ALL_ENDED, ORACLE, Layout, kind_of


@styled
def draw(results: Sequence[Result], question: str = "", metric: str = "") -> Figure:
    """`metric` by policy: slowdown over no limit where known, else makespan.  Oracles are dashed, failures marked."""
    if not results:
        figure = canvas()
        empty(figure, "There are no runs.")
        return figure
    whole = comparison(results, metric)
    measured = [p for p in whole.panels if any(point.value is not None for line in p.lines for point in line.points)]
    shown = replace(whole, panels=tuple((measured or whole.panels)[:MOST_PANELS]))
    figure, body, strip, second = _drawn(shown)
    said = answer(results, whole.metric, most=320)
    asked = question or _question(whole.plan, whole.metric)
    headline(figure, asked, said, _note(whole, shown, strip), strip, second, body)
    return figure


def _drawn(shown: PolicyComparison) -> tuple[Figure, float, list[Artist], list[Artist]]:
    """The figure, the inches of its panels (0: as they are), and the handles of two legends above them."""
    if not shown.plan.across:
        return *bars(shown), [], []
    if len(shown.names) < FROM:
        return curves(shown), 0.0, [], []
    return dots(shown)


def _note(whole: PolicyComparison, shown: PolicyComparison, strip: Sequence[Artist]) -> str:
    said = []
    if len(shown.panels) < len(whole.panels):
        said.append(f"{len(shown.panels)} of {len(whole.panels)} panels are shown.")
    idle = [p.name for p in whole.panels if all(point.value is None for line in p.lines for point in line.points)]
    if idle and len(idle) < len(whole.panels):
        said.append(f"No {declared(whole.metric).label} is known on {join(idle)}.")
    if not shown.plan.across and (ticked := ticks(shown)):
        said.append(ticked)
    if (not shown.plan.across or strip) and any(p.interval for p in shown.points):
        said.append("Bars: p10 to p90 over sampled machines.")
    if strip and (shown.future or shown.oracle_apart):
        said.append(f"{ORACLE} reads the future.")
    return " ".join(said)


def _question(plan: Layout, metric: str) -> str:
    verbs = {"slowdown": "loses least", "makespan_ns": "is fastest", ALL_ENDED: "ends all programs first"}
    what = verbs.get(metric, f"has the best {declared(metric).label}")
    over = {"memory": " as memory shrinks", "memory_share": " as memory shrinks", "": ""}
    return f"Which {kind_of(plan.lines)} {what}{over.get(plan.across, f' over {plan.across}')}?"

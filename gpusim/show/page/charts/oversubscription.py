"""What it costs when the data outgrow the GPU's memory: throughput over oversubscription, a line per policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpusim.results.result import Result
from gpusim.show.page.charts import policy_comparison
from gpusim.show.page.charts.parts import PlotChart
from gpusim.show.view import OVERSUBSCRIPTION, layout, main_metric, number, value

THROUGHPUT = "touched_per_s"


def chart(results: Sequence[Result]) -> PlotChart:
    """Throughput where it is known, else the main metric, over the footprint divided by the memory."""
    shared = [r for r in results if number(r.spec.get("memory_share"))]
    metric = THROUGHPUT if any(value(r, THROUGHPUT) for r in shared) else main_metric(shared)
    made = policy_comparison.chart(shared, metric, replace(layout(shared), across=OVERSUBSCRIPTION))
    return replace(made, title="What does oversubscription cost?")

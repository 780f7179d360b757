"""Which links of the machine are busy?  Its topology, coloured by the share of the best run's time for which each was."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gpusim.results.result import Result
from gpusim.show import topology
from gpusim.show.style import canvas, empty, styled
from gpusim.show.values.links import busy_links


@styled
def draw(results: Sequence[Result], question: str = "") -> Figure:
    """The machine of the best run of ranks."""
    found = busy_links(results)
    if isinstance(found, str):
        figure = canvas()
        empty(figure, found)
        return figure
    about = question or f"Which links of {found.machine.name} are busy?"
    return topology.draw(found.machine, found.busy, about=about, answer=found.answer, note=f"Run: {found.run}.")

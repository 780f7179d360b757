"""Where do pages come and go?  Addresses over time: faulted on, prefetched, evicted, migrated away, and what is resident."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gpusim.base.units import show_bytes
from gpusim.results.fault_picture import Picture
from gpusim.results.faults import AllocationFaults, FaultReport
from gpusim.results.result import Result
from gpusim.show.faults import brief
from gpusim.show.groups import starred
from gpusim.show.panels import entitle, grid, shape
from gpusim.show.style import (
    BLACK,
    GREEN,
    HEIGHT,
    PAPER,
    SKY,
    SOFT,
    VERMILION,
    canvas,
    empty,
    headline,
    styled,
)  # fmt: skip
from gpusim.show.values.page_cells import DONE, cells
from gpusim.show.view import pick, run_name, scale, varying

MOST = 4
HELD = "#E4E7EC"  # what a GPU holds
KINDS = tuple(zip(DONE, (VERMILION, SKY, BLACK, GREEN), strict=True))
NAMED = 0.035  # share of the axis from which an allocation has room for its name

RGBA = npt.NDArray[np.float64]


@styled
def draw(results: Sequence[Result], question: str = "") -> Figure:
    """One map per run under unified memory; a cell has the colour of what most of its pages did."""
    seen = [r for r in results if r.faults is not None and r.faults.picture is not None]
    if not seen:
        figure = canvas()
        empty(figure, "No run kept a picture of its faults: unified memory does.")
        return figure
    shown, note = pick(seen, MOST)
    keys = varying(shown)
    figure = canvas(height=HEIGHT * 1.1) if len(shown) == 1 else canvas(shape(len(shown))[0])
    axes = grid(figure, len(shown))
    found: set[int] = set()
    for panel, run in zip(axes, shown, strict=True):
        assert run.faults is not None and run.faults.picture is not None
        found |= _map(panel, run.faults, run.faults.picture)
        entitle(panel, starred(run_name(run, keys, "unified"), run.oracle) if len(shown) > 1 else "", len(shown))
    handles: list[Artist] = [Patch(facecolor=colour, label=name) for k, (name, colour) in enumerate(KINDS) if k in found]
    if any(run.faults.picture.resident.any() for run in shown if run.faults and run.faults.picture):
        handles.append(Patch(facecolor=HELD, label="in GPU memory"))
    first = shown[0].faults
    assert first is not None
    said = brief(first, shown[0].bounds.get("bound_no_limit_ns")) if len(shown) == 1 else ""
    about = "A cell has the colour of what most of its pages did."
    headline(figure, question or "Where do pages come and go?", said, f"{note} {about}".strip(), handles)
    return figure


def _map(panel: Axes, report: FaultReport, picture: Picture) -> set[int]:
    """Draws one run; returns the kinds that occur."""
    kind = cells(picture)
    held = picture.resident[..., None]
    image: RGBA = held * np.array(to_rgba(HELD)) + (1 - held) * np.array(to_rgba(PAPER))
    for k, (_, colour) in enumerate(KINDS):
        image[kind == k] = to_rgba(colour)
    rows, columns = kind.shape
    end = columns * picture.column_ns
    divisor, unit = scale("ns", report.makespan_ns)
    panel.grid(visible=False)
    panel.imshow(
        image, origin="lower", aspect="auto", extent=(0, end / divisor, 0, rows * picture.row_bytes), interpolation="nearest",
        gid="pages",
    )  # fmt: skip
    panel.set_xlim(0, max(report.makespan_ns, 1.0) / divisor)
    panel.set_xlabel(f"time [{unit}]")
    _names(panel, sorted(report.allocations, key=lambda a: a.first))
    return set(np.unique(kind).tolist()) - {-1}


def _names(panel: Axes, allocations: Sequence[AllocationFaults]) -> None:
    """The address axis: a line between allocations, and the names of those that have room for one."""
    top = max(a.first + a.bytes for a in allocations)
    panel.set_ylim(0, top)
    for a in allocations[1:]:
        panel.axhline(a.first, color=SOFT, lw=0.6, gid="between")
    large = [a for a in allocations if a.bytes >= NAMED * top]
    panel.set_yticks([a.first + a.bytes / 2 for a in large], [f"{a.name}\n{show_bytes(a.bytes)}" for a in large])
    panel.tick_params(axis="y", length=0)
    small = len(allocations) - len(large)
    panel.set_ylabel(f"address  ({small} small ones without a name)" if small else "address")

"""Does it fit, and what fills the memory?  Requested, allocated and reserved bytes over time, against the capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpusim.results.result import Result
from gpusim.show.groups import starred
from gpusim.show.moments import Floats, axis
from gpusim.show.panels import entitle, grid, shape
from gpusim.show.style import ALARM, BLUE, DPI, INK, ORANGE, PINK, SKY, SOFT, WIDTH, canvas, empty, headline, styled
from gpusim.show.values.over_time import Levels, over_time
from gpusim.show.view import scale

APART = 3.0  # slowest over fastest run from which each has its own axis of time
Phases = Sequence[tuple[float, float, str]]  # start ns, end ns, name


@styled
def draw(results: Sequence[Result], question: str = "", phases: Mapping[int, Phases] | None = None) -> Figure:
    """One panel per run.  `phases` shades spans of time by the index of the result in `results`."""
    found = over_time(results)
    shown, note = found.runs, found.note
    if not shown:
        figure = canvas()
        empty(figure, "No run recorded its memory over time.")
        return figure
    down, columns = shape(len(shown))
    figure = canvas(down)
    ends = [r.until for r in shown if not r.ending] or [r.until for r in shown]
    last = max(r.until for r in shown)
    # What is filled when is told by the shape: a run that is many times faster than another would be a mere line.
    together = last <= APART * min(ends) and len({r.timed for r in shown}) == 1
    axes = grid(figure, len(shown), sharex=together, sharey=True)
    top = max(max(r.capacity or 0, r.highest) for r in shown)
    per_byte, byte_unit = scale("B", top)
    index = {id(r): i for i, r in enumerate(results)}
    for panel, run, result in zip(axes, shown, found.shown, strict=True):
        until = last if together else run.until
        per_time, label = axis([result], last)
        _panel(panel, run, until / per_time, per_time, per_byte, round(WIDTH * DPI) // columns)
        panel.set_xlim(0, until / per_time * 1.02)
        panel.set_xlabel(label)
        panel.locator_params(axis="x", nbins=9 // columns + 2)
        panel.locator_params(axis="y", nbins=7 if down < 3 else 5)
        _shade(panel, (phases or {}).get(index[id(result)], ()), per_time)
        entitle(panel, starred(run.name, run.oracle) if len(shown) > 1 else "", len(shown))
    axes[0].set_ylim(0, top / per_byte * 1.10 or 1)
    for i, panel in enumerate(axes):
        panel.set_ylabel(f"memory [{byte_unit}]" if i % columns == 0 else "")
        if i + columns < len(axes):
            panel.set_xlabel("")
    handles: list[Artist] = [
        Line2D([], [], color=ALARM, lw=1.2, ls="--", label="capacity"),
        Line2D([], [], color=ORANGE, lw=1.5, label="reserved"),
        Line2D([], [], color=BLUE, lw=1.5, label="allocated"),
        Patch(facecolor=SKY, alpha=0.45, label="requested"),
    ]
    if any(r.bytes["host"].any() for r in shown):
        handles.append(Line2D([], [], color=PINK, lw=1.5, ls="-.", label="swapped out"))
    if any(r.ending for r in shown):
        handles.append(Line2D([], [], color=ALARM, marker="x", ls="", ms=7, mew=2, label="the run stops"))
    if not together:
        note = f"{note} Each run has its own axis of time.".strip()
    headline(figure, question or "Does it fit, and what fills the memory?", found.answer, note, handles)
    return figure


def _panel(panel: Axes, run: Levels, last: float, per_time: float, per_byte: float, columns: int) -> None:
    def points(level: str) -> tuple[Floats, Floats]:
        time, height = run.seen(level, columns)
        return time / per_time, height / per_byte

    edges, filled = points("requested")
    panel.stairs(filled[:-1], edges, fill=True, color=SKY, alpha=0.45, lw=0, gid="requested")
    panel.step(*points("reserved"), where="post", color=ORANGE, lw=1.4, gid="reserved")
    panel.step(*points("allocated"), where="post", color=BLUE, lw=1.2, gid="allocated")
    if run.bytes["host"].any():
        # Bytes leave and come all the while until the operator that waits for them begins: no step.
        panel.plot(*points("host"), color=PINK, lw=1.4, ls="-.", gid="host")
    if run.capacity is not None:
        panel.axhline(run.capacity / per_byte, color=ALARM, lw=1.2, ls="--", gid="capacity")
    if run.ending:
        at, height = float(run.time[-1]) / per_time, float(run.bytes["reserved"][-1]) / per_byte
        late = at > 0.5 * last
        panel.plot([at], [height], "x", color=ALARM, ms=8, mew=2.2, gid=f"failed:{run.ending}", zorder=5, clip_on=False)
        words = panel.annotate(
            run.ending, (at, height), (-9 if late else 9, -1), textcoords="offset points", color=ALARM, fontsize=8.5,
            ha="right" if late else "left", va="center", bbox={"facecolor": "white", "alpha": 0.85, "lw": 0, "pad": 1.5},
        )  # fmt: skip
        words.set_in_layout(False)


def _shade(panel: Axes, phases: Phases, per_time: float) -> None:
    for i, (start, until, name) in enumerate(phases):
        panel.axvspan(start / per_time, until / per_time, color=INK, alpha=0.045 * (i % 2), lw=0, gid=f"phase:{name}")
        panel.annotate(name, ((start + until) / 2 / per_time, 1), (0, -2), xycoords=panel.get_xaxis_transform(),
                       textcoords="offset points", ha="center", va="top", fontsize=8, color=SOFT)  # fmt: skip

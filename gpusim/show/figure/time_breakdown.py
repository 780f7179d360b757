"""Where does the time go?  Kernel time and stalls by cause, stacked, one bar per run."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gpusim.base.text import join
from gpusim.results.result import Result
from gpusim.show.groups import in_order, starred
from gpusim.show.style import (
    ALARM,
    BLUE,
    GREEN,
    GREY,
    HEIGHT,
    INDIGO,
    OLIVE,
    ORANGE,
    PINK,
    SKY,
    VERMILION,
    WINE,
    canvas,
    empty,
    headline,
    styled,
)  # fmt: skip
from gpusim.show.view import ending, human, pick, ratio, run_name, scale, value, varying

MOST = 16
UNSEEN = 1 / 500  # share of the axis below which a part is thinner than its edges
# From the left: work, then what waits for it.  Hatches tell the parts apart in grey print.
PARTS = (
    ("compute_busy_ns", "kernels run", BLUE, ""),
    ("stall_swap_in_ns", "waiting for swap-in", VERMILION, "//"),
    ("stall_swap_out_ns", "waiting for swap-out", ORANGE, "\\\\"),
    ("stall_fault_ns", "serving page faults", WINE, "//"),
    ("stall_migration_ns", "waiting for migration", INDIGO, "\\\\"),
    ("stall_remote_ns", "on remote accesses", GREY, "//"),
    ("stall_explicit_ns", "on its own prefetches", OLIVE, "xx"),
    ("stall_host_ns", "waiting for the CPU", GREEN, "++"),
    ("stall_alloc_ns", "in the allocator", PINK, ".."),
    ("stall_launch_ns", "on launches", SKY, ""),
    ("stall_sync_ns", "waiting for the host", GREEN, "xx"),
    ("stall_event_ns", "waiting for streams", OLIVE, "--"),
    ("stall_sms_ns", "waiting for multiprocessors", INDIGO, "--"),
    ("stall_copy_engine_ns", "for a copy engine", VERMILION, "xx"),
)
OTHER = ("idle", "#D5D9E0")


@styled
def draw(results: Sequence[Result], question: str = "") -> Figure:
    """Bars in the order of all figures, best first; with several streams the parts are shares of their common time."""
    if not results:
        figure = canvas()
        empty(figure, "There are no runs.")
        return figure
    shown, note = pick(results, MOST)
    keys = varying(shown)
    shown = in_order(shown, results)
    figure = canvas(height=max(HEIGHT, 0.27 * len(shown) + 1.7))
    panel = figure.add_subplot()
    longest = max((_parts(r)[1] for r in shown if r.finished), default=0.0)
    divisor, unit = scale("ns", longest)
    used: dict[str, tuple[str, str]] = {}
    for y, run in enumerate(shown):
        if not run.finished:
            panel.plot([0.018], [y], "x", color=ALARM, ms=6, mew=1.8, transform=panel.get_yaxis_transform(),
                       gid=f"failed:{run_name(run, keys)}")  # fmt: skip
            panel.annotate(ending(run), (0.018, y), (9, 0), xycoords=panel.get_yaxis_transform(), color=ALARM,
                           textcoords="offset points", va="center", fontsize=8.5)  # fmt: skip
            continue
        parts, total = _parts(run)
        left = 0.0
        for (label, colour, hatch), width in parts:
            left += width
            if width <= longest * UNSEEN:
                continue
            panel.barh(y, width / divisor, 0.66, left=(left - width) / divisor, facecolor=colour, edgecolor="white", lw=0.6,
                       hatch=hatch, hatchcolor="white", gid=f"part:{label}")  # fmt: skip
            used[label] = (colour, hatch)
        panel.annotate(human("makespan_ns", total), (total / divisor, y), (4, 0), textcoords="offset points",
                       va="center", fontsize=8.5)  # fmt: skip
    panel.set_yticks(range(len(shown)), [starred(run_name(r, keys), r.oracle) for r in shown])
    panel.set_ylim(max(len(shown), 5) - 0.4, -0.6)
    panel.set_xlim(0, longest / divisor * 1.12 or 1)
    panel.tick_params(axis="y", length=0)
    panel.grid(axis="y", visible=False)
    panel.grid(axis="x", visible=True)
    panel.set_xlabel(f"time [{unit}]")
    if not longest:
        panel.set_xticks([])
        panel.set_xlabel("")
    _legend(panel, used)
    headline(figure, question or "Where does the time go?", _answer(shown, keys), _note(shown, note))
    return figure


def _parts(run: Result) -> tuple[list[tuple[tuple[str, str, str], float]], float]:
    """The parts of one run in ns and their sum, its makespan.

    Kernel time and stalls are sums over streams: they are scaled to the makespan when they exceed it.
    """
    makespan = float(run.metrics.get("makespan_ns", 0))
    parts = [((label, colour, hatch), float(run.metrics.get(name, 0))) for name, label, colour, hatch in PARTS]
    total = sum(width for _, width in parts)
    if total > makespan > 0:
        return [(look, width * makespan / total) for look, width in parts], makespan
    return [*parts, ((*OTHER, ""), makespan - total)], makespan


def _legend(panel: Axes, used: dict[str, tuple[str, str]]) -> None:
    order = [label for _, label, _, _ in PARTS] + [OTHER[0]]
    handles = [
        Patch(facecolor=used[label][0], hatch=used[label][1], edgecolor="white", hatchcolor="white", label=label)
        for label in order
        if label in used
    ]
    if handles:
        panel.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)


def _note(shown: Sequence[Result], note: str) -> str:
    oracle = "* reads the future." if any(r.oracle for r in shown) else ""
    return " ".join(part for part in (note, oracle) if part)


def _answer(shown: Sequence[Result], keys: Sequence[str]) -> str:
    """The largest stall of the slowest run, and the share of kernels in the fastest."""
    finished = sorted((r for r in shown if r.finished), key=lambda r: r.metrics.get("makespan_ns", 0))
    if not finished:
        return "No run finished."
    slow, fast = finished[-1], finished[0]
    busy = ratio(value(fast, "compute_busy_ns"), value(fast, "makespan_ns"))
    stalls = sorted(((slow.metrics.get(name, 0), label) for name, label, _, _ in PARTS[1:]), reverse=True)
    sentences = []
    if busy is not None:
        subject = f"In the fastest run, {run_name(fast, keys)}, kernels run" if len(finished) > 1 else "Kernels run"
        sentences.append(f"{subject} {100 * min(busy, 1):.0f} % of the time.")
    if stalls and stalls[0][0] > 0:
        subject = f"The slowest, {run_name(slow, keys)}, loses" if len(finished) > 1 else "It loses"
        lost = [f"{human('stall_ns', width)} {label}" for width, label in stalls[:2] if width > 0]
        sentences.append(f"{subject} {join(lost)}.")
    return " ".join(sentences)

"""What caches of keys and values find in requests, by size and by which chunk leaves first; what tiers make of latencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from gpusim.engine.serving.hit_rates import hit_rate
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.tables import RequestTable
from gpusim.show.panels import logarithmic, row_labels
from gpusim.show.style import GREEN, canvas, headline, looks, styled

POLICIES = ("belady", "s3fifo", "arc", "lru", "fifo", "lfu", "tail_first")
TOKENS = tuple(int(1e6 * 2 ** (k / 2)) for k in range(15))


@dataclass(frozen=True)
class FoundBySize:
    """Of each policy the shares of blocks that caches of so many tokens find, without engine and time."""

    tokens: tuple[int, ...]
    shares: dict[str, tuple[float, ...]]


def found_by_size(
    requests: RequestTable, policies: Sequence[str] = POLICIES, tokens: Sequence[int] = TOKENS
) -> FoundBySize:
    """Each policy at each size."""
    piece = int(requests.piece[0])
    shares = {
        name: tuple(hit_rate(requests, size // piece, get("evict", name)).share for size in tokens) for name in policies
    }
    return FoundBySize(tuple(tokens), shares)


@styled
def draw(found: FoundBySize, question: str, at: int = 3_000_000) -> Figure:
    """A line for each policy; the answer compares them at the size nearest to `at` tokens."""
    figure = canvas(rows=1)
    panel = figure.subplots(1, 1)
    look = looks(found.shares)
    for name, shares in found.shares.items():
        of = look[name]
        panel.plot(
            found.tokens, [100 * share for share in shares], color=of.colour, marker=of.marker, label=name, gid="points"
        )
    panel.set_xlabel("room for tokens")
    panel.set_ylabel("blocks that are found [%]")
    logarithmic(panel, found.tokens[0] / 1.2, found.tokens[-1] * 1.2, lambda count: f"{count / 1e6:,.0f} M")
    panel.set_ylim(bottom=0)
    k = min(range(len(found.tokens)), key=lambda i: abs(found.tokens[i] - at))
    order = sorted(found.shares, key=lambda name: -found.shares[name][k])
    said = ", ".join(f"{name} {100 * found.shares[name][k]:.1f} %" for name in order)
    said = f"With room for {found.tokens[k] / 1e6:.1f} M tokens: {said}."
    headline(figure, question, said, strip=panel.get_legend_handles_labels()[0])
    return figure


@styled
def draw_question(question: str, axis: str, rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A row for each value of the axis: the median time to the first token, and what of the prompts need not be computed."""
    figure = canvas(rows=1)
    left, right = figure.subplots(1, 2)
    names = [str(row[axis]) or "none" for row in rows]
    row_labels(left, names)
    place = range(len(rows))
    first = [row["TTFT p50 [ms]"] for row in rows]
    left.barh(place, first, color=GREEN, gid="bars")
    for i, ms in enumerate(first):
        left.text(ms, i, f" {ms:,.0f}", va="center")
    left.set_xlabel("median time to first token [ms]")
    left.set_xlim(0, 1.15 * max(first))
    share = [[100 * row.get(key, 0.0) for row in rows] for key in ("cached", "from tiers")]
    right.barh(place, share[0], label="found on the GPUs", gid="bars")
    right.barh(place, share[1], left=share[0], label="from tiers", gid="bars")
    right.set_yticks([])
    right.set_xlabel("prompts' tokens [%]")
    for panel in (left, right):
        panel.set_ylim(len(rows) - 0.5, -0.5)
        panel.grid(axis="y", visible=False)
        panel.grid(axis="x", visible=True)
    best = min(rows, key=lambda row: float(row["TTFT p50 [ms]"]))
    said = f"Soonest: {best[axis]}, {best['TTFT p50 [ms]']:,.0f} ms in the median."
    headline(figure, question, said, strip=right.get_legend_handles_labels()[0])
    return figure

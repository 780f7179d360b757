"""What `gpusim calibrate compare` says: a line for each series, what is not simulated and why, and the score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gpusim.calibrate.compare.effects import MEDIAN, P90, effect
from gpusim.calibrate.compare.score import PARTS, Comparison, Series

Table = list[dict[str, Any]]


def rows(found: Comparison) -> Table:
    """Series that the engine could run, held out first, with their middle row as an example."""
    ordered = sorted(found.compared, key=lambda s: PARTS.index(s.part))
    return [_row(series) for series in ordered]


def _row(series: Series) -> dict[str, Any]:
    example = series.points[len(series.points) // 2]
    return {
        "series": series.name, "part": series.part, "rows": len(series.points),
        "unit": example.row.unit, "measured": example.row.value, "simulated": example.simulated,
        "median": percent(series.median), "p90": percent(series.p90), "worst": percent(float(series.errors.max())),
    }  # fmt: skip


def percent(value: float) -> str:
    return f"{value:.1%}"


def reasons(found: Comparison) -> Iterator[tuple[str, Table]]:
    """Two tables below the first: the misses and their effects, and what the engine cannot run."""
    effects = {s.name: effect(s, found.profile) for s in found.compared}
    missed = [
        {"series": s.name, "error": f"{s.bias:+.1%}", "effect": effects[s.name]} for s in found.compared if effects[s.name]
    ]
    if missed:
        yield f"Above {MEDIAN:.0%} (median) or {P90:.0%} (p90)", missed
    cannot: Counter[str] = Counter()
    of: Counter[str] = Counter()
    for series in found.series:
        cannot.update(series.cannot)
        of.update(list(series.cannot))
    if cannot:
        yield "Not simulated", [{"rows": n, "series": of[why], "why": why} for why, n in cannot.most_common()]


_MEANS = dict(zip(PARTS, (
    "not seen by the fit, and decided by what it saw",
    "decided by a measured number of the catalogue, perhaps of this very series",
    "not seen by the fit, of another host than the one whose link was fitted",
    "seen by the fit: how far one profile satisfies them",
    "the profile was never fitted to rows: its estimates decide",
), strict=True))  # fmt: skip


def answer(found: Comparison) -> str:
    """The score in a sentence for each part, then the cautions."""
    lines = []
    for part in PARTS:
        score = found.score(part)
        count = sum(s.part == part for s in found.compared)
        if score:
            figures = f"median {score[0]:.1%}, p90 {score[1]:.1%}, worst {score[2]:.1%}"
            lines.append(f"{part}: {count} series, {figures} ({_MEANS[part]})")
        elif part == PARTS[0]:
            lines.append(f"{part}: nothing that a fit predicts")
    return "\n".join([*lines, *(f"caution: {caution}" for caution in found.cautions)])


def values(found: Comparison) -> dict[str, Any]:
    """All of it for programs."""
    return {
        "machine": found.machine, "profile": found.profile.name, "rows": found.rows, "cautions": list(found.cautions),
        "score": {
            part: dict(zip(("median", "p90", "worst"), score, strict=True)) for part in PARTS if (score := found.score(part))
        },
        "series": [
            {
                "series": s.name, "part": s.part, "uses": list(s.uses), "effect": effect(s, found.profile),
                "not_simulated": dict(s.cannot),
                "points": [
                    {"metric": p.row.metric, "size_bytes": p.row.size_bytes, "param": p.row.param, "unit": p.row.unit,
                     "measured": p.row.value, "simulated": p.simulated}
                    for p in s.points
                ],
            }
            for s in found.series
        ],
    }  # fmt: skip

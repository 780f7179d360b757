"""The rows of all ranks of a run as one table: a device for each, on lanes of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpusim.results.activities.rows import NONE, Activities, ActivityLane, Counter, in_order


def together(ranks: Sequence[Activities], *, programs: bool = False) -> Activities:
    """The rows of ranks, or of programs on one GPU, in their order; counters, owners and rates have it before their name."""
    what = "program" if programs else "rank"
    names = {name: i for i, name in enumerate(dict.fromkeys(name for rank in ranks for name in rank.names))}
    lanes: list[ActivityLane] = []
    parts, before = [], 0
    for number, rank in enumerate(ranks):
        rows = rank.rows.copy()
        rows["device"] = number
        rows["lane"] += len(lanes)
        rows["name"] = np.array([names[name] for name in rank.names], np.int32)[rows["name"]]
        rows["cause"] = np.where(rows["cause"] == NONE, NONE, rows["cause"] + before)
        parts.append(rows)
        before += len(rows)
        lanes += rank.lanes
    return Activities(
        in_order(np.concatenate(parts)), tuple(lanes), tuple(names), _named([rank.counters for rank in ranks], what),
        _named([rank.owners for rank in ranks], what), _named([rank.rates for rank in ranks], what),
        what if programs else "GPU",
    )  # fmt: skip


def _named(of_ranks: Sequence[Mapping[str, Counter]], what: str) -> dict[str, Counter]:
    return {f"{what} {number}: {name}": counter for number, rank in enumerate(of_ranks) for name, counter in rank.items()}

"""How long what runs did took, one by one: kernels, swaps, stalls, faults and copies of their logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpusim.base.units import show_time
from gpusim.results.activities import KINDS, Activities
from gpusim.show.values.distribution import Cumulative, cumulative

MOST_TOLD = 3  # panels of which the answer speaks
# Panels: title, kinds of activities.
DURATIONS = {
    "kernels": ("kernel",), "swaps in": ("swap_in",), "swaps out": ("swap_out",), "stalls": ("stall",),
    "migrations": ("migration",), "faults served": ("fault_batch", "host_fault"),
    "copies of the program": ("copy_in", "copy_out", "copy_peer"), "collectives": ("collective",),
}  # fmt: skip


def durations(named: Sequence[tuple[str, Activities]]) -> dict[str, tuple[Cumulative, ...]]:
    """Durations in ns of what runs did, by panel: a line per run; panels of which no run has anything are left out."""
    found = {}
    for title, kinds in DURATIONS.items():
        wanted = [KINDS.index(kind) for kind in kinds if kind in KINDS]
        lines = []
        for name, one in named:
            rows = one.rows[np.isin(one.rows["kind"], wanted)]
            lasting = (rows["end"] - rows["start"]).astype(np.float64)
            if (lasting > 0).any():
                lines.append(cumulative(name, lasting[lasting > 0]))
        if lines:
            found[title] = tuple(lines)
    return found


def answer(panels: Mapping[str, Sequence[Cumulative]]) -> str:
    """Median and 99th percentile of the first run, which is the best; "" without panels."""
    if not panels:
        return ""
    first, *others = next(iter(panels.values()))
    of_first = ((title, line) for title, lines in panels.items() for line in lines if line.name == first.name)
    said = []
    for title, line in list(of_first)[:MOST_TOLD]:
        middle, late = line.quantile(0.5), line.quantile(0.99)
        if middle is not None and late is not None:
            said.append(f"{title}: half within {show_time(middle)}, 99 % within {show_time(late)}")
    words = "; ".join(said)
    return f"{first.name}: {words}." if others else f"{words[0].upper()}{words[1:]}."

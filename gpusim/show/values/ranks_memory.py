"""What each rank of the best run holds over time, or each program beside others: equal ones share a curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpusim.base.units import show_bytes
from gpusim.results.result import Result
from gpusim.show.moments import Floats, end, moments, rows
from gpusim.show.ranks import numbers
from gpusim.show.values.over_time import capacity, column
from gpusim.show.view import contenders, main_metric, run_name, value, varying

HELD = "reserved_bytes"


@dataclass(frozen=True)
class HeldByRanks:
    """Curves of one run: name ("ranks 0 to 3") -> ns and bytes; the least capacity of a rank, None without a limit.

    what  rank, or program
    """

    run: str
    curves: dict[str, tuple[Floats, Floats]]
    capacity: float | None
    what: str = "rank"

    @property
    def question(self) -> str:
        """What the curves answer."""
        return f"What does each {self.what} hold?"

    @property
    def answer(self) -> str:
        """The ranks that hold most and least."""
        peaks = {name: float(held.max(initial=0)) for name, (_, held) in self.curves.items()}
        most, least = max(peaks, key=lambda name: peaks[name]), min(peaks, key=lambda name: peaks[name])
        if len(peaks) == 1:
            return f"All hold {show_bytes(peaks[most])} at their peaks."
        return f"Most is held by {most}, {show_bytes(peaks[most])}; least by {least}, {show_bytes(peaks[least])}."


def telling(results: Sequence[Result]) -> bool:
    """Whether a run has ranks, or other programs beside it."""
    return any(r.ranks for r in results)


def held_by_ranks(results: Sequence[Result]) -> HeldByRanks | None:
    """Of the best run of ranks, or, where none finished, of the first; None without any."""
    known = [r for r in results if r.ranks and rows(r.ranks[0])]
    if not known:
        return None
    metric = main_metric(results)
    done = [r for r in contenders(known) if value(r, metric) is not None]
    run = min(done, key=lambda r: value(r, metric) or 0.0) if done else known[0]
    alike: dict[bytes, list[int]] = {}
    for i, rank in enumerate(run.ranks):
        alike.setdefault(moments(rank).tobytes() + column(rank, HELD).tobytes(), []).append(i)
    curves, what = {}, "program" if run.beside else "rank"
    for mine in alike.values():
        rank = run.ranks[mine[0]]
        time, held = moments(rank), column(rank, HELD)
        if rank.finished and end(rank) > time[-1]:
            time, held = np.append(time, end(rank)), np.append(held, held[-1])
        curves[numbers(mine, what) + (f", {rank.spec['gpu']}" if run.beside else "")] = (time, held)
    limits = [limit for rank in run.ranks if (limit := capacity(rank)) is not None]
    return HeldByRanks(run_name(run, varying(results), alone="parallel"), curves, min(limits, default=None), what)

"""What the recordings of many ranks hold, a row for each: what it did, what it exchanged, and how long it waited for others."""

from __future__ import annotations

from typing import Any

from gpusim.base.units import show_bytes, show_time
from gpusim.programs.ranks.matching import Matched
from gpusim.programs.ranks.recorded import RankPrograms
from gpusim.trace.trace import Trace
from gpusim.trace.workload import build

_ABSENT = {"tensors": "not recorded", "operators": "", "exchanges": "", "live peak": "", "recorded": "", "waited": ""}


def describe(programs: RankPrograms) -> list[dict[str, Any]]:
    """A row for each rank, as a table shows it."""
    found = programs.check()
    waits = recorded_waits(programs, found)
    return [
        {"rank": rank, **(_row(program, waits[rank]) if rank not in programs.absent else _ABSENT)}
        for rank, program in enumerate(programs.programs)
    ]


def recorded_waits(programs: RankPrograms, found: list[Matched]) -> list[int]:
    """ns that each rank's collectives and sends waited for others: what they took longer than on the rank that came last, of
    those that were recorded.

    -1 of a rank whose times were not recorded, or those of no other.
    """
    waits = [-1 if (program.exchange >= 0).any() else 0 for program in programs.programs]
    for one in found:
        took = {
            rank: int(programs.programs[rank].duration[operator])
            for rank, operator in zip(one.ranks, one.operators, strict=True) if operator >= 0
        }  # fmt: skip
        if len(took) > 1 and (least := min(took.values())) >= 0:
            for rank, ns in took.items():
                waits[rank] = max(waits[rank], 0) + ns - least
    return waits


def _row(program: Trace, waited: int) -> dict[str, Any]:
    known = bool((program.duration > 0).any() and (program.time > 0).any())
    live = build(program, program.duration.clip(min=0)).live_peak
    return {
        "tensors": f"{program.tensors:,}", "operators": f"{program.ops:,}", "exchanges": int((program.exchange >= 0).sum()),
        "live peak": show_bytes(live), "recorded": show_time(int(program.time.max(initial=0))) if known else "",
        "waited": show_time(waited) if known and waited >= 0 else "",
    }  # fmt: skip

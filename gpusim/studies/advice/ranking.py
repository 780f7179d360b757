"""What helps, what does not, and in which order: the gain of a change against what it costs."""

from __future__ import annotations

import math

from gpusim.base.units import show_bytes
from gpusim.engine.pages.advisor import LEAST
from gpusim.studies.advice import lines
from gpusim.studies.advice.answer import FAULTS, OOM, NotTried, Proposal

TIE = 0.05
"""Estimated times that differ by less count as equal, and a change of what is computed has to save more."""


def apart(found: list[Proposal], now: Proposal | None, failed: bool, least: float) -> tuple[list[Proposal], list[NotTried]]:
    """What helps: of a program that does not fit what makes it fit; of another one what is faster, or holds less.

    The doctor and the search for hints have judged what is theirs.

    least   bytes that a change has to save
    """
    helps, idle = [], list[NotTried]()
    for p in found:
        if not p.fits:
            idle.append(NotTried(p.change, "a request fails"))
            continue
        judged = p.tool not in (OOM, FAULTS) and not failed and p.slowdown is not None
        if judged and now and now.step_ns is not None and not _faster(p, now) and not (p.saves and p.saves[0] >= least):
            idle.append(NotTried(p.change, _no_gain(p, now)))
        else:
            helps.append(p)
    return helps, idle


def rank(p: Proposal) -> tuple[int, int, bool, bool, float, float, str]:
    """On one GPU before several; the least time of equal work, 1 where none is known; what computes the same, and
    needs no change by hand; the least held."""
    slowdown = p.slowdown or 1.0
    by_hand = p.tool == OOM and not p.chain
    held = p.held[1] if p.held else math.inf
    return p.gpus, round(math.log(slowdown, 1 + TIE)), lines.changes(p.note), by_hand, held, slowdown, p.change


def _faster(p: Proposal, now: Proposal) -> bool:
    before = now.slowdown or 1.0
    return before - (p.slowdown or 1.0) >= (TIE if lines.changes(p.note) else LEAST) * before


def _no_gain(p: Proposal, now: Proposal) -> str:
    saved = p.saves[0] if p.saves else 0
    memory = f"saves {show_bytes(saved)}" if saved > 0 else f"holds {show_bytes(-saved)} more" if saved else "holds as much"
    ratio = (p.slowdown or 1.0) / (now.slowdown or 1.0)
    return f"it {memory} and takes {ratio:.2f} times the time"

"""Who had the multiprocessors under unified memory, recomputed: from when kernels begin and end follows how many each has.

A kernel whose grid was resident at once keeps all that it has; collectives keep theirs from their start on.  What these leave
is given by stream priority and then in the order of starts, to each as many as it can use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.referee.report import Findings
from gpusim.results.result import Result

TICKS = 2  # ns
ENDS = -1
WHEN_WHOLE, FROM_START = 1, 2  # since when one keeps what it has


@dataclass
class _Running:
    wants: int
    keeps: int
    priority: int
    held: bool
    has: int
    since: int
    worked: float = 0.0  # ns on all that it wants


def check(result: Result, found: Findings) -> None:
    """What kernels had is what the rule gives them, and it sufficed for their own work."""
    p, said = result.pages or {}, result.spec["paging"].get("traffic")
    if said is None or "grant_time" not in p or said["granted"] > len(p["grant_time"]):
        return
    columns = [p[f"grant_{name}"] for name in ("time", "operator", "sms", "wants", "keeps", "priority")]
    for process, gpu in enumerate(said["gpus"]):
        mine = np.flatnonzero(p["grant_process"] == process)
        rows = np.stack([column[mine] for column in columns], axis=1).tolist()
        lives = None  # its kernels are on one stream
        if said["shares"][process]:
            lives = _given(rows, int(said["sms"][process]), gpu, found)
            found.count("grants", len(rows))
        _worked(p, gpu, lives, result.finished, found)


def _given(rows: list[list[int]], sms: int, gpu: int, found: Findings) -> dict[int, tuple[int, int, float]]:
    """Of each kernel when it began and ended, and how long it has worked on all that it wants."""
    running: dict[int, _Running] = {}
    lives: dict[int, tuple[int, int, float]] = {}
    at, now = 0, 0
    began: dict[int, int] = {}
    while at < len(rows):
        now, changed = rows[at][0], dict[int, int]()
        while at < len(rows) and rows[at][0] == now:
            _, operator, has, wants, keeps, priority = rows[at]
            at += 1
            if has != ENDS and operator not in running:
                running[operator] = _Running(wants, keeps, priority, keeps == FROM_START, has, now)
                began[operator] = now
            one = running.get(operator)
            if one is None:
                found.say(-1, f"operator {operator} of GPU {gpu} ends at {now} ns", "one that has begun")
            elif has == ENDS:
                one.worked += (now - one.since) * one.has / max(one.wants, 1)
                lives[operator] = began[operator], now, one.worked
                del running[operator]
            else:
                changed[operator] = has
        for operator, expected in _rule(running, sms).items():
            one = running[operator]
            has = changed.get(operator, one.has)
            if has != expected:
                what = f"operator {operator} of GPU {gpu} has {has} multiprocessors at {now} ns"
                found.say(-1, what, f"{expected}, by the order of those that run")
            one.worked += (now - one.since) * one.has / max(one.wants, 1)
            one.has, one.since = expected, now
            one.held = one.held or (one.keeps == WHEN_WHOLE and expected == one.wants)
    return lives


def _rule(running: dict[int, _Running], sms: int) -> dict[int, int]:
    """Operator -> multiprocessors that it has; those that run are in the order of their starts."""
    given = {operator: one.wants for operator, one in running.items() if one.held}
    left = sms - sum(given.values())
    for operator, one in sorted(running.items(), key=lambda item: item[1].priority):
        if not one.held:
            given[operator] = min(one.wants, left)
            left -= given[operator]
    return given


def _worked(
    p: dict[str, Any], gpu: int, lives: dict[int, tuple[int, int, float]] | None, finished: bool, found: Findings
) -> None:
    """Kernels began and ended when their steps did, and have had what their own work needs."""
    kernels = np.flatnonzero((p["step_gpu"] == gpu) & (p["step_wants"] > 0)).tolist()
    for step in kernels if finished else ():
        start, end, own = (int(p[name][step]) for name in ("step_start", "step_end", "step_own"))
        life = (start, end, float(end - start)) if lives is None else lives.get(int(p["step_operator"][step]))
        if life is None:
            found.say(-1, f"step {step} has no multiprocessors", "those of a kernel that has run")
        elif abs(life[0] - start) > TICKS or abs(life[1] - end) > TICKS:
            what = f"step {step} lasts from {start} to {end} ns"
            found.say(-1, what, f"from {life[0]} to {life[1]} ns, as its multiprocessors")
        elif life[2] < own - TICKS:
            what = f"step {step} has worked {life[2]:.0f} ns on the multiprocessors that it wants"
            found.say(-1, what, f"{own} ns, which it takes on these without faults")
    found.count("kernels on multiprocessors", len(kernels))

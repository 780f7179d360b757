"""What each step of a program did and waited for: the stalls of the metrics, and the columns that go with the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpusim.engine.pages.simulate import StepResult, occupied
from gpusim.programs.managed.steps import HostTouch, Kernel, Prefetch, Step, on_stream
from gpusim.results.log import ISSUE, STALL
from gpusim.results.log import STALLS as CAUSES
from gpusim.results.page_log import BEFORE, HOST_TOUCH, KERNEL, NAMES, OTHER, STALLS
from gpusim.trace.workload import F64, I64

Pairs = Sequence[tuple[Step, StepResult]]
MOST_STREAMS = 62  # that a whole number has bits for


def of_gpus(counts: Any) -> Any:
    """What all GPUs counted together: COUNT[...]."""
    if len(counts) == 2:
        return counts[1]
    found = counts[1].copy()
    for row in counts[2:]:
        for name in counts.dtype.names:
            found[name] += row[name]
    return found


def waits(pairs: Pairs) -> dict[str, list[float]]:
    """By cause what each step waited for, ns: the driver, copies of pages, remote memory, its own moves of pages, the CPU.

    Kernels that stood at the same time have a part of it each: together no more than the time in which there was any.
    """
    found: dict[str, list[float]] = {cause: [0.0] * len(pairs) for cause in STALLS if cause not in BEFORE}
    for i, (step, result) in enumerate(pairs):
        counts = of_gpus(result.counts)
        if isinstance(step, Kernel):
            found["remote"][i] = float(counts["lagged"])
            moving = float(counts["moving"])
            # Without a fault it is all that a kernel waits for, whatever the ticks make of it.
            explicit = result.stalled if moving and not counts["faults"] else min(moving, result.stalled)
            found["explicit"][i] = explicit
            found["migration"][i] = min(float(counts["copy_wait"] - counts["moving_copies"]), result.stalled - explicit)
            found["fault"][i] = result.stalled - explicit - found["migration"][i]
        else:
            found["explicit" if isinstance(step, Prefetch) else "host"][i] = result.ns
    return _divided(found, pairs)


def _divided(found: dict[str, list[float]], pairs: Pairs) -> dict[str, list[float]]:
    """The waits of steps on GPUs, divided by as much as they add up to more than the time in which there was any such step; and
    so those of all, where the host's go on beside them."""
    steps = [result for _, result in pairs]
    for among in ([result.gpu > 0 for result in steps], [True] * len(steps)):
        total = sum(ns[i] for ns in found.values() for i, one in enumerate(among) if one)
        most = occupied([result for result, one in zip(steps, among, strict=True) if one])
        if total > most:
            found = {
                cause: [wait * most / total if one else wait for wait, one in zip(ns, among, strict=True)]
                for cause, ns in found.items()
            }
    return found


def before(log: Any, operators: int) -> dict[str, Any]:
    """By cause what each operator of a recorded program waited for before it began, ns, from the island's log."""
    issued, stalls = log[log["kind"] == ISSUE], log[log["kind"] == STALL]
    operator = np.full(int(max(issued["addr"].max(initial=-1), stalls["a"].max(initial=-1))) + 1, -1)
    operator[issued["addr"]] = issued["a"]
    found = {}
    for cause in BEFORE:
        mine = stalls[(stalls["b"] == CAUSES.index(cause)) & (operator[stalls["a"]] >= 0)]
        found[cause] = np.bincount(operator[mine["a"]], mine["bytes"], operators) if len(mine) else np.zeros(operators)
    return found


def columns(pairs: Pairs, began: float, waited: Mapping[str, Any], stalls: Mapping[str, int | float]) -> dict[str, Any]:
    """The columns of results.page_log.STEPS.

    began   ns when the run is timed
    waited  by cause, of each step, ns
    stalls  the metrics, to which the parts of the steps add up
    """
    names, of = np.unique([result.name for _, result in pairs], return_inverse=True) if pairs else (np.array([], "U1"), [])
    kinds = [KERNEL if isinstance(s, Kernel) else HOST_TOUCH if isinstance(s, HostTouch) else OTHER for s, _ in pairs]
    out = {
        "step_kind": np.array(kinds, np.int64), "step_name": np.array(of, np.int64), NAMES: names,
        "step_op": np.array([s.operator if isinstance(s, Kernel) else -1 for s, _ in pairs], np.int64),
        "step_gpu": np.array([s.gpu if on_stream(s) else 0 for s, _ in pairs], np.int64),
        "step_stream": np.array([s.stream if on_stream(s) else 0 for s, _ in pairs], np.int64),
        "step_after": np.array([_after(s) for s, _ in pairs], np.int64),
        "step_operator": np.array([r.operator for _, r in pairs], np.int64),
        "step_wants": np.array([r.sms for _, r in pairs], np.int64), "step_own": np.array([r.own for _, r in pairs], np.int64),
        "step_start": np.array([round(r.start - began) for _, r in pairs], np.int64),
        "step_end": np.array([round(r.end - began) for _, r in pairs], np.int64),
    }  # fmt: skip
    for cause in STALLS:
        out[f"step_{cause}"] = rounded(waited.get(cause, ()), int(stalls.get(f"stall_{cause}_ns", 0)), len(pairs))
    return out


def _after(step: Step) -> int:
    """The streams that a step of the host waits for, as bits; -1: all of them."""
    after = getattr(step, "after", None)
    return -1 if after is None else sum(1 << stream for stream in set(after) if stream < MOST_STREAMS)


def rounded(parts: Sequence[float] | F64, total: int, count: int) -> I64:
    """So many parts of a sum as whole numbers: none is below 0, and they add up to the rounded sum."""
    out = np.zeros(count, np.int64)
    if count and len(parts):
        levels = np.maximum.accumulate(np.rint(np.cumsum(parts))).clip(0, total).astype(np.int64)
        levels[-1] = total
        out[:] = np.diff(levels, prepend=0)
    return out

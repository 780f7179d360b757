"""What holds the memory at one moment: live bytes by stack, module, phase and role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.studies.fragmentation.moment import alive
from gpusim.trace.roles import ROLES, roles
from gpusim.trace.trace import ALLOC, I64, Trace

UNKNOWN = "unknown"
BEFORE = "in use before the recording began (no stack)"


@dataclass(frozen=True)
class Holder:
    """name: a stack's innermost frame, a module, a phase or a role; bytes requested and tensors alive; stack: its frames."""

    name: str
    bytes: int
    tensors: int
    stack: Sequence[str] = ()


def holders(trace: Trace, event: int) -> dict[str, list[Holder]]:
    """"stack", "module", "phase", "role" -> holders, most bytes first; only what the recording tells is in it."""
    live = alive(trace, event)
    found = {}
    stacks = trace.meta.get("stacks") or {}
    if stacks or not trace.ops:
        index = np.where(before(trace)[live], len(trace.categories), trace.category[live].astype(np.int64))
        found["stack"] = _sums(trace, live, index, [*trace.categories, BEFORE], stacks)
    if trace.ops:
        maker = _maker(trace)[live]
        known = maker >= 0
        module = np.where(known, trace.module[np.maximum(maker, 0)], -1)
        phase = np.where(known, trace.phase[np.maximum(maker, 0)], -1)
        found["module"] = _sums(trace, live, _or_last(module, len(trace.modules)), [*trace.modules, UNKNOWN])
        found["phase"] = _sums(trace, live, _or_last(phase, len(trace.phases)), [*trace.phases, "before the first"])
        found["role"] = _sums(trace, live, roles(trace)[live].astype(np.int64), ROLES)
    return {by: rows for by, rows in found.items() if any(row.name != UNKNOWN for row in rows)}


def before(trace: Trace) -> npt.NDArray[np.bool_]:
    """(T,) tensors that live since before the recording, of which it does not tell where they come from."""
    old = np.zeros(trace.tensors, bool)
    old[trace.arg[trace.kind == ALLOC][: int((trace.meta.get("start") or {}).get("tensors", 0))]] = True
    old &= np.array([name == UNKNOWN for name in trace.categories], bool)[trace.category]
    return old


def _or_last(index: I64, last: int) -> I64:
    return np.where(index >= 0, index, last)


def _maker(trace: Trace) -> I64:
    """(T,) the first operator that writes each tensor, -1: none."""
    found = np.full(trace.tensors, -1, np.int64)
    op = np.repeat(np.arange(trace.ops), np.diff(trace.write_start))
    found[trace.write_id[::-1]] = op[::-1]
    return found


def _sums(
    trace: Trace, live: I64, index: I64, names: Sequence[str], stacks: dict[str, Sequence[str]] | None = None
) -> list[Holder]:
    total = np.bincount(index, trace.size[live], len(names))
    count = np.bincount(index, minlength=len(names))
    order = np.argsort(-total, kind="stable")
    return [
        Holder(names[i], int(total[i]), int(count[i]), tuple((stacks or {}).get(names[i], ())))
        for i in order.tolist() if count[i]
    ]  # fmt: skip


def between(before: Sequence[Holder], after: Sequence[Holder]) -> list[Holder]:
    """What has grown from one time to another, most bytes first."""
    known = {row.name: (row.bytes, row.tensors) for row in before}
    grown = []
    for row in after:
        size, tensors = known.get(row.name, (0, 0))
        grown.append(Holder(row.name, row.bytes - size, row.tensors - tensors, row.stack))
    return sorted((row for row in grown if row.bytes > 0), key=lambda row: -row.bytes)

"""What a plan policy sees, and what it answers.

A plan looks at the whole program and the machine before anything runs, and says what moves where, operator by operator.  The
engine carries it out as far as it can: what is in use, gone or has no room is skipped and counted, and what the plan does not
foresee is left to the evict policy.  A built-in is one file `policies/plan/<name>.py` with either or both of

    plan(view, **parameters) -> Schedule    what leaves and comes back, and before which operator
    rewrite(view, **parameters) -> Trace    the same program as this policy would run it: operators run again, copies of its own

`rewrite` comes first; `plan` then sees the program that it has made.  Triggers are operators, never times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.policies.contract import ACTION, EVICT, PREFETCH
from gpusim.trace.trace import ALLOC, FREE, OP
from gpusim.trace.workload import Workload

__all__ = ["ACTION", "EVICT", "NOTHING", "PREFETCH", "Gaps", "PlanTier", "Schedule", "View"]

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PlanTier:
    """A memory below the device's, as a plan sees it."""

    name: str
    capacity: int   # bytes
    read: float     # bytes/ns towards the device, alone
    write: float    # bytes/ns from the device, alone
    read_latency: float   # ns
    write_latency: float  # ns

    def read_ns(self, size: Any) -> Any:
        """Time of a copy to the device over idle links, ns; of an array of bytes an array."""
        return self.read_latency + size / self.read

    def write_ns(self, size: Any) -> Any:
        """Time of a copy from the device over idle links, ns."""
        return self.write_latency + size / self.write


@dataclass(frozen=True)
class View:
    """What a plan policy may look at.  O operators, T tensors; times are ns of program time (`Workload.clock`)."""

    work: Workload
    capacity: int             # bytes that the allocator may hold
    tiers: tuple[PlanTier, ...]   # nearest first; none on a machine whose GPU shares the CPU's memory
    measure: Callable[..., float] | None = None
    """measure(schedule, program=None): ns that this run takes with a schedule, of another program if one is given, by the
    engine; infinite when it does not finish.  For a few at most."""

    @cached_property
    def gaps(self) -> Gaps:
        """The idle stretches of all tensors: where evicting can pay."""
        return Gaps.of(self.work)

    @cached_property
    def live(self) -> I64:
        """(O,) bytes alive when each operator runs, as requested: what a memory without a limit would hold."""
        t = self.work.trace
        change = np.zeros(len(t.kind), np.int64)
        begins, ends = t.kind == ALLOC, t.kind == FREE
        change[begins], change[ends] = t.size[t.arg[begins]], -t.size[t.arg[ends]]
        return np.cumsum(change)[t.kind == OP]


@dataclass(frozen=True)
class Gaps:
    """Stretches between two uses of a tensor: it is used by operator `begin`, next by `end`, not in between.  G rows."""

    unit: I64
    begin: I64
    end: I64

    @staticmethod
    def of(work: Workload) -> Gaps:
        """All gaps with at least one operator in between, by tensor, then in time."""
        op = np.repeat(np.arange(len(work.duration)), np.diff(work.acc_start))
        order = np.argsort(work.acc_unit, kind="stable")
        unit, at = work.acc_unit[order], op[order]
        idle = np.flatnonzero((unit[1:] == unit[:-1]) & (at[1:] > at[:-1] + 1))
        return Gaps(unit[idle], at[idle], at[idle + 1])


@dataclass(frozen=True)
class Schedule:
    """ACTION rows in the order in which they are carried out: by `at`, rows of one operator as they stand."""

    actions: Any
    remote: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Tensors that stay in the nearest tier and are read and written there by the kernels themselves (zero-copy)."""
    access: int = 128
    """Bytes that the kernels access there at once: 32 scattered, 128 coalesced."""

    def mistake(self, view: View) -> str:
        """What is wrong with the first action that the engine cannot read, as the end of a sentence; "" when all is well."""
        a, t = self.actions, view.work.trace
        if a.dtype != ACTION:
            return "plans in rows of another kind than ACTION"
        for column, what, many, known in (
            ("at", "operator", t.ops, t.ops), ("verb", "verb", 2, 2), ("unit", "tensor", t.tensors, t.tensors),
            ("to", "tier", len(view.tiers) + 1, len(view.tiers)),
        ):  # fmt: skip
            wrong = np.flatnonzero((a[column] < 0) | (a[column] >= many))
            if len(wrong):
                row = a[wrong[0]]
                line = f" in line {row['line']}" if row["line"] else ""
                return f"names {what} {row[column]}{line}, and there are {known}"
        if (np.diff(a["at"]) < 0).any():
            return "plans operators out of order"
        remote = np.asarray(self.remote)
        if len(remote) and (remote.min() < 0 or remote.max() >= t.tensors):
            return f"leaves a tensor below that is none: {remote.min()} to {remote.max()}, and there are {t.tensors}"
        if len(remote) and not view.tiers:
            return "leaves tensors in host memory, which this machine does not have"
        return ""

    @staticmethod
    def of(rows: Iterable[tuple[int, int, int] | tuple[int, int, int, int]]) -> Schedule:
        """From (operator, verb, tensor) or (operator, verb, tensor, tier); sorted by operator, stable."""
        table = np.array([(*(*row, 0, 0)[:4], 0) for row in rows], ACTION)
        return Schedule(table[np.argsort(table["at"], kind="stable")])


NOTHING = Schedule(np.zeros(0, ACTION))

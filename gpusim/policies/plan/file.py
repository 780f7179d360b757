"""What a file says: CSV with the columns operator, action (evict, prefetch or remote), tensor and, where it matters, tier.

path  the file, relative to the experiment or to the current folder

An action is carried out when the host comes to its operator, before what the operator itself needs; actions of one operator in
the order of the file.  A tier is the name or number of one of the run's tiers; without it the nearest with room is taken.
`remote`, of operator 0, leaves a tensor in the nearest tier for good: kernels read and write it there.
Refused with their line are operators, tensors and tiers that do not exist, the eviction of a tensor that is not there, and
prefetches that cannot all be there at once.  `gpusim plan` writes what any plan policy decides as such a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.base.errors import PolicyError, TraceError
from gpusim.base.units import show_bytes
from gpusim.policies.planning import ACTION, EVICT, PREFETCH, Schedule, View
from gpusim.trace.importers.csv_table import CsvTable
from gpusim.trace.trace import ALLOC, FREE, I64, OP
from gpusim.trace.workload import ROUND

PARAMS = {"path": ""}
KNOWS = "future"
COLUMNS = ("operator", "action", "tensor", "tier")
REMOTE = -1
VERBS = {"evict": EVICT, "prefetch": PREFETCH, "remote": REMOTE}


def plan(view: View, path: str = "") -> Schedule:
    if not path:
        raise PolicyError("policy 'file' needs the name of its file", hint="write file(path=plan.csv)")
    try:
        data = Path(path).expanduser().read_bytes()
    except OSError as error:
        raise PolicyError(f"the plan cannot be read: {error.strerror or error}", path) from None
    if not data.strip():
        raise TraceError("the plan is empty", path, "its first line names the columns: " + ",".join(COLUMNS))
    rows = _read(CsvTable(data, path, required=COLUMNS[:3], optional=COLUMNS[3:], strict=True), view)
    remote = rows["unit"][rows["verb"] == REMOTE]
    rows = rows[rows["verb"] != REMOTE]
    rows = rows[np.argsort(rows["at"], kind="stable")]
    _check(rows, view, path)
    return Schedule(rows, np.unique(remote))


def written(schedule: Schedule, tiers: Sequence[str]) -> str:
    """A schedule as such a file; `tiers` are the names of the run's tiers."""
    words, names = {verb: word for word, verb in VERBS.items()}, ["", *tiers]
    rows = [f"0,remote,{unit}," for unit in schedule.remote.tolist()]
    rows += [f"{at},{words[verb]},{unit},{names[to]}" for at, verb, unit, to, _ in schedule.actions.tolist()]
    return "\n".join([",".join(COLUMNS), *rows]) + "\n"


def _read(table: CsvTable, view: View) -> Any:
    t, names = view.work.trace, [tier.name for tier in view.tiers]
    tiers = {"": 0, **{name: i + 1 for i, name in enumerate(names)}, **{str(i + 1): i + 1 for i in range(len(names))}}
    found = []
    for row in table:
        numbers = {"operator": t.ops, "tensor": t.tensors}
        for column, many in numbers.items():
            if not 0 <= table.whole(row, column) < many:
                raise table.error(f"there is no {column} {row[column]}: {t.name} has {many:,}", "they are counted from 0")
        if row.get("tier", "") not in tiers:
            raise table.error(f"there is no tier '{row['tier']}' in this run", "its tiers: " + (", ".join(names) or "none"))
        verb = VERBS[table.known(row["action"], {word: word for word in VERBS})]
        if verb == REMOTE and int(row["operator"]):
            raise table.error("'remote' holds for the whole program, not for an operator", "write operator 0")
        found.append((int(row["operator"]), verb, int(row["tensor"]), tiers[row.get("tier", "")], table.line))
    return np.array(found, ACTION)


def _check(rows: Any, view: View, path: str) -> None:
    """Raises TraceError at the first row that no run can carry out.

    Followed is what the plan itself swaps out and in, and waits for; what the evict policy does beside it is not known.
    """
    work = view.work
    born, died = _lives(work.trace)
    uses = _Uses(work.acc_start, work.acc_unit, work.trace.tensors)
    size = -(-work.trace.size // ROUND) * ROUND
    gone: dict[int, int] = {}    # tensor -> operator before which it left
    coming: dict[int, int] = {}  # tensor -> operator before which it was brought in, while it has not been used since
    own: set[int] = set()        # what the operator uses
    now = -1
    for at, verb, unit, _, line in rows.tolist():
        where = f"{path}:{line}"
        if at != now:
            now, own = at, set(work.acc_unit[work.acc_start[at] : work.acc_start[at + 1]].tolist())
            coming = {u: o for u, o in coming.items() if died[u] > at and not uses.between(u, o, at)}
        if not born[unit] <= at < died[unit]:
            when = "after it was freed" if at >= died[unit] else "before it is allocated"
            raise TraceError(f"operator {at} comes to tensor {unit} {when}", where)
        if verb == EVICT:
            if unit in gone and not uses.between(unit, gone[unit], at):
                raise TraceError(f"tensor {unit} is not there: it left before operator {gone[unit]}", where)
            gone[unit] = at
            coming.pop(unit, None)
            continue
        gone.pop(unit, None)
        coming[unit] = at
        together = int(size[list(own.union(coming))].sum())
        if together > view.capacity:
            raise TraceError(
                f"tensor {unit}, what operator {at} uses and what else was brought in for later are {show_bytes(together)}, "
                f"more than the {show_bytes(view.capacity)} of memory", where,
            )  # fmt: skip


class _Uses:
    """When each tensor is used."""

    def __init__(self, start: I64, unit: I64, tensors: int) -> None:
        order = np.argsort(unit, kind="stable")
        self._op = np.repeat(np.arange(len(start) - 1), np.diff(start))[order]
        self._first = np.searchsorted(unit[order], np.arange(tensors + 1))

    def between(self, tensor: int, begin: int, end: int) -> bool:
        """Whether an operator from `begin` up to and without `end` uses the tensor."""
        ops = self._op[self._first[tensor] : self._first[tensor + 1]]
        at = int(np.searchsorted(ops, begin))
        return at < len(ops) and int(ops[at]) < end


def _lives(trace: Any) -> tuple[I64, I64]:
    """For each tensor the first operator that finds it allocated, and the first that finds it freed."""
    op = np.cumsum(trace.kind == OP)
    born, died = np.zeros(trace.tensors, np.int64), np.full(trace.tensors, trace.ops + 1, np.int64)
    for kind, table in ((ALLOC, born), (FREE, died)):
        at = trace.kind == kind
        table[trace.arg[at]] = op[at]
    return born, died

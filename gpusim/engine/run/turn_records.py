"""What a policy of kind tenants has decided, as records of the programs' event logs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.policies.tenant_memory import TenantTurn
from gpusim.results.log import BEGAN, GIVEN, LEAVES, LIMITED, LOG, TURN


class TurnRecords:
    """The records of so many programs' turns."""

    def __init__(self, programs: int) -> None:
        self._rows: list[list[tuple[int, int, int, int, int, int]]] = [[] for _ in range(programs)]
        self._decisions, self._open, self._since = 0, -1, 0

    def gave(self, now: int, made: TenantTurn, ns: int, stop: int, *, moves: bool) -> None:
        """A decision at `now`: a turn of at most so many ns, to this operator; moves: programs' memory does before it."""
        k = self._decisions
        for number, size in made.leave.items():
            self._rows[number].append((now, TURN, LEAVES, k, -1, size))
        for number, limit in made.limits.items():
            self._rows[number].append((now, TURN, LIMITED, k, -1, limit))
        self._rows[made.tenant].append((now, TURN, GIVEN, k, stop or -1, ns))
        self._decisions, self._open, self._since = k + 1, made.tenant if moves else -1, now

    def began(self, turns: npt.NDArray[Any]) -> None:
        """When the last turn of each program began: that of the last decision is told, if memory moved before it."""
        p = self._open
        if p >= 0 and turns[p] >= self._since:
            self._rows[p].append((int(turns[p]), TURN, BEGAN, self._decisions - 1, -1, 0))
        self._open = -1

    def into(self, log: npt.NDArray[Any], p: int) -> npt.NDArray[Any]:
        """The log of the p-th program with its records, each behind all of its time."""
        rows = np.array(sorted(self._rows[p], key=lambda row: (row[0], row[3])), LOG)
        return np.insert(log, np.searchsorted(log["t"], rows["t"], side="right"), rows)

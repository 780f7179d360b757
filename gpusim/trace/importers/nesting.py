"""Which operator of the host a moment belongs to: ranges of a thread nest, and the innermost one counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpusim.trace.importers.kineto_events import HostOperator


class Nesting:
    """The operators of a profile as a forest; `parent` of each is an index, -1 at the top."""

    def __init__(self, operators: Sequence[HostOperator]) -> None:
        self._operators = operators
        self._of_thread: dict[Any, list[int]] = {}
        for i, operator in enumerate(operators):
            self._of_thread.setdefault(operator.thread, []).append(i)
        self.parent = [-1] * len(operators)
        for rows in self._of_thread.values():
            open_: list[int] = []
            for i in rows:
                self._close(open_, operators[i].start)
                self.parent[i] = open_[-1] if open_ else -1
                open_.append(i)

    def innermost(self, moments: Iterable[tuple[int, Any]]) -> list[int]:
        """The operator that runs at each (time, thread), -1 for none; the moments of a thread stand in order of time."""
        reached: dict[Any, tuple[int, list[int]]] = {}
        found = []
        for time, thread in moments:
            rows = self._of_thread.get(thread, [])
            at, open_ = reached.get(thread, (0, []))
            while at < len(rows) and self._operators[rows[at]].start <= time:
                self._close(open_, self._operators[rows[at]].start)
                open_.append(rows[at])
                at += 1
            self._close(open_, time)
            reached[thread] = at, open_
            found.append(open_[-1] if open_ else -1)
        return found

    def outermost(self, operator: int) -> int:
        while operator >= 0 and self.parent[operator] >= 0:
            operator = self.parent[operator]
        return operator

    def _close(self, open_: list[int], time: int) -> None:
        while open_ and self._operators[open_[-1]].end < time:
            open_.pop()

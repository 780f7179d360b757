"""Jobs, and pairs of jobs, that may have a round, in columns: rates, shares, time had, deficits, priorities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpusim.policies.clusters import F64, I64, Shares, Together

FIRST = 1e9  # times the share: the priority of what has had no time


class TogetherTable:
    """A row is a job alone (b = -1) or a pair a < b; rows stay in the order in which they came.

    kinds, jobs  how many; initial: s that a job counts as having had before it ran
    """

    def __init__(self, kinds: int, jobs: int, initial: float) -> None:
        self._jobs, self._initial, self._rows = jobs, initial, 0
        self._a: I64 = np.empty(64, np.int64)
        self._b: I64 = np.empty(64, np.int64)
        self._code: I64 = np.empty(64, np.int64)
        self._rate: F64 = np.empty((2, 64, kinds))  # of both jobs; of a job alone twice the same
        self._share: F64 = np.empty((64, kinds))
        self._had: F64 = np.empty((64, kinds))
        self._deficit: F64 = np.empty((64, kinds))
        self._priority: F64 = np.empty((64, kinds))
        self._asked = np.empty(64, np.bool_)  # whether the row was there when shares were asked for
        self._runs = np.empty((64, kinds), np.bool_)
        self._found: dict[Together, int] = {}  # rows that were looked up, as long as none has left
        self._speeds: dict[Together, list[tuple[float, ...]]] = {}
        self._total: F64 = np.zeros(kinds)  # had by all

    def _codes(self, a: int, b: int) -> int:
        """Rises with the rows: the later job, then its partner."""
        return a * (self._jobs + 1) if b < 0 else b * (self._jobs + 1) + a + 1

    def _grow(self) -> None:
        if self._rows < len(self._a):
            return
        for name in ("_a", "_b", "_code", "_share", "_had", "_deficit", "_priority", "_asked", "_runs"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.empty_like(old)]))
        self._rate = np.concatenate([self._rate, np.empty_like(self._rate)], axis=1)

    def add(self, a: int, b: int, rates: Sequence[float], others: Sequence[float] | None) -> None:
        """A job (b = -1), or a pair with the rates of both."""
        self._grow()
        i = self._rows
        self._rows += 1
        at = (a,) if b < 0 else (a, b)
        self._speeds[at] = [tuple(pair[: len(at)]) for pair in zip(rates, rates if others is None else others, strict=True)]
        self._a[i], self._b[i], self._code[i] = a, b, self._codes(a, b)
        self._rate[0, i], self._rate[1, i] = rates, rates if others is None else others
        self._runs[i] = (self._rate[0, i] > 0.0) & (self._rate[1, i] > 0.0)
        self._share[i] = self._deficit[i] = self._priority[i] = 0.0
        self._had[i] = self._initial if b < 0 else 0.0
        self._asked[i] = False

    def remove(self, job: int) -> None:
        """The job and all its pairs."""
        n = self._rows
        self._found.clear()
        keep = np.flatnonzero((self._a[:n] != job) & (self._b[:n] != job))
        self._rows = m = len(keep)
        for name in ("_a", "_b", "_code", "_share", "_had", "_deficit", "_priority", "_asked", "_runs"):
            column = getattr(self, name)
            column[:m] = column[:n][keep]
        self._rate[:, :m] = self._rate[:, :n][:, keep]

    def _row(self, jobs: Together) -> int:
        """-1: not there."""
        if (known := self._found.get(jobs)) is not None:
            return known
        a, b = jobs[0], jobs[1] if len(jobs) > 1 else -1
        code = self._codes(a, b)
        i = int(np.searchsorted(self._code[: self._rows], code))
        if i < self._rows and self._code[i] == code:
            self._found[jobs] = i
            return i
        return -1

    def knows(self, jobs: Together) -> bool:
        """Whether there is such a row."""
        whole = all(isinstance(job, int) for job in jobs) and len(jobs) in (1, 2)
        return whole and (len(jobs) == 1 or 0 <= jobs[0] < jobs[1]) and jobs[0] >= 0 and self._row(jobs) >= 0

    def spend(self, jobs: Together, kind: int, seconds: float) -> None:
        """The row has had so much time on this type; a row whose job has just left no longer counts, nor for all."""
        if (i := self._row(jobs)) >= 0:
            self._had[i, kind] += seconds
            self._total[kind] += seconds

    def restart(self, elapsed: float) -> None:
        """Time had counts from zero; what a row lacks of its share stays as a deficit."""
        n = self._rows
        due = np.where(self._asked[:n, None], self._share[:n] * elapsed, 0.0)
        self._deficit[:n] += due - (self._had[:n] - self._initial)
        self._had[:n] = self._initial
        self._total[:] = n * self._initial

    def share(self, shares: Shares, kinds: Sequence[str]) -> None:
        """New shares of time for all rows that there are."""
        n = self._rows
        self._share[:n], self._asked[:n] = 0.0, True
        for row, parts in shares.items():
            self._share[self._row(row)] = [parts.get(kind, 0.0) for kind in kinds]

    def prioritise(self) -> None:
        """Share over the part of all time had."""
        n = self._rows
        share, had = self._share[:n], self._had[:n]
        part = np.divide(had, self._total, out=np.zeros_like(had), where=self._total != 0.0)
        made = share * FIRST
        np.divide(share, part, out=made, where=part > 0.0)
        made[~(self._asked[:n, None] & self._runs[:n])] = 0.0
        self._priority[:n] = made

    def ranked(self, kind: int, all_rows: bool) -> Iterator[Together]:
        """Rows that can run there, the highest priority first, then deficit, then share; `all_rows`: those without one, too."""
        n = self._rows
        rank = self._priority[:n, kind]
        rows = np.flatnonzero(self._runs[:n, kind] if all_rows else rank > 0.0)
        if not rows.size:
            return
        order = rows[np.lexsort((-self._share[rows, kind], -self._deficit[rows, kind], -rank[rows]))]
        for a, b in zip(self._a[order].tolist(), self._b[order].tolist(), strict=True):
            yield (a,) if b < 0 else (a, b)

    def shared(self, jobs: Together) -> bool:
        """Whether the row was there when shares were last asked for."""
        return bool(self._asked[self._row(jobs)])

    def rates(self, jobs: Together, kind: int) -> tuple[float, ...]:
        """Steps/s of each job of the row."""
        return self._speeds[jobs][kind]

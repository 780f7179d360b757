"""Several jobs that share spare nodes: what one takes is not there for the others, what is repaired any of them may take.

All stand at one time.  At equal times the job that comes first in the list goes first; nodes that come back are offered in that
order to jobs that wait for some.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from gpusim.base.compiled import direct
from gpusim.base.errors import GpusimError
from gpusim.engine.failures import tables as t
from gpusim.engine.failures.loop import next_event, offered
from gpusim.engine.failures.run import FailingRun
from gpusim.engine.failures.tables import NEVER


class SharedSpares:
    """Runs that have not begun, and nodes that stand by for all.  Raises GpusimError for runs with some of their own."""

    def __init__(self, runs: Sequence[FailingRun], spare: int) -> None:
        if any(run.job.spare for run in runs):
            raise GpusimError("jobs that share spare nodes have none of their own", hint="spare=0 of each job")
        if spare < 0:
            raise GpusimError(f"{spare} spare nodes are none")
        self.runs, self.spare = tuple(runs), spare
        for run in runs:
            run.share(sum(each.job.nodes for each in runs) + spare)
        self.ended = [False] * len(runs)
        self.coming_back: list[int] = []  # a heap of when nodes come back that jobs had which have ended, ns

    @property
    def now(self) -> int:
        """Simulated time, ns."""
        return max(run.now for run in self.runs)

    def advance(self, until: int = NEVER - 1) -> bool:
        """All that happens up to `until` ns; whether all jobs have ended.  Raises GpusimError for jobs that wait for ever."""
        while not all(self.ended):
            next_of = [NEVER if done else self._next(run) for run, done in zip(self.runs, self.ended, strict=True)]
            at = min([*next_of, *self.coming_back[:1]])
            if at >= NEVER // 2:
                raise GpusimError("jobs wait for nodes for ever", hint="more spare nodes, a time of repair, or `least`")
            if at > until:
                return False
            if self.coming_back and self.coming_back[0] == at:
                self.spare += 1
                heapq.heappop(self.coming_back)
            else:
                self._step(next_of.index(at), at)
            self._offer(at)
        return True

    def _next(self, run: FailingRun) -> int:
        return int(direct(next_event)(run.tables))

    def _step(self, which: int, at: int) -> None:
        run = self.runs[which]
        course = run.tables.course[0]
        course["spare"] = self.spare
        reason = run.advance(at)
        self.spare, course["spare"] = int(course["spare"]), 0
        if reason == t.FINISHED:
            self.ended[which] = True
            self.spare += int(course["used"])
            for back in run.tables.repairs[: int(course["broken"])].tolist():
                heapq.heappush(self.coming_back, back)

    def _offer(self, at: int) -> None:
        for run, done in zip(self.runs, self.ended, strict=True):
            course = run.tables.course[0]
            if self.spare and not done and course["phase"] == t.SHORT:
                course["spare"] = self.spare
                self.spare = int(direct(offered)(run.tables, at))
                course["spare"] = 0

"""Programs that a policy gives turns on one GPU: was each turn asked for, given as the policy's rule has it, and kept?

Who has something to run follows from the logs, and with it when the policy is asked: when a turn is over, and when other
programs than before have something to run.  A turn begins when memory has moved for it and the multiprocessors have passed on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gpusim.base.units import show_bytes
from gpusim.machine.tenancy import Switch
from gpusim.referee.activities import NEVER
from gpusim.referee.ends import Started
from gpusim.referee.given_turns import GivenTurn, TurnRules
from gpusim.referee.report import Findings
from gpusim.referee.turn_rules import DEFAULTS, Turn, TurnAsked, expected
from gpusim.trace.trace import I64, KERNEL

RUNS, PASSES_ON, SHEDS, MOVES = range(4)  # what the device does: a turn, or before it


class Presence(NamedTuple):
    """Of a program in time: ready, wants, end  of its kernels, ascending: when each would be ready but for the gap between two
    launches, is ready with it, and ends
    taken, left   multiprocessors that kernels have taken after each start, and left after each end
    kernel, newest  (starts, the highest operator so far), of kernels and of all that has begun
    ended         when it came to its end
    """

    ready: I64
    wants: I64
    end: I64
    taken: I64
    left: I64
    kernel: tuple[I64, I64]
    newest: tuple[I64, I64]
    limit: int
    ended: int

    def busy(self, now: int) -> bool:
        """Something runs or would, but for the gap between two launches."""
        return now < self.ended and _upto(self.ready, now) > _upto(self.end, now)

    def processors(self, now: int) -> int:
        """Multiprocessors that its kernels have."""
        took, gave = self.taken[_upto(self.kernel[0], now)], self.left[_upto(self.end, now)]
        return int(min(self.limit, took - gave)) if now < self.ended else 0

    def begun(self, now: int) -> int:
        """The highest operator that has begun, -1 before any."""
        at = _upto(self.newest[0], now)
        return int(self.newest[1][at - 1]) if at else -1

    def runs_from(self, operator: int, now: int) -> bool:
        """A kernel runs, and one has begun that is this operator or a later one."""
        at = _upto(self.kernel[0], now)
        return operator > 0 and now < self.ended and at > _upto(self.end, now) and int(self.kernel[1][at - 1]) >= operator


def _upto(times: I64, now: int) -> int:
    """How many of these are not later."""
    return int(np.searchsorted(times, now, side="right"))


class ProgramMoved(NamedTuple):
    """Memory of whole programs that moved for a turn of `to`, from `at` to `until`, ns: bytes that left, then that came."""

    at: int
    to: int
    left: int
    came: int
    until: int
    record: int


def presence(run: Started, ended: int) -> Presence:
    """Of a program that came to its end at this time."""
    acts = run.acts
    there = acts.start < NEVER
    rows = np.flatnonzero(np.append(run.trace.activity == KERNEL, False)[acts.op] & there)
    takes = run.n.needs.sms[0][acts.op[rows]].astype(np.int64)
    start, end, began = acts.start[rows], acts.end[rows], there & (acts.op >= 0)
    taken, left = (np.append(0, np.cumsum(takes[np.argsort(times, kind="stable")])) for times in (start, end))
    return Presence(
        np.sort(np.minimum(run.ready.bare[rows], start)), np.sort(np.minimum(run.ready.ready[rows], start)), np.sort(end),
        taken, left, _in_time(start, acts.op[rows]), _in_time(acts.start[began], acts.op[began]), run.n.needs.processors, ended,
    )  # fmt: skip


def _in_time(start: I64, op: I64) -> tuple[I64, I64]:
    order = np.argsort(start, kind="stable")
    return start[order], np.maximum.accumulate(op[order])


class TurnWalk:
    """The turns of all programs, worked out from the decisions of the logs.

    down   when a program has come down to a limit that it is told of at a time
    found  of each program, where what is wrong is said
    parts  of each program, the answer: from when on it has all or nothing of the multiprocessors
    moved  the answer: what moved as a whole for whom
    bounds  of each program, the answer: from when on its blocks may take how many bytes
    """

    def __init__(
        self, each: Sequence[Presence], given: Sequence[GivenTurn], rules: TurnRules, switch: Switch,
        down: Callable[[int, int, int], int], found: Sequence[Findings],
    ) -> None:  # fmt: skip
        self.each, self.given, self.rules, self.switch, self.down, self.found = each, given, rules, switch, down, found
        self.programs = [replace(one) for one in rules.programs]
        self.said = {**DEFAULTS.get(rules.policy, {}), **rules.said}
        count = len(each)
        self.parts: list[list[tuple[int, float]]] = [[(-1, 0.0)] for _ in range(count)]
        self.moved: list[ProgramMoved] = []
        self.phase, self.turn, self.due, self.over, self.last = RUNS, -1, NEVER, False, 0
        self.to: GivenTurn | None = None
        self.until, self.asked = [-1] * count, 0
        self.ready, self.began, self.bound = [False] * count, [0] * count, [0] * count
        self.wanted: list[bool | None] = [False] * count
        self.bounds = [[(-1, one.claim)] for one in self.programs]
        self.after, self.owed, self.stopped = RUNS, dict[int, int](), 0

    def walk(self) -> None:
        """From the first moment to the last."""
        moments = np.unique(np.concatenate([np.concatenate([k.ready, k.wants, k.end, [k.ended]]) for k in self.each]))
        triggers = set(np.concatenate([np.concatenate([k.wants, _idle(k), [k.ended]]) for k in self.each]).tolist())
        times, i = [int(t) for t in moments if t < NEVER], 0
        while i < len(times) or self.due < NEVER or self.last < len(self.given):
            coming = self.given[self.last].at if self.last < len(self.given) else NEVER
            now = min(times[i] if i < len(times) else NEVER, self.due, coming)
            i += i < len(times) and times[i] == now
            self._at(now, now in triggers or now == self.due or now == coming)
            while self.last < len(self.given) and self.given[self.last].at <= now:
                self._unasked(self.given[self.last], now)

    def _at(self, now: int, looks: bool) -> None:
        if self.phase == PASSES_ON:
            if now >= self.due:
                self.phase = self.after
                self._begin(now)
        elif self.phase == SHEDS:
            self._shed(now)
        elif self.phase == MOVES:
            if now >= self.due:
                self._give(now, self.to.tenant if self.to else self.turn, RUNS)
        elif looks:
            self._look(now)

    def _look(self, now: int) -> None:
        busy = [k.busy(now) for k in self.each]
        states = [None if now >= k.ended else here for k, here in zip(self.each, busy, strict=True)]
        p = self.turn
        at_end = p >= 0 and self.each[p].runs_from(self.until[p], now)
        over = p >= 0 and (now >= self.due or at_end)
        if over:
            self.due, self.over = NEVER, True
        if not any(busy):
            self.wanted = states
        elif over or states != self.wanted:
            self.wanted = states
            self._ask(now, busy)

    def _ask(self, now: int, busy: list[bool]) -> None:
        """The policy is asked: what has each had and lost until now, and what has it answered?"""
        running = self.turn
        for p, one in enumerate(self.programs):
            since = min(now, max(self.asked, self.began[p])) if p == running else now
            one.had += now - since
            one.lost += since - self.asked if self.ready[p] else 0
        self.asked, self.ready = now, busy
        ends = running >= 0 and self.until[running] > 0 and self.each[running].begun(now) >= self.until[running]
        if ends:
            self.programs[running].here = min(self.programs[running].here, self.programs[running].lasting)
        there = {p: one for p, one in enumerate(self.programs) if now < self.each[p].ended}
        ready = frozenset(p for p in there if busy[p])
        asked = TurnAsked(now, self.rules.capacity, there, ready, running, self.over or ends, self.said)
        made = self.given[self.last] if self.last < len(self.given) and self.given[self.last].at == now else None
        if self.rules.policy in DEFAULTS:
            self._compare(now, asked, made, expected(self.rules.policy, asked))
        elif self.rules.rule is not None:
            self._compare(now, asked, made, self.rules.rule(asked))
        if made is None:
            if ends:
                self.programs[running].here = self.programs[running].limit
            return
        self.last += 1
        self._fits(asked, made)
        if running not in (-1, made.tenant):
            self.programs[running].last = now
        self._order(now, made)

    def _compare(self, now: int, asked: TurnAsked, made: GivenTurn | None, due: Turn | None) -> None:
        self.found[0].count("turns of a policy", 1)
        if made is None and due is not None:
            self.found[due.tenant].say(-1, f"program {due.tenant} is given no turn at {now} ns", f"one, by {self.rules.policy}")
        elif made is not None and due is None:
            self._say(made, f"program {made.tenant} is given a turn at {now} ns", f"none, by {self.rules.policy}")
        elif made is not None and due is not None:
            until = self._stop(due.tenant, due.iterations, now) if due.iterations else -1
            was = (made.tenant, made.ns, made.until, made.leave, made.limits)
            right = (due.tenant, round(due.ns), until, dict(due.leave), dict(due.limits))
            names = ("tenant", "ns", "last operator", "bytes that leave", "limits")
            for name, one, other in zip(names, was, right, strict=True):
                if one != other:
                    what = f"{name} of the turn at {now} ns: {one}"
                    self._say(made, what, f"{other}, by {self.rules.policy}")
                    return

    def _stop(self, p: int, iterations: int, now: int) -> int:
        """The operator with which so many more iterations of a program are over, -1: none is."""
        starts = self.programs[p].starts
        at = bisect_right(starts, max(0, self.each[p].begun(now))) - 1 + iterations
        return starts[at] if at < len(starts) else -1

    def _fits(self, asked: TurnAsked, made: GivenTurn) -> None:
        """Nothing leaves that is not there, no limit is too small, and all has room."""
        for p, size in made.leave.items():
            here = asked.programs[p].here if p in asked.programs and p != made.tenant else 0
            if size > here:
                self._say(made, f"{size} bytes of program {p} leave", f"{here} at most")
        for p, limit in made.limits.items():
            if not self.programs[p].least <= limit <= self.programs[p].claim:
                least, most = self.programs[p].least, self.programs[p].claim
                self._say(made, f"program {p} is limited to {limit} bytes", f"{least}, its largest operator, to {most}")
        total = 0
        for p, one in asked.programs.items():
            limit = made.limits.get(p, one.limit)
            total += limit if p == made.tenant else min(one.here, limit) - made.leave.get(p, 0)
        if total > self.rules.capacity:
            self._say(made, f"the programs have {show_bytes(total)} in this turn", show_bytes(self.rules.capacity))

    def _order(self, now: int, made: GivenTurn) -> None:
        """Memory moves, then the turn begins."""
        for p, size in made.leave.items():
            self.programs[p].here -= size
            self.programs[p].away += size
        self.owed = dict[int, int]()
        for p, limit in made.limits.items():
            one = self.programs[p]
            if limit != one.limit:
                one.limit, one.here = limit, min(one.here, limit)
                lower = self.bound[p] == 0 or limit < self.bound[p]
                if lower:
                    self.owed[p] = max(now, self.down(p, now, limit))
                self.bounds[p].append((self.owed[p] if lower else now, limit))
                self.bound[p] = limit
        mine = self.programs[made.tenant]
        self.stopped = mine.away
        mine.here, mine.away = mine.limit, 0
        self.until[made.tenant] = made.until
        self.to, self.due, self.phase = made, NEVER, SHEDS
        self._shed(now)

    def _shed(self, now: int) -> None:
        """Programs above their new limits have the GPU, one after the other, until they are down."""
        assert self.to is not None
        q = next((p for p, time in sorted(self.owed.items()) if now < time and now < self.each[p].ended), -1)
        if q >= 0:
            self.due = self.owed[q]
            if self.turn != q:
                self._give(now, q, SHEDS)
            return
        to, came = self.to, self.stopped
        if self.turn == to.tenant and not came:
            self.phase, self.over, self.due = RUNS, False, now + to.ns
            self._hand(now, to.tenant, 1.0)
            return
        if self.turn >= 0:
            self._hand(now, self.turn, 0.0)
        left = sum(to.leave.values())
        if not left + came:
            self._give(now, to.tenant, RUNS)
            return
        self.phase, self.due = MOVES, to.began
        if to.began < NEVER:
            self.due -= self._cost(now, to.tenant)
        self.moved.append(ProgramMoved(now, to.tenant, left, came, self.due, to.record))

    def _cost(self, now: int, p: int) -> int:
        """ns for which the multiprocessors pass from the program that has them to this one."""
        if self.turn in (-1, p):
            return 0
        here = sum(self.each[q].processors(now) for q in (self.turn, p))
        return round(self.switch.fixed + self.switch.of_a_processor * here)

    def _give(self, now: int, p: int, then: int) -> None:
        """The multiprocessors pass to a program, which runs then or sheds."""
        cost, self.after = self._cost(now, p), then
        if self.turn not in (-1, p):
            self._hand(now, self.turn, 0.0)
        self.turn, self.over = p, False
        if cost:
            self.phase, self.due = PASSES_ON, now + cost
        else:
            self.phase = self.after
            self._begin(now)

    def _begin(self, now: int) -> None:
        self.began[self.turn] = now
        self._hand(now, self.turn, 1.0)
        if self.phase == SHEDS:
            self.due = self.owed.get(self.turn, now)
        else:
            self.due = now + (self.to.ns if self.to is not None else NEVER)

    def _hand(self, now: int, p: int, part: float) -> None:
        if self.parts[p][-1][1] != part:
            self.parts[p].append((now, part))

    def _unasked(self, made: GivenTurn, now: int) -> None:
        what = f"program {made.tenant} is given a turn at {made.at} ns"
        self._say(made, what, "none: nothing had changed, and no turn was over")
        self.last += 1
        self._order(now, made)

    def _say(self, made: GivenTurn, what: str, due: str) -> None:
        self.found[made.tenant].say(made.record, what, due)


def _idle(k: Presence) -> I64:
    """When kernels end and none runs any more."""
    ends = np.unique(k.end)
    running = np.searchsorted(k.kernel[0], ends, side="right") > np.searchsorted(k.end, ends, side="right")
    return ends[~running]

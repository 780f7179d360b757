"""The least recomputation with which a small program fits, exactly: a best-first search over what is there.

A state is how far the schedule has come, and which of the tensors that can be recomputed are there.  From it the next operator
runs, or any operator runs again, after dropping just enough for it.  Running again costs its time, the rest costs nothing.
States come in the order of their cost, so one that has no tensor which an earlier one at the same place lacks is of no use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np

from gpusim.policies.plan.parts.recompute.from_trace import Traced
from gpusim.policies.plan.parts.recompute.problem import COMPUTE, PIN, RELEASE
from gpusim.policies.plan.parts.recompute.state import AGAIN, CHOSEN, EAGER, EVENT, FIRST

EventRow = tuple[int, int, int]  # as tables.EVENT


@dataclass(frozen=True)
class Optimum:
    """status  "ok"; "oom": nothing fits; "given up": more states than allowed
    cost       ns of recomputation
    log        tables.EVENT rows, for `rewrite`"""

    status: str
    cost: int = 0
    log: Any = None


def optimum(traced: Traced, budget: int, states: int = 100_000) -> Optimum:
    """The program within `budget` bytes, looking at so many states at most."""
    search = _Search(traced, budget)
    came: list[tuple[int, list[EventRow]]] = [(-1, [])]  # of each state: from which, and by what
    open_ = [(0, 0, 0, 0)]  # cost, actions done (negative), state, tensors there
    seen: dict[int, list[int]] = {}  # action -> what was there in states that came before
    while open_:
        cost, done, state, there = heappop(open_)
        at = search.next_choice(-done, there)
        if at == len(search.verb):
            return Optimum("ok", cost, search.log(_path(came, state)))
        if any(there & known == there for known in seen.get(at, ())):
            continue
        seen.setdefault(at, []).append(there)
        for more, after, now, rows in search.ways(at, there):
            if len(came) == states:
                return Optimum("given up")
            heappush(open_, (cost + more, -after, len(came), now))
            came.append((state, rows))
    return Optimum("oom")


def _path(came: list[tuple[int, list[EventRow]]], state: int) -> list[EventRow]:
    steps = []
    while state >= 0:
        state, rows = came[state]
        steps.append(rows)
    return [row for rows in reversed(steps) for row in rows]


class _Search:
    """The program as a graph of states; sets of tensors are the bits of a number."""

    def __init__(self, traced: Traced, budget: int) -> None:
        p = traced.program
        self.budget = budget
        self.verb, self.arg, self.event = p.verb.tolist(), p.arg.tolist(), traced.event.tolist()
        self.size, self.cost = p.size.tolist(), p.cost.tolist()
        moves, ins, outs = (~p.constant).tolist(), p.in_start.tolist(), p.out_start.tolist()
        ops = range(len(self.cost))
        self.inputs = [_bits(t for t in p.in_id[ins[o] : ins[o + 1]].tolist() if moves[t]) for o in ops]
        self.outputs = [_bits(t for t in range(outs[o], outs[o + 1]) if moves[t]) for o in ops]
        self.need = [sum(self.size[outs[o] : outs[o + 1]]) for o in ops]
        self.ends = [min((int(traced.ends[traced.unit[t]]) for t in _each(made)), default=-1) for made in self.outputs]
        # Before each action: bytes of constants, tensors that are pinned, operators run.
        self.held, self.pinned, self.run = [0], [0], [0]
        for verb, arg in zip(self.verb, self.arg, strict=True):
            constant = (verb == COMPUTE and not self.outputs[arg]) or (verb == RELEASE and not moves[arg])
            here = self.need[arg] if verb == COMPUTE else -self.size[arg]
            self.held.append(self.held[-1] + (here if constant else 0))
            bit = 1 << arg if verb in (PIN, RELEASE) and moves[arg] else 0
            self.pinned.append(self.pinned[-1] | bit if verb == PIN else self.pinned[-1] & ~bit)
            self.run.append(self.run[-1] + (verb == COMPUTE))

    def bytes(self, there: int) -> int:
        return sum(self.size[t] for t in _each(there))

    def next_choice(self, at: int, there: int) -> int:
        """The next action with which something has to be run."""
        while at < len(self.verb):
            verb, arg = self.verb[at], self.arg[at]
            pinning = verb == PIN and self.pinned[at + 1] >> arg & 1
            if verb == COMPUTE or (pinning and not there >> arg & 1):
                break
            at += 1
        return at

    def ways(self, at: int, there: int) -> Iterator[tuple[int, int, int, list[EventRow]]]:
        """(cost, action after it, tensors there after it, rows of the log) of all that can be run next."""
        todo = [(o, AGAIN) for o in range(self.run[at]) if self.outputs[o] & ~there and self.event[at] <= self.ends[o]]
        if self.verb[at] == COMPUTE:
            todo.append((self.arg[at], FIRST))
        used = self.held[at] + self.bytes(there)
        for o, what in todo:
            if self.inputs[o] & ~there:
                continue
            free = sorted(_each(there & ~self.inputs[o] & ~self.pinned[at]), key=lambda t: -self.size[t])
            for gone in self._least(free, used + self.need[o] - self.budget):
                rows = [*((CHOSEN, t, at) for t in gone), (what, o, at)]
                now = there & ~_bits(gone) | self.outputs[o]
                yield (self.cost[o] if what == AGAIN else 0), at + (what == FIRST), now, rows

    def _least(self, free: list[int], short: int) -> Iterator[list[int]]:
        """All sets of these tensors, large ones first, that make up for the bytes and for which no one of them is too many."""
        if short <= 0:
            yield []
            return
        for i, t in enumerate(free):
            for rest in self._least(free[i + 1 :], short - self.size[t]):
                yield [t, *rest]

    def log(self, rows: list[EventRow]) -> Any:
        """The rows in order, where tensors without references leave after their last use, not when room is needed."""
        released = {arg: at for at, (verb, arg) in enumerate(zip(self.verb, self.arg, strict=True)) if verb == RELEASE}
        there = 0
        last: dict[int, int] = {}  # of each tensor there: the latest row that uses it
        leaves: list[tuple[int, int, EventRow]] = []  # action, row before it, row
        kept: list[tuple[int, int, EventRow]] = []

        def leave(t: int, row: int) -> None:
            """The tensor's last use was in this row."""
            what, _, at = rows[row]
            first = max(at + (what == FIRST), released[t])
            if first < len(self.verb):
                leaves.append((first, row, (EAGER, t, first)))

        for n, (what, which, at) in enumerate(rows):
            if what == CHOSEN:
                there &= ~(1 << which)
                if which in released and max(rows[last[which]][2], released[which]) < at:
                    leave(which, last[which])
                else:
                    kept.append((at, n, (what, which, at)))
                continue
            for t in _each(self.inputs[which] | self.outputs[which]):  # what had left before would come back with the others
                last[t] = n
            there |= self.outputs[which]
            kept.append((at, n, (what, which, at)))
        for t in _each(there):
            if t in released:
                leave(t, last[t])
        order = sorted([*kept, *leaves], key=lambda e: (e[0], e[1]))
        return np.array([row for _, _, row in order], EVENT)


def _bits(tensors: Iterable[int]) -> int:
    found = 0
    for t in tensors:
        found |= 1 << t
    return found


def _each(set_: int) -> Iterator[int]:
    while set_:
        low = set_ & -set_
        yield low.bit_length() - 1
        set_ ^= low

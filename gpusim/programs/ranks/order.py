"""Whether ranks that exchange come to an end: streams go on in order, and a collective when all of its ranks have come."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from gpusim.base.errors import TraceError
from gpusim.programs.ranks.matching import Matched
from gpusim.trace.trace import OP, RECORD, SYNC, WAIT, Trace

_Item = tuple[int, int]
"""(OP, the operator), (RECORD or WAIT, the stream event), in a stream's queue."""


class _Rank:
    """One rank's program as far as it can wait: what its host has not issued, and what its streams have not done."""

    def __init__(self, trace: Trace, meets: dict[int, set[int]]) -> None:
        self.meets = meets  # the collectives of each operator that are not done: of a batch of sends and receives several
        here = (trace.kind == RECORD) | (trace.kind == WAIT) | (trace.kind == SYNC)
        issued = np.flatnonzero(trace.kind == OP)[sorted(meets)] if meets else np.zeros(0, np.int64)
        rows = np.sort(np.concatenate([np.flatnonzero(here), issued]))
        self.events = [(int(trace.kind[e]), int(trace.stream[e]), int(trace.arg[e])) for e in rows]
        self.next = 0
        self.streams: dict[int, deque[_Item]] = {}
        self.recorded: set[int] = set()  # stream events that the host has issued and that are not reached yet
        self.at: set[int] = set()  # collectives that it has come to

    def go(self) -> bool:
        """Issue and do what nothing holds up; whether that was anything."""
        went = False
        while True:
            went_now = self._issue()
            for queue in self.streams.values():
                while queue and self._done(*queue[0]):
                    queue.popleft()
                    went_now = True
            went |= went_now
            if not went_now:
                return went

    def _issue(self) -> bool:
        before = self.next
        while self.next < len(self.events):
            kind, stream, arg = self.events[self.next]
            if kind == SYNC and any(self.streams.values()):
                break
            if kind != SYNC:
                self.streams.setdefault(stream, deque()).append((kind, arg))
                self.recorded |= {arg} if kind == RECORD else set()
            self.next += 1
        return self.next > before

    def _done(self, kind: int, arg: int) -> bool:
        if kind == RECORD:
            self.recorded.discard(arg)
        elif kind == OP:
            self.at |= self.meets[arg]
            return not self.meets[arg]
        return kind == RECORD or arg not in self.recorded

    def leave(self, collective: int) -> None:
        """The collective has all of its ranks, and is done."""
        for queue in self.streams.values():
            if queue and queue[0][0] == OP:
                self.meets[queue[0][1]].discard(collective)
        self.at.discard(collective)


def check_order(programs: Sequence[Trace], found: Sequence[Matched]) -> None:
    """Raises TraceError where ranks wait for each other for ever, with the collective and the ranks that each waits for."""
    meets: list[dict[int, set[int]]] = [{} for _ in programs]
    for number, one in enumerate(found):
        for rank, operator in zip(one.ranks, one.operators, strict=True):
            if operator >= 0:
                meets[rank].setdefault(operator, set()).add(number)
    ranks = [_Rank(program, meet) for program, meet in zip(programs, meets, strict=True)]
    needed = [sum(operator >= 0 for operator in one.operators) for one in found]
    come = [0] * len(found)
    waiting = deque(range(len(ranks)))
    while waiting:
        rank = waiting.popleft()
        before = set(ranks[rank].at)
        ranks[rank].go()
        for number in ranks[rank].at - before:
            come[number] += 1
            if come[number] == needed[number]:
                for member, operator in zip(found[number].ranks, found[number].operators, strict=True):
                    if operator >= 0:
                        ranks[member].leave(number)
                        if member not in waiting:
                            waiting.append(member)
    if any(rank.at or rank.next < len(rank.events) for rank in ranks):
        raise TraceError(_standstill(ranks, found), hint="the calls of each rank have to stand in the same order")


def _standstill(ranks: Sequence[_Rank], found: Sequence[Matched]) -> str:
    """Which rank waits in which collective for which others: the shortest ring found."""
    said, seen = [], set[int]()
    rank = next(i for i, one in enumerate(ranks) if one.at)
    while rank not in seen:
        seen.add(rank)
        number = min(ranks[rank].at)
        one = found[number]
        operator = one.operators[one.ranks.index(rank)]
        other = next(
            member for member, op in zip(one.ranks, one.operators, strict=True) if op >= 0 and number not in ranks[member].at
        )
        said.append(f"rank {rank} waits in {one.kind} of {one.size} bytes (its operator {operator}) for rank {other}")
        if not ranks[other].at:
            break
        rank = other
    return f"ranks wait for each other for ever: {', '.join(said[:4])}{', ...' if len(said) > 4 else ''}"

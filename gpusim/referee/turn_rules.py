"""Whose turn is next, by the policies of kind tenants that ship: each rule written down a second time.

A rule reads what is known of the programs and answers the turn that the policy has to give, or None where all stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

WITHOUT_END = 1e18  # ns
SLICE, QUANTUM = {"slice_ms": 1.024}, "quantum"
DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "first_come": SLICE, "priority": SLICE, "antman": SLICE, "tgs": {**SLICE, "loss": 0.05}, "nvshare": {QUANTUM: 30.0},
    "msched": {QUANTUM: 1.0}, "suspend_resume": {QUANTUM: 60.0}, "salus": {"iterations": 1},
}  # fmt: skip


@dataclass
class ProgramMemory:
    """A program's memory and turns so far.

    claim, least, lasting  bytes that it needs while it runs, for its largest operator, from one iteration to the next
    starts  of each iteration its first operator
    limit   bytes that it may have; here: that it has; away: that are to come back
    had, lost  ns of turns, and without one although there was something to run; last: when its last turn ended
    """

    claim: int
    least: int = 0
    lasting: int = 0
    starts: tuple[int, ...] = (0,)
    limit: int = 0
    here: int = 0
    away: int = 0
    had: int = 0
    lost: int = 0
    last: int = 0


@dataclass(frozen=True)
class TurnAsked:
    """What is asked at `now`: programs that have not ended, by number; which have something to run; whose turn it is, or -1."""

    now: int
    capacity: int
    programs: Mapping[int, ProgramMemory]
    ready: frozenset[int]
    running: int
    over: bool
    said: Mapping[str, float]

    def free(self) -> int:
        """Bytes that none of them has."""
        return self.capacity - sum(one.here for one in self.programs.values())

    def ring(self) -> list[int]:
        """Those with something to run: the ones behind the running one, then the ones before, itself at last."""
        return sorted(p for p in self.ready if p > self.running) + sorted(p for p in self.ready if p <= self.running)

    def keeps(self) -> bool:
        """The turn is not over, and its program has not ended."""
        return self.running in self.programs and not self.over

    def making_room(self, p: int, order: Iterable[int], *, whole: bool = False) -> dict[int, int] | None:
        """What leaves for a program, from others in this order; None: they have too little."""
        lacks, leaves = self.programs[p].limit - self.programs[p].here - self.free(), dict[int, int]()
        for q in order:
            here = self.programs[q].here
            if q == p or not here or lacks <= 0:
                continue
            leaves[q] = here if whole else min(here, lacks)
            lacks -= leaves[q]
        return None if lacks > 0 else leaves


@dataclass(frozen=True)
class Turn:
    """Whose, for how many ns; bytes that leave; new limits; iterations, 0: as many as there are."""

    tenant: int
    ns: float
    leave: Mapping[int, int] = field(default_factory=dict)
    limits: Mapping[int, int] = field(default_factory=dict)
    iterations: int = 0


Rule = Callable[[TurnAsked], Turn | None]


def expected(policy: str, asked: TurnAsked) -> Turn | None:
    """What this policy has to answer.  KeyError for one that does not ship."""
    return _RULES[policy](asked)


def _first_come(asked: TurnAsked) -> Turn | None:
    if asked.keeps() and asked.running in asked.ready:
        return None
    without = min((p for p, one in asked.programs.items() if not one.here), default=-1)
    for p in asked.ring():
        if asked.programs[p].here or (p == without and asked.programs[p].claim <= asked.free()):
            return Turn(p, asked.said["slice_ms"] * 1e6)
    return None


def _in_quanta(order: Callable[[TurnAsked, int], Iterable[int]], *, whole: bool = False) -> Rule:
    """Turns of a quantum in a ring; others' memory leaves in an order."""

    def rule(asked: TurnAsked) -> Turn | None:
        for p in () if asked.keeps() else asked.ring():
            leaves = asked.making_room(p, order(asked, p), whole=whole)
            if leaves is not None:
                return Turn(p, asked.said[QUANTUM] * 1e9, leaves)
        return None

    return rule


def _longest_away(asked: TurnAsked, _: int) -> list[int]:
    """The one whose last turn ended first leaves first, the running one last."""
    return sorted(asked.programs, key=lambda q: (q == asked.running, asked.programs[q].last))


def _farthest_ahead(asked: TurnAsked, p: int) -> list[int]:
    """The one whose next turn comes last leaves first; those with nothing to run before."""
    ring = asked.ring()
    following = ring[ring.index(p) + 1 :] + ring[: ring.index(p)]
    return sorted(asked.programs, key=lambda q: -(following.index(q) if q in following else len(following)))


def _priority(asked: TurnAsked) -> Turn | None:
    for p in sorted(asked.ready):
        if p == asked.running and not asked.over:
            return None
        leaves = asked.making_room(p, [q for q in sorted(asked.programs, reverse=True) if q > p])
        if leaves is not None:
            return Turn(p, asked.said["slice_ms"] * 1e6, leaves)
    return None


def _salus(asked: TurnAsked) -> Turn | None:
    if asked.keeps():
        return None
    for p in sorted(asked.ready, key=lambda p: (asked.programs[p].had, p)):
        if asked.programs[p].claim - asked.programs[p].here <= asked.free():
            return Turn(p, WITHOUT_END, iterations=int(asked.said["iterations"]))
    return None


def _beside_the_first(spared: Callable[[TurnAsked, int], bool]) -> Rule:
    """The first program keeps its memory, the others have what it leaves; spared: it need not have this turn."""

    def rule(asked: TurnAsked) -> Turn | None:
        first, running = min(asked.programs), asked.running
        gives_way, used, limits = spared(asked, first), 0, dict[int, int]()
        for p, one in asked.programs.items():
            kept = sum(other.least for q, other in asked.programs.items() if q > p and other.here)
            limit = min(one.claim, asked.capacity - used - kept)
            if (p in asked.ready or one.here) and limit >= one.least:
                limits[p] = limit
                used += limit
        if asked.keeps() and (running == first or (running in asked.ready and gives_way)):
            return None
        others, mine = [p for p in asked.ring() if p != first], [first] if first in asked.ready else []
        for p in [*others, *mine] if gives_way and first in asked.ready else [*mine, *others]:
            if p in limits:
                return Turn(p, asked.said["slice_ms"] * 1e6, limits=limits)
        return None

    return rule


def _idle(asked: TurnAsked, first: int) -> bool:
    return first not in asked.ready


def _idle_or_spared(asked: TurnAsked, first: int) -> bool:
    one = asked.programs[first]
    return first not in asked.ready or one.lost < asked.said["loss"] * one.had


_RULES: dict[str, Rule] = {
    "first_come": _first_come,
    "nvshare": _in_quanta(_longest_away),
    "suspend_resume": _in_quanta(_longest_away, whole=True),
    "msched": _in_quanta(_farthest_ahead),
    "priority": _priority,
    "salus": _salus,
    "antman": _beside_the_first(_idle),
    "tgs": _beside_the_first(_idle_or_spared),
}

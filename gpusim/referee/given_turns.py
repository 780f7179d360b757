"""Turns that a policy gave, as the logs have them, and what the programs' own logs say of their memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from gpusim.referee.activities import NEVER
from gpusim.referee.ends import Started
from gpusim.referee.report import Findings, Report
from gpusim.referee.turn_rules import ProgramMemory, Rule
from gpusim.results.log import BEGAN, COPY, DECIDE, GIVEN, ISSUE, LEAVES, LIMITED, PLACE, TURN, UNPLACE
from gpusim.results.result import Result
from gpusim.trace.iterations import iterations
from gpusim.trace.roles import lives
from gpusim.trace.trace import I64, OP, Trace

BLOCK = 512  # bytes: PyTorch's allocator gives multiples of it


@dataclass(frozen=True)
class TurnRules:
    """What gave the turns: the policy's name, what was said to it, bytes for all programs, what each needs.

    rule  of a policy that does not ship, itself: it is asked again with what the logs tell; None: it is not there
    """

    policy: str
    said: dict[str, Any]
    capacity: int
    programs: tuple[ProgramMemory, ...]
    rule: Rule | None = None


@dataclass
class GivenTurn:
    """A decision: record of the log of the program that has the turn; `until` the operator that ends it, -1: none does."""

    at: int
    tenant: int
    ns: int
    until: int
    record: int
    leave: dict[int, int] = field(default_factory=dict)
    limits: dict[int, int] = field(default_factory=dict)
    began: int = NEVER


class BlocksHeld(NamedTuple):
    """Bytes of a program's blocks on the device after each record that changed them: at its index and time."""

    record: I64
    time: I64
    held: I64


def given(results: Sequence[Result], found: Sequence[Findings]) -> list[GivenTurn]:
    """All decisions in their order, of the logs of all programs; a TURN record of no decision is said."""
    made, rest = dict[int, GivenTurn](), list[tuple[int, int, list[int]]]()
    for p, result in enumerate(results):
        assert result.log is not None
        for i in np.flatnonzero(result.log["kind"] == TURN).tolist():
            record = result.log[i].tolist()
            t, _, what, number, operator, amount = record
            if what == GIVEN and number not in made and amount > 0:
                made[number] = GivenTurn(t, p, amount, operator, i)
            else:
                rest.append((p, i, record))
    for p, i, (t, _, what, number, operator, amount) in rest:
        of = made.get(number)
        if of is None or what not in (LEAVES, LIMITED, BEGAN):
            found[p].say(i, f"a record of decision {number}, which gives no turn", "one turn of each decision")
        elif operator != -1 or (amount != 0 if what == BEGAN else amount < 0 or t != of.at):
            what_is = f"a record of decision {number} at {t} ns, of {amount} bytes"
            found[p].say(i, what_is, f"what a decision at {of.at} ns says")
        elif what == BEGAN:
            of.began = t
        else:
            (of.leave if what == LEAVES else of.limits)[p] = amount
    return sorted(made.values(), key=lambda turn: turn.at)


def without_turns(result: Result) -> tuple[Result, I64]:
    """The result of a program with the records of its own doing, and which these are."""
    assert result.log is not None
    own = np.flatnonzero(result.log["kind"] != TURN)
    return replace(result, log=result.log[own]), own


def whole(own: Report, rows: I64, turns: Report) -> Report:
    """What is said of the records of a program's own doing, which are these of its log, and what of its turns."""
    said = [replace(v, record=int(rows[v.record])) if v.record >= 0 else v for v in own.violations] + [*turns.violations]
    return Report(not said, tuple(sorted(said, key=lambda v: v.record)), {**own.facts, **turns.facts})


def needed(trace: Trace, most: int) -> ProgramMemory:
    """What a program needs that holds so many bytes when it is alone, worked out from its trace."""
    size = (trace.size + BLOCK - 1) // BLOCK * BLOCK
    of_op, op = iterations(trace), np.flatnonzero(trace.kind == OP)
    starts = [0] + [k for k in range(1, len(op)) if of_op[op[k]] > max(of_op[op[k - 1]], 0)]
    least = 0
    for k in range(len(op)):
        reads = trace.read_id[trace.read_start[k] : trace.read_start[k + 1]]
        writes = trace.write_id[trace.write_start[k] : trace.write_start[k + 1]]
        least = max(least, int(size[np.unique(np.concatenate([reads, writes]))].sum()))
    born, died = lives(trace)
    lasts = [int(size[(born < at) & (died > at)].sum()) for at in (int(np.argmax(of_op == of_op[op[k]])) for k in starts[1:])]
    least = min(most, least)
    return ProgramMemory(most, least, max(least, min(most, max(lasts, default=most))), tuple(starts), limit=most)


def held(result: Result) -> BlocksHeld:
    """What the blocks of a program take on the device."""
    log = result.log
    assert log is not None
    which = np.flatnonzero(np.isin(log["kind"], (PLACE, UNPLACE)) & (log["b"] == 0))
    sign = np.where(log["kind"][which] == PLACE, 1, -1)
    return BlocksHeld(which, log["t"][which], np.cumsum(sign * log["bytes"][which]))


def is_down(result: Result, run: Started, blocks: BlocksHeld, since: int, limit: int) -> int:
    """When a program that is told at `since` to come down to a limit has done so: its blocks take no more, and the device is
    done with what was submitted until then."""
    log = result.log
    assert log is not None
    first = max(0, int(np.searchsorted(blocks.time, since, side="right")) - 1)
    below = np.flatnonzero(blocks.held[first:] <= limit)
    if not len(blocks.held) or (len(below) and below[0] == 0 and blocks.held[: first + 1].max() <= limit):
        return since
    if not len(below):
        return NEVER
    at = first + int(below[0])
    fell, record = max(since, int(blocks.time[at])), int(blocks.record[at])
    tick = np.flatnonzero((log["t"] == fell) & (np.arange(len(log)) >= record))
    left = tick[log["kind"][tick] == DECIDE]
    last = int(left[0]) if len(left) else int(np.searchsorted(log["t"], fell, side="right"))
    submitted = int(np.isin(log["kind"][:last], (ISSUE, COPY)).sum())
    ends = run.acts.end[:submitted][~run.acts.cancelled[:submitted]]
    return max(fell, int(ends.max(initial=0)))

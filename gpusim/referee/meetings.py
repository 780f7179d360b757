"""Where operators of several runs meet: they wait for the last to start, move their bytes together, and end together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.machine.topology.connections import Meeting
from gpusim.referee.activities import NEVER
from gpusim.referee.ends import ROUNDING, Flow, Started
from gpusim.referee.report import Findings
from gpusim.results.result import Result
from gpusim.trace.exchanges import parse_exchanges
from gpusim.trace.trace import HOST_WORK, I64, KERNEL, Trace


class Members(NamedTuple):
    """(M,) the members of all meetings, one meeting after the other; `blocks`: multiprocessors that each takes."""

    meeting: I64
    rank: I64
    operator: I64
    blocks: I64

    def of(self, rank: int, operators: int) -> dict[int, int]:
        """Which of so many operators of a rank meet others, and what each takes; of several meetings the most."""
        mine = np.flatnonzero((self.rank == rank) & (self.operator >= 0) & (self.operator < operators))
        mine = mine[np.argsort(self.blocks[mine], kind="stable")]
        return dict(zip(self.operator[mine].tolist(), self.blocks[mine].tolist(), strict=True))


class Attendance(NamedTuple):
    """When the members came and left, and what follows for their meetings; times in ns.

    row    (M,) activity of each member, -1 before it is submitted
    start  (M,) NEVER before that
    end    (M,) in the log, NEVER without
    last   (K,) start of the last member of each meeting, NEVER before all are there
    begin  (K,) when its bytes begin to flow
    """

    members: Members
    row: I64
    start: I64
    end: I64
    last: I64
    begin: I64


def members_of(meetings: Sequence[Meeting]) -> Members:
    """The table of all members."""
    rows = [(k, rank, operator, meeting.blocks) for k, meeting in enumerate(meetings) for rank, operator in meeting.members]
    return Members(*np.array(rows, np.int64).reshape(-1, 4).T)


def possible(members: Members, programs: Sequence[Trace], found: Sequence[Findings]) -> bool:
    """Each member is an operator of a rank that can meet others, in one meeting or a batch.  False: look no further."""
    ops = np.array([program.ops for program in programs])
    there = (members.rank >= 0) & (members.rank < len(ops))
    there &= (members.operator >= 0) & (members.operator < np.where(there, ops[np.where(there, members.rank, 0)], 0))
    for i in np.flatnonzero(~there)[:1].tolist():
        found[0].say(-1, f"operator {members.operator[i]} of rank {members.rank[i]} meets others", "an operator of the program")
    if not there.all():
        return False
    works = np.zeros(len(there), bool)
    for rank, program in enumerate(programs):
        mine = members.rank == rank
        works[mine] = np.isin(program.activity[members.operator[mine]], (KERNEL, HOST_WORK))
    again = _again(members, programs)
    for wrong, expected in ((works, "an operator that moves bytes"), (again, "one meeting of each operator")):
        for i in np.flatnonzero(wrong).tolist():
            found[members.rank[i]].say(-1, f"operator {members.operator[i]} is in meeting {members.meeting[i]}", expected)
    return not (works.any() or again.any())


def _again(members: Members, programs: Sequence[Trace]) -> npt.NDArray[np.bool_]:
    """(M,) meetings of an operator beyond those that its program names: of a batch of sends and receives each, else one."""
    of = _operators(members)
    order = np.argsort(of, kind="stable")
    count = np.zeros(len(of), np.int64)
    count[order] = np.arange(len(of)) - np.searchsorted(of[order], of[order])
    said = np.ones(len(of), np.int64)
    for rank, program in enumerate(programs):
        mine = members.rank == rank
        parts = np.array([len(parse_exchanges(text)) for text in program.exchanges] + [1], np.int64)
        said[mine] = parts[program.exchange[members.operator[mine]]]
    return np.asarray(count >= said)


def _operators(members: Members) -> I64:
    """(M,) the same number for the same operator of the same rank."""
    _, found = np.unique(np.stack([members.rank, members.operator]), axis=1, return_inverse=True)
    return np.asarray(found, np.int64).ravel()


def _longest(members: Members, values: I64) -> I64:
    """(M,) the largest value of the member's operator: in a batch of sends and receives it has several."""
    of = _operators(members)
    most = np.full(len(of), -1)
    np.maximum.at(most, of, values)
    return np.asarray(most[of])


def _with_batches(members: Members) -> npt.NDArray[np.bool_]:
    """(K,) meetings with an operator that is in another as well."""
    found = np.zeros(members.meeting.max(initial=-1) + 1, bool)
    of = _operators(members)
    found[members.meeting[(np.bincount(of) > 1)[of]]] = True
    return found


def attendance(members: Members, meetings: Sequence[Meeting], runs: Sequence[Started]) -> Attendance:
    """What the logs say of the members."""
    row = np.full(len(members.rank), -1)
    start, end = np.full(len(row), NEVER), np.full(len(row), NEVER)
    for rank, run in enumerate(runs):
        mine, acts = members.rank == rank, run.acts
        of = np.full(run.trace.ops + 1, -1)
        of[acts.op] = np.arange(len(acts.op))
        of[-1] = -1  # where swaps were entered
        row[mine] = of[members.operator[mine]]
        start[mine], end[mine] = np.append(acts.start, NEVER)[row[mine]], np.append(acts.end, NEVER)[row[mine]]
    last = np.zeros(len(meetings), np.int64)
    np.maximum.at(last, members.meeting, start)
    latency = np.array([meeting.latency for meeting in meetings], np.int64)
    return Attendance(members, row, start, end, last, np.where(last < NEVER, last + latency, NEVER))


def flows(there: Attendance, meetings: Sequence[Meeting]) -> list[Flow]:
    """What flows in meetings that have begun, those of one route together; its rows are meetings."""
    by_route: dict[object, list[int]] = {}
    for k in np.flatnonzero(there.begin < NEVER).tolist():
        by_route.setdefault(tuple(meetings[k].route), []).append(k)
    found = []
    for numbers in by_route.values():
        size, rate = np.array([(meetings[k].size, meetings[k].rate) for k in numbers], np.float64).T
        rows = np.array(numbers)
        found.append(Flow(rows, there.begin[rows], size, rate, np.ones(len(rows)), tuple(meetings[numbers[0]].route)))
    return found


def check(there: Attendance, due: I64, stop: I64, runs: Sequence[Started], found: Sequence[Findings]) -> None:
    """The end of each member: that of its meeting, of a batch of sends and receives of the last.

    due   (K,) of the meetings, NEVER of those that have not begun
    stop  (ranks,) when a run stopped that did not finish, else NEVER
    """
    members, ended = there.members, there.end < NEVER
    end = _longest(members, due[members.meeting])
    common = np.full(len(due), NEVER)
    np.minimum.at(common, members.meeting, there.end)
    latest = common.copy()
    np.maximum.at(latest, members.meeting[ended], there.end[ended])
    off = ended & (np.abs(there.end - end) > ROUNDING)
    apart = ended & (latest > common)[members.meeting] & ~_with_batches(members)[members.meeting] & ~off
    never = ~ended & (there.start < NEVER) & (end < NEVER) & (end + ROUNDING < stop[members.rank])
    for i in np.flatnonzero(off | apart | never).tolist():
        rank, k = int(members.rank[i]), int(members.meeting[i])
        if due[k] != end[i]:
            continue  # it is another one of its batch that says when it ends
        acts = runs[rank].acts
        record = (acts.end_record if ended[i] else acts.start_record)[there.row[i]]
        does = f"ends at {there.end[i]} ns" if ended[i] else "never ends"
        expected = _one_end(there, k) if apart[i] else _expected(there, k, int(end[i]))
        found[rank].say(record, f"activity {there.row[i]}, operator {members.operator[i]}, {does}", expected)
    for rank, said in enumerate(found):
        said.count("members of meetings", int((ended & (members.rank == rank)).sum()))


def _expected(there: Attendance, k: int, due: int) -> str:
    """When the members of the k-th meeting were to end, and why."""
    of = np.flatnonzero(there.members.meeting == k)
    i = of[int(np.argmax(there.start[of]))]
    last = f"operator {there.members.operator[i]} of rank {there.members.rank[i]}"
    if due == NEVER:
        return f"no end: {last}, which it meets, has not started"
    return f"{due} ns: {last} comes last, at {there.start[i]} ns, then latency and bytes on the links between them"


def _one_end(there: Attendance, k: int) -> str:
    of = np.flatnonzero(there.members.meeting == k)
    ends = [f"{there.end[i]} ns of rank {there.members.rank[i]}" for i in of if there.end[i] < NEVER]
    return f"one end of all that meet, not {', '.join(ends[:4])}"


def waits(there: Attendance, stop: I64, results: Sequence[Result], found: Sequence[Findings]) -> None:
    """How long each rank waited for others, of the meetings whose bytes began to flow before it stopped; a batch once."""
    members, begin = there.members, there.begin[there.members.meeting]
    counts = (begin < NEVER) & (begin <= stop[members.rank])
    waited = np.where(counts, there.last[members.meeting] - there.start, 0)
    _, once = np.unique(_operators(members), return_index=True)
    total = np.zeros(len(results), np.int64)
    np.add.at(total, members.rank[once], _longest(members, waited)[once])
    for rank, (result, said) in enumerate(zip(results, found, strict=True)):
        claimed = result.metrics.get("collective_wait_ns", 0)
        said.count("metrics", 1)
        if claimed != total[rank]:
            said.say(-1, f"metric collective_wait_ns is {claimed}", f"{total[rank]}, as the starts of all members add up")

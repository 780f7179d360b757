"""The experts of a layer in one pass: which operators come before and after them, and what crosses between."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.base.compiled import kept
from gpusim.base.errors import TraceError
from gpusim.trace.edit import Edit, Mask, begun, issued
from gpusim.trace.roles import ACTIVATION, BACKWARD, FORWARD, GRADIENT, TEMPORARY, lives, phase_kinds, roles
from gpusim.trace.trace import ALLOC, COLLECTIVE, FREE, I64, OP, Trace

EXPERT = re.compile(r"(.*\bexperts)\.(\d+)(?=\.|$)")  # a module of one: its layer's experts, and its number
BEFORE, RUN, AFTER = range(3)


@dataclass(frozen=True)
class ExpertGroups:
    """A group is the experts of one layer in one forward or backward pass, from the first operator of one to the last.

    first, last   (G,) operators
    group         (O,) of each operator inside one, -1 outside
    turn          (O,) of each operator inside a group: what experts read follows (BEFORE), an expert's (RUN), what needs what
                  experts made (AFTER); -1 outside
    own           (O,) of experts that this rank has; elsewhere: that others have
    into, out     (T,) what this rank's experts take from outside of them, and what they give
    inner         (T,) what they make for themselves, but for gradients of their parameters
    sent          (T,) the group in which experts first take a tensor from outside, -1: in none
    returned      (T,) the last group whose experts give it to the outside, -1: none
    """

    first: I64
    last: I64
    group: I64
    turn: I64
    own: Mask
    elsewhere: Mask
    into: Mask
    out: Mask
    inner: Mask
    sent: I64
    returned: I64


def expert_numbers(trace: Trace) -> I64:
    """(M + 1,) for each module the number of its expert, -1 for none; the last row is for operators without module."""
    found = [EXPERT.match(path) for path in trace.modules]
    return np.array([int(match[2]) if match else -1 for match in found] + [-1], np.int64)


def own_experts(trace: Trace, ranks: int) -> int:
    """How many experts of each layer a rank has.  Raises TraceError for a program without, or with a number that has a rest."""
    count = int(expert_numbers(trace).max()) + 1
    if not count:
        raise TraceError(
            f"{trace.name}: it has no experts to divide over {ranks} ranks",
            hint="experts are modules like 'layers.0.mlp.experts.5'; leave out expert",
        )
    if count % ranks:
        raise TraceError(f"{trace.name}: {count} experts do not divide evenly over {ranks} ranks", hint="take a divisor of it")
    return count // ranks


def expert_groups(trace: Trace, number: I64, layer: I64, own: int) -> ExpertGroups:
    """The groups of a program.

    number, layer   (O,) expert of an operator, from 0, and its layer; -1: none
    own             this rank has the first so many of each layer
    """
    kinds = phase_kinds(trace)[issued(trace)].astype(np.int64)
    running = (number >= 0) & ((kinds == FORWARD) | (kinds == BACKWARD))
    of_pass = np.cumsum(np.diff(kinds, prepend=-1) != 0)
    rows = np.flatnonzero(running)
    key, first = np.unique(of_pass[rows] * (layer.max() + 2) + layer[rows], return_index=True)
    last = np.searchsorted(key, of_pass[rows] * (layer.max() + 2) + layer[rows])
    ends = np.zeros(len(key), np.int64)
    np.maximum.at(ends, last, rows)
    begins = rows[first]
    moving = np.isin(roles(trace), (ACTIVATION, TEMPORARY))
    group, turn = _turns(begins, ends, running, trace.read_start, trace.read_id, trace.write_start, trace.write_id, moving)
    moving &= ~_like_gradients(trace)
    mine = running & (number < own)
    (own_reads, own_writes), (reads, writes), (others_read, others_write) = (
        [_by_side(trace, side, operators) for side in ("read", "write")] for operators in (mine, running, ~running)
    )
    into, out = moving & reads & ~writes & others_write, moving & writes & others_read
    return ExpertGroups(
        begins, ends, group, turn, mine, running & ~mine, into & own_reads, out & own_writes, moving & own_writes & ~out,
        _group_of(trace, "read", running, into, group, first=True), _group_of(trace, "write", running, out, group, first=False),
    )  # fmt: skip


def _like_gradients(trace: Trace) -> Mask:
    """(T,) what is added to a gradient in place: it has the size of parameters, and not of tokens."""
    gradient = roles(trace) == GRADIENT
    found = np.zeros(trace.tensors, bool)
    for o in np.flatnonzero(np.array(["add" in name for name in trace.op_names] + [False])[trace.op]).tolist():
        reads = trace.read_id[trace.read_start[o] : trace.read_start[o + 1]]
        if gradient[reads].any():
            found[reads] = True
    return found


def _by_side(trace: Trace, side: str, operators: Mask) -> Mask:
    found = np.zeros(trace.tensors, bool)
    found[getattr(trace, f"{side}_id")[np.repeat(operators, np.diff(getattr(trace, f"{side}_start")))]] = True
    return found


def _group_of(trace: Trace, side: str, running: Mask, wanted: Mask, group: I64, *, first: bool) -> I64:
    """(T,) the first, or the last, group whose experts access a wanted tensor; -1 for none."""
    operator = np.repeat(np.arange(trace.ops), np.diff(getattr(trace, f"{side}_start")))
    ids = getattr(trace, f"{side}_id")
    at = np.flatnonzero(running[operator] & wanted[ids])[:: -1 if first else 1]
    found = np.full(trace.tensors, -1)
    found[ids[at]] = group[operator[at]]  # of equal ones the last stays
    return found


@kept()
def _turns(
    first: Any, last: Any, running: Any, read_start: Any, read_id: Any, write_start: Any, write_id: Any, moving: Any
) -> Any:
    """(O,) the group of each operator and its turn there; -1: in none."""
    group, turn = np.full(running.size, -1, np.int64), np.full(running.size, -1, np.int64)
    after = np.full(moving.size, -1, np.int64)  # the group whose experts lead to a tensor
    for g in range(first.size):
        for o in range(first[g], last[g] + 1):
            group[o], turn[o] = g, 1 if running[o] else 0
            for i in range(read_start[o], read_start[o + 1]):
                if turn[o] == 0 and after[read_id[i]] == g:
                    turn[o] = 2
            for i in range(write_start[o], write_start[o + 1]):
                if turn[o] > 0 and moving[write_id[i]]:
                    after[write_id[i]] = g
    return group, turn


def all_to_alls(edit: Edit, groups: ExpertGroups, gone: Mask, ranks: int) -> None:
    """In each group what experts read comes first, then an exchange, the experts, an exchange, and what needs them.

    gone   (T,) tensors that this rank does not have

    Tokens of all ranks that own experts read or write are tensors of their own, which live to the end of the last group that
    uses them.
    """
    trace = edit.trace
    new = np.full(trace.tensors, -1)
    crossing = np.flatnonzero(groups.into | groups.out)
    new[crossing] = edit.add_tensors(trace.size[crossing] * ranks, trace.category[crossing])
    last = np.full(trace.tensors, -1)
    for side in ("read", "write"):
        operator = np.repeat(np.arange(trace.ops), np.diff(getattr(trace, f"{side}_start")))
        ids = getattr(trace, f"{side}_id")
        which = groups.own[operator] & (new[ids] >= 0)
        np.maximum.at(last, ids[which], operator[which])
        edit[f"{side}_id"][which] = new[ids[which]]
    weave = _Weave(edit, groups, gone, new, (ranks - 1) / ranks)
    for g in range(len(groups.first)):
        weave.group(g)
    edit.drop_events(weave.moved)
    edit.insert(weave.ends[groups.group[last[crossing]]], FREE, new[crossing])
    edit.insert(weave.ends[groups.sent[weave.early]], FREE, weave.early)


class _Weave:
    """Groups, one after the other."""

    def __init__(self, edit: Edit, groups: ExpertGroups, gone: Mask, new: I64, share: float) -> None:
        trace = edit.trace
        self.edit, self.trace, self.groups, self.new, self.share = edit, trace, groups, new, share
        self.ends = issued(trace)[groups.last] + 1
        self._keeps, self._low, self._high = ~gone, np.full(trace.tensors, AFTER), np.full(trace.tensors, BEFORE)
        born, died = lives(trace)
        sent = np.flatnonzero(groups.sent >= 0)
        later = _last_uses(trace, groups.turn != RUN)[sent] > groups.last[groups.sent[sent]]
        self.early = sent[~later & (died[sent] < trace.events)]
        self.moved = np.zeros(trace.events, bool)
        self.moved[died[self.early]] = True  # once experts have them they are needed no more
        self.moved[born[groups.returned >= 0]] = True  # they come with the exchange

    def group(self, g: int) -> None:
        """The events of a group in their new order."""
        trace, groups, end = self.trace, self.groups, int(self.ends[g])
        events = np.arange(int(begun(trace)[groups.first[g]]), end)
        sent, returned = np.flatnonzero(groups.sent == g), np.flatnonzero(groups.returned == g)
        turn = self._turns(events)
        self.moved[events] = True
        self._take(events[turn == BEFORE], end)
        made = self.new[[*sent, *returned]]
        self._alloc(made[made >= 0], end)
        self._exchange(g, sent, self.new[sent[self.new[sent] >= 0]])
        self._take(events[turn == RUN], end)
        self._alloc(returned, end)
        self._exchange(g, self.new[returned[self.new[returned] >= 0]], returned)
        self._take(events[turn == AFTER], end)

    def _take(self, events: I64, at: int) -> None:
        self.edit.insert(np.full(len(events), at), self.trace.kind[events], self.trace.arg[events], self.trace.stream[events])

    def _alloc(self, tensors: I64, at: int) -> None:
        self.edit.insert(np.full(len(tensors), at), ALLOC, tensors)

    def _exchange(self, g: int, reads: I64, writes: I64) -> None:
        """All tokens that go to experts, or come back; of `reads` and `writes` the larger side is that of all experts."""
        edit, first = self.edit, int(self.groups.first[g])
        if not len(reads):
            return
        size = int(edit.sizes_of(reads).sum())
        operators = edit.add_operators(
            (np.array([len(reads)]), reads), (np.array([len(writes)]), writes), op=edit.name("op_names", "gpusim::all_to_all"),
            activity=COLLECTIVE, module=self.trace.module[first], read_bytes=round(size * self.share),
            exchange=edit.exchanges("all_to_all", "expert", np.array([size])),
        )  # fmt: skip
        edit.insert(self.ends[g], OP, operators, self.trace.stream[issued(self.trace)[first]])

    def _turns(self, events: I64) -> I64:
        """When each event comes: allocs with the first operator that needs them, frees with the last; -1: not at all."""
        trace, turns, low, high = self.trace, self.groups.turn, self._low, self._high
        kind, arg = trace.kind[events], trace.arg[events]
        ops = arg[kind == OP]
        touched: list[I64] = []
        for start, ids in ((trace.read_start, trace.read_id), (trace.write_start, trace.write_id)):
            for o in ops.tolist():
                mine = ids[start[o] : start[o + 1]]
                low[mine], high[mine] = np.minimum(low[mine], turns[o]), np.maximum(high[mine], turns[o])
                touched.append(mine)
        found = np.full(len(events), BEFORE)
        found[kind == OP] = np.where(self.groups.elsewhere[ops], -1, turns[ops])
        for which, turn in ((ALLOC, low), (FREE, high)):
            found[kind == which] = np.where(self._keeps, turn, -1)[arg[kind == which]]
        found[self.moved[events]] = -1
        for mine in touched:
            low[mine], high[mine] = AFTER, BEFORE
        return found


def _last_uses(trace: Trace, operators: Mask) -> I64:
    """(T,) the last of these operators that accesses each tensor, -1 for none."""
    found = np.full(trace.tensors, -1)
    for side in ("read", "write"):
        operator = np.repeat(np.arange(trace.ops), np.diff(getattr(trace, f"{side}_start")))
        mine = operators[operator]
        np.maximum.at(found, getattr(trace, f"{side}_id")[mine], operator[mine])
    return found

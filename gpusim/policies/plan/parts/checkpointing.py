"""Activation checkpointing: what a segment of the model made is dropped after forward and recomputed in backward."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import kept
from gpusim.base.errors import GpusimError, TraceError, suggest
from gpusim.trace.columns import Accesses, Events, accesses, events
from gpusim.trace.edit import Edit, begun, issued
from gpusim.trace.model_blocks import blocks
from gpusim.trace.roles import BACKWARD, FORWARD, lives, phase_kinds
from gpusim.trace.trace import ALLOC, FREE, I64, OP, Trace


class Rerun(NamedTuple):
    """The S segments, and what is run again of them."""

    order: Any  # (S,) their numbers as they are run again
    first: Any  # (S,) operator
    until: Any  # (S,) last operator that is run again, -1: none is
    begin: Any  # (S,) event with which that part begins
    end: Any    # (S,) event before which it ends
    at: Any     # (S,) event before which it is run again
    owner: Any  # (T,) the segment that allocates the tensor, -1: none does
    copy: Any   # (T,) the tensor that takes its place when it is recomputed, -1: none does
    keep: Any   # (O,) operators that are not run again, since what they made is kept


def checkpointed(trace: Trace, every: str = "1", modules: str = "", keep: str = "") -> Trace:
    """The program whose segments are run again in backward: see the transform `checkpointing`."""
    first, last = _segments(trace, every, modules)
    event, begin = issued(trace), begun(trace)
    born, died = lives(trace)
    backward = phase_kinds(trace)[event] == BACKWARD
    owner = _owners(trace.kind, trace.arg, begin[first], event[last], trace.tensors)
    kept_ops = _kept(trace, keep)
    kept = trace.write_id[np.repeat(kept_ops, np.diff(trace.write_start))]
    kept = kept[owner[kept] >= 0]
    segment, owner[kept] = owner[kept], -1
    saved, final_use, until, needed = _saved(first, last, backward, owner, accesses(trace))
    if not saved.any():
        raise TraceError(f"{trace.name}: backward reads nothing that a single segment has made", hint="try a larger `every`")

    edit = Edit(trace)
    copied = _copied_tensors(trace.kind, trace.arg, begin, event, first, until)
    copied = copied[owner[copied] >= 0]
    copy = np.full(trace.tensors, -1, np.int64)
    copy[copied] = edit.add_tensors(trace.size[copied], edit.name("categories", "bwd"))
    order = np.argsort(needed, kind="stable")
    rerun = Rerun(order, first, until, begin[first], event[until] + 1, begin[np.minimum(needed, trace.ops - 1)], owner, copy,
                  kept_ops)  # fmt: skip
    again, reads, writes, latest = _operators(rerun, accesses(trace))
    waits = until[segment] >= 0  # what is kept waits for the others, whether they read it or not
    np.maximum.at(latest, kept[waits], rerun.at[segment[waits]])
    ids = edit.add_operators(reads, writes, like=again)
    edit.insert(*_events(rerun, events(trace), saved, int(ids[0])))

    # What is recomputed dies after its last use in forward; from then on its copy takes its place.
    which = np.flatnonzero(saved)
    edit.insert(event[final_use[which]] + 1, FREE, which, trace.stream[born[which]])
    ends = which[died[which] < trace.events]
    edit["arg"][died[ends]] = copy[ends]
    _replace(first, last, owner, saved, copy, trace.read_start, edit["read_id"])
    _replace(first, last, owner, saved, copy, trace.write_start, edit["write_id"])

    # What a segment reads from outside lives until it has been run again.
    late = np.flatnonzero(died < latest)
    edit.drop_events(_marked(died[late], trace.events))
    edit.insert(latest[late], FREE, late, trace.stream[died[late]])
    return edit.finish()


def _segments(trace: Trace, every: str, modules: str) -> tuple[I64, I64]:
    """The first and the last operator of each segment."""
    kinds = phase_kinds(trace)[issued(trace)]
    for kind, word in ((FORWARD, "forward"), (BACKWARD, "backward")):
        if not (kinds == kind).any():
            raise TraceError(
                f"{trace.name}: checkpointing needs operators of a {word} phase, and there are none",
                hint="phases are named like 'step0.fwd' and 'step0.bwd'",
            )
    forward = kinds == FORWARD
    block = blocks(trace, np.flatnonzero(forward), modules)[trace.module]
    block[~forward] = -1
    number = int(block.max()) + 1
    if every == "sqrt":
        length = math.isqrt(number - 1) + 1
    elif every.isdecimal() and int(every):
        length = int(every)
    else:
        wanted = "neither a whole number above 0 nor sqrt"
        raise GpusimError(f"parameter 'every' of transform 'checkpointing' is '{every}', {wanted}")
    inside = np.flatnonzero(block >= 0)
    passes = np.cumsum(np.diff(forward, prepend=False))  # rises where a forward begins and where it ends
    key = passes[inside] * number + block[inside] // length
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    return inside[starts], inside[np.append(starts[1:], len(key)) - 1]


def _kept(trace: Trace, keep: str) -> npt.NDArray[np.bool_]:
    """(O,) operators of these names, as in "aten.mm + aten.addmm"; TraceError for one that the program does not run."""
    wanted = [word.strip() for word in keep.split("+") if word.strip()]
    for word in wanted:
        if not any(_is_named(name, word) for name in trace.op_names):
            raise TraceError(f"{trace.name} runs no operator '{word}'", hint=suggest(word, trace.op_names))
    found: npt.NDArray[np.bool_] = np.array([any(_is_named(n, w) for w in wanted) for n in trace.op_names] or [False])[trace.op]
    return found


def _is_named(name: str, word: str) -> bool:
    """Whether an operator is of this name, or an overload of it."""
    return name == word or name.rpartition(".")[0] == word


def _marked(rows: I64, count: int) -> Any:
    found = np.zeros(count, bool)
    found[rows] = True
    return found


@kept()
def _owners(kind: Any, arg: Any, begin: Any, end: Any, tensors: int) -> Any:
    """(T,) the segment among whose events the tensor is allocated, or -1."""
    owner = np.full(tensors, -1, np.int64)
    for s in range(begin.size):
        for e in range(begin[s], end[s]):
            if kind[e] == ALLOC:
                owner[arg[e]] = s
    return owner


@kept()
def _saved(first: Any, last: Any, backward: Any, owner: Any, of: Accesses) -> Any:
    """Which tensors backward needs of a segment that nothing else reads, their last use within it; for each segment the
    last operator that makes one, and the operator that needs the first (O: none)."""
    ops = backward.size
    saved, shared = np.zeros(owner.size, np.bool_), np.zeros(owner.size, np.bool_)
    final_use, made_by = np.full(owner.size, -1, np.int64), np.full(owner.size, -1, np.int64)
    until, needed = np.full(first.size, -1, np.int64), np.full(first.size, ops, np.int64)
    s = 0
    for o in range(ops):  # what is shared is known when the last forward operator has been seen
        while s < first.size and last[s] < o:
            s += 1
        own = s if s < first.size and first[s] <= o else -1
        for start, ids, writes in ((of.read_start, of.read_id, False), (of.write_start, of.write_id, True)):
            for i in range(start[o], start[o + 1]):
                t = ids[i]
                if owner[t] < 0:
                    continue
                if owner[t] == own:
                    final_use[t] = o
                    if writes or made_by[t] < 0:
                        made_by[t] = o
                elif backward[o]:
                    saved[t] = True
                else:
                    shared[t] = True
    for t in range(owner.size):
        saved[t] = saved[t] and not shared[t] and made_by[t] >= 0
        if saved[t]:
            until[owner[t]] = max(until[owner[t]], made_by[t])
    for o in range(ops):
        if backward[o]:
            for start, ids in ((of.read_start, of.read_id), (of.write_start, of.write_id)):
                for i in range(start[o], start[o + 1]):
                    if saved[ids[i]]:
                        needed[owner[ids[i]]] = min(needed[owner[ids[i]]], o)
    return saved, final_use, until, needed


@kept()
def _copied_tensors(kind: Any, arg: Any, begin: Any, event: Any, first: Any, until: Any) -> Any:
    """What the operators that are run again allocate."""
    count = 0
    for s in range(first.size):
        if until[s] >= 0:
            count += event[until[s]] - begin[first[s]]
    found = np.empty(count, np.int64)
    n = 0
    for s in range(first.size):
        if until[s] >= 0:
            for e in range(begin[first[s]], event[until[s]]):
                if kind[e] == ALLOC:
                    found[n] = arg[e]
                    n += 1
    return found[:n]


@kept()
def _operators(rerun: Rerun, of: Accesses) -> Any:
    """The operators that are run again, what they read and write, and for each tensor from outside of its segment before
    which event it is needed last."""
    first, until, owner, copy = rerun.first, rerun.until, rerun.owner, rerun.copy
    count, reads, writes = 0, 0, 0
    for s in rerun.order:
        if until[s] >= 0:
            count += until[s] + 1 - first[s]
            reads += of.read_start[until[s] + 1] - of.read_start[first[s]]
            writes += of.write_start[until[s] + 1] - of.write_start[first[s]]
    again = np.empty(count, np.int64)
    read_count, read, write_count, write = (
        np.empty(count, np.int64), np.empty(reads, np.int64), np.empty(count, np.int64), np.empty(writes, np.int64)
    )  # fmt: skip
    latest = np.full(owner.size, -1, np.int64)
    n, r, w = 0, 0, 0
    for s in rerun.order:
        for o in range(first[s], until[s] + 1):
            if rerun.keep[o]:
                continue
            again[n] = o
            read_count[n], write_count[n] = of.read_start[o + 1] - of.read_start[o], of.write_start[o + 1] - of.write_start[o]
            n += 1
            for i in range(of.read_start[o], of.read_start[o + 1]):
                t = of.read_id[i]
                own = owner[t] == s and copy[t] >= 0
                read[r] = copy[t] if own else t
                r += 1
                if not own:
                    latest[t] = max(latest[t], rerun.at[s])
            for i in range(of.write_start[o], of.write_start[o + 1]):
                t = of.write_id[i]
                own = owner[t] == s and copy[t] >= 0
                write[w] = copy[t] if own else t
                w += 1
                if not own:
                    latest[t] = max(latest[t], rerun.at[s])
    return again[:n], (read_count[:n], read[:r]), (write_count[:n], write[:w]), latest


@kept()
def _events(rerun: Rerun, own: Events, saved: Any, operator: int) -> Any:
    """The events of the segments that are run again: (before which event, kind, tensor or operator, stream)."""
    copy = rerun.copy
    most = 0
    for s in rerun.order:
        if rerun.until[s] >= 0:
            most += 2 * (rerun.end[s] - rerun.begin[s])
    at, kinds, args, streams = (
        np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    )  # fmt: skip
    freed = np.zeros(copy.size, np.bool_)
    n = 0
    for s in rerun.order:
        if rerun.until[s] < 0:
            continue
        start, end = rerun.begin[s], rerun.end[s]
        for e in range(start, end):
            a = own.arg[e]
            if own.kind[e] == OP:
                if rerun.keep[a]:
                    continue
                new = operator
                operator += 1
            elif own.kind[e] == ALLOC:
                if copy[a] < 0:
                    continue
                new = copy[a]
            elif own.kind[e] == FREE and rerun.owner[a] == s and copy[a] >= 0 and not saved[a]:
                new = copy[a]
                freed[a] = True
            else:
                continue
            at[n], kinds[n], args[n], streams[n] = rerun.at[s], own.kind[e], new, own.stream[e]
            n += 1
        for e in range(start, end):  # what the forward pass hands on is not needed a second time
            a = own.arg[e]
            if own.kind[e] == ALLOC and copy[a] >= 0 and not saved[a] and not freed[a]:
                at[n], kinds[n], args[n], streams[n] = rerun.at[s], FREE, copy[a], own.stream[e]
                n += 1
    return at[:n], kinds[:n], args[:n], streams[:n]


@kept()
def _replace(first: Any, last: Any, owner: Any, saved: Any, copy: Any, start: Any, ids: Any) -> None:
    """Operators after a segment access the copies of what it made."""
    for o in range(start.size - 1):
        for i in range(start[o], start[o + 1]):
            t = ids[i]
            if saved[t] and o > last[owner[t]]:
                ids[i] = copy[t]

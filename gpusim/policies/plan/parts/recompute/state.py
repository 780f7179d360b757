"""The state of a replay: flat tables, and how its kernels are compiled."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.tables import filled, i8
from gpusim.policies.plan.parts.recompute.problem import I64, RecomputeProgram

# Why `advance` came back.
FINISHED, OUT_OF_MEMORY, THRASHING, LOG_FULL = range(4)

CONTROL = np.dtype([(n, np.int64) for n in (
    "heuristic", "budget", "limit", "lenient", "frees_constants", "dice",
    "at",            # action of the schedule
    "created",       # operators whose tensors are there, run or not
    "depth",         # operators begun and not run: rows of `frames`
    "pool_end", "pool_count",
    "stamp", "labels",
    "clock", "memory", "peak", "model", "remat",
    "first_runs", "reruns", "evictions", "eager", "evicted_bytes", "overdrafts",
    "logged",
)])  # fmt: skip

STORAGE = np.dtype([(n, np.int64) for n in (
    "size",
    "cost",      # of the distinct operators that made its tensors, ns
    "counted",   # the latest operator in `cost`
    "last",      # clock of the last access
    "external",  # references from outside
    "locks",
    "material", "pinned",
    "slot",      # in the pool, -1 when absent
    "seen",      # stamp of the walk that met it last
    "label",     # its class while it is evicted
    "next", "prev",  # of its class, in a ring
)])  # fmt: skip

TENSOR = np.dtype([(n, np.int64) for n in ("storage", "op", "size", "defined")])
# By label; `unused` is the stack of labels to give away, up to control's `labels`.
CLASS = np.dtype([(n, np.int64) for n in ("value", "members", "first", "seen", "unused")])
FRAME = np.dtype([(n, np.int64) for n in ("op", "tensor", "first", "stage", "edge")])

# What the log tells: FIRST and AGAIN of an operator, CHOSEN, EAGER and FREED of a storage.
FIRST, AGAIN, CHOSEN, EAGER, FREED = range(5)
EVENT = np.dtype([("what", np.int64), ("which", np.int64), ("at", np.int64)])


class RecomputeTables(NamedTuple):
    """The program, which does not change; then the state.  O operators, T tensors, S storages."""

    cost: Annotated[I64, i8, "O"]
    in_start: Annotated[I64, i8, "O + 1"]
    in_id: Annotated[I64, i8, "reads"]
    out_start: Annotated[I64, i8, "O + 1"]
    need: Annotated[I64, i8, "O"]  # bytes of all that an operator makes
    verb: Annotated[I64, i8, "actions"]
    arg: Annotated[I64, i8, "actions"]
    member_start: Annotated[I64, i8, "S + 1"]  # CSR by storage: its tensors
    member_id: Annotated[I64, i8, "T"]
    near_start: Annotated[I64, i8, "S + 1"]    # CSR by storage: its neighbours
    near_id: Annotated[I64, i8, "near"]
    near_since: Annotated[I64, i8, "near"]
    near_way: Annotated[I64, i8, "near"]
    control: Annotated[Any, CONTROL, 1]
    storages: Annotated[Any, STORAGE, "S"]
    tensors: Annotated[Any, TENSOR, "T"]
    locked: Annotated[I64, i8, "reads"]  # of each entry of in_id: whether its storage is, for an operator that has begun
    pool: Annotated[I64, i8, "pool"]     # evictable storages in the order in which they became so, -1 where one has left
    open: Annotated[I64, i8, "S + 1"]    # storages that a walk has still to look at
    classes: Annotated[Any, CLASS, "S"]
    frames: Annotated[Any, FRAME, "O + 1"]
    log: Annotated[Any, EVENT, 256]


def build(program: RecomputeProgram, heuristic: int, budget: int, limit: int, lenient: bool, seed: int) -> RecomputeTables:
    p, near, (member_start, member_id) = program, program.neighbours, program.members
    ops, storages, tensors = len(p.cost), len(p.size), len(p.storage)
    lengths = {
        "S": storages, "S + 1": storages + 1, "T": tensors, "O + 1": ops + 1, "reads": len(p.in_id), "pool": 2 * storages + 1,
    }  # fmt: skip
    made = filled(
        RecomputeTables, lengths, cost=p.cost, in_start=p.in_start, in_id=p.in_id, out_start=p.out_start, need=_need(p),
        verb=p.verb, arg=p.arg, member_start=member_start, member_id=member_id,
        near_start=near.start, near_id=near.id, near_since=near.since, near_way=near.way,
    )  # fmt: skip
    S, T, control = made.storages, made.tensors, made.control[0]
    S["size"], S["counted"], S["last"], S["slot"] = p.size, -1, -1, -1
    T["storage"], T["op"] = p.storage, np.repeat(np.arange(ops), np.diff(p.out_start))
    T["size"][p.root] = p.size
    made.classes["unused"] = np.arange(storages)[::-1]  # labels to give away
    control["heuristic"], control["budget"], control["limit"], control["lenient"] = heuristic, budget, limit, lenient
    control["frees_constants"], control["dice"] = p.frees_constants, _dice(seed)
    control["created"], control["labels"], control["clock"] = -1, storages, 1
    return made


def _need(program: RecomputeProgram) -> I64:
    """(O,) bytes of all that each operator makes."""
    size = np.zeros(len(program.storage) + 1, np.int64)
    size[program.root] = program.size
    need = np.add.reduceat(size, program.out_start[:-1])
    need[np.diff(program.out_start) == 0] = 0
    return need


def _dice(seed: int) -> int:
    """The "minimal standard" generator (Park and Miller, CACM 31(10), 1988), as in policies/evict/random.py."""
    prime = 2**31 - 1
    return int(pow(48271, 3, prime) * (seed % (prime - 1) + 1) % prime)

"""The state of a replay: flat tables, and how its kernels are compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpusim.base.tables import table
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
    """The program, which does not change; then the state."""

    cost: I64
    in_start: I64
    in_id: I64
    out_start: I64
    need: I64       # (O,) bytes of all that an operator makes
    verb: I64
    arg: I64
    member_start: I64  # CSR by storage: its tensors
    member_id: I64
    near_start: I64
    near_id: I64
    near_since: I64
    near_way: I64
    control: Any
    storages: Any
    tensors: Any
    locked: I64     # of each entry of in_id: whether its storage is, for an operator that has begun
    pool: I64       # evictable storages in the order in which they became so, -1 where one has left
    open: I64       # storages that a walk has still to look at
    classes: Any
    frames: Any
    log: Any


def build(program: RecomputeProgram, heuristic: int, budget: int, limit: int, lenient: bool, seed: int) -> RecomputeTables:
    ops, storages, tensors = len(program.cost), len(program.size), len(program.storage)
    near = program.neighbours
    S, T = table(storages, STORAGE), table(tensors, TENSOR)
    S["size"], S["counted"], S["last"], S["slot"] = program.size, -1, -1, -1
    T["storage"], T["op"] = program.storage, np.repeat(np.arange(ops), np.diff(program.out_start))
    T["size"][program.root] = program.size
    classes = table(storages, CLASS)
    classes["unused"] = np.arange(storages)[::-1]  # labels to give away
    control = table(1, CONTROL)
    for name, value in (
        ("heuristic", heuristic), ("budget", budget), ("limit", limit), ("lenient", lenient), ("dice", _dice(seed)),
        ("frees_constants", program.frees_constants), ("created", -1), ("labels", storages), ("clock", 1),
    ):  # fmt: skip
        control[name] = value
    need = np.add.reduceat(np.append(T["size"], 0), program.out_start[:-1])
    need[np.diff(program.out_start) == 0] = 0
    return RecomputeTables(
        program.cost, program.in_start, program.in_id, program.out_start, need, program.verb, program.arg, *program.members,
        *near, control, S, T, locked=np.zeros(len(program.in_id), np.int64), pool=np.zeros(2 * storages + 1, np.int64),
        open=np.zeros(storages + 1, np.int64), classes=classes, frames=table(ops + 1, FRAME), log=table(256, EVENT),
    )  # fmt: skip


def _dice(seed: int) -> int:
    """The "minimal standard" generator (Park and Miller, CACM 31(10), 1988), as in policies/evict/random.py."""
    prime = 2**31 - 1
    return int(pow(48271, 3, prime) * (seed % (prime - 1) + 1) % prime)

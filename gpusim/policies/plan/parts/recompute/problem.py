"""What is replayed: operators over tensors, tensors over storages, and a schedule of what the program asks for, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# Verbs of the schedule: of an operator COMPUTE, the others of a tensor.
COMPUTE, GET, RELEASE, PIN = range(4)

# In which way a neighbour lies, as bits: what a storage is made from, what is made from it.
PARENT, CHILD = 1, 2


class Neighbours(NamedTuple):
    """CSR by storage: the storages that share an operator with it, from which operator on, and in which way."""

    start: I64
    id: I64
    since: I64
    way: I64


@dataclass(frozen=True)
class RecomputeProgram:
    """O operators in the order in which the schedule computes them, T tensors in that of their making, S storages.

    A storage holds the tensor that it was made for, its root, and views of it.  GET and RELEASE count references; PIN makes a
    tensor present and keeps it.
    """

    cost: I64       # (O,) ns
    in_start: I64   # (O + 1,)
    in_id: I64      # tensors that each operator reads, with repeats
    out_start: I64  # (O + 1,) operator o makes the tensors out_start[o] : out_start[o + 1]
    storage: I64    # (T,)
    size: I64       # (S,) bytes
    constant: Mask  # (S,) pinned as soon as it is there
    verb: I64       # (A,)
    arg: I64        # (A,)
    frees_constants: bool = False
    """Whether what is pinned goes with its last reference.  DTR keeps it."""

    @cached_property
    def root(self) -> I64:
        """(S,) the first tensor of each storage."""
        return np.unique(self.storage, return_index=True)[1]

    @cached_property
    def members(self) -> tuple[I64, I64]:
        """CSR by storage: its tensors."""
        start = np.append(0, np.cumsum(np.bincount(self.storage, minlength=len(self.size))))
        return start, np.argsort(self.storage, kind="stable")

    @cached_property
    def neighbours(self) -> Neighbours:
        """Constants are left out: they are never evicted."""
        # Every input of an operator beside every output of it.
        reads, writes = np.diff(self.in_start), np.diff(self.out_start)
        pairs = reads * writes
        op = np.repeat(np.arange(len(pairs)), pairs)
        reader = np.repeat(np.arange(len(self.in_id)), np.repeat(writes, reads))
        turn = np.arange(len(op)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
        parent, child = self.storage[self.in_id[reader]], self.storage[self.out_start[op] + turn % np.maximum(writes[op], 1)]
        kept = (parent != child) & ~self.constant[parent] & ~self.constant[child]
        parent, child, op = parent[kept], child[kept], op[kept]
        # Both ways, which may begin at different operators; of two storages that share several, the first of these.
        whose, id_, since = np.concatenate([parent, child]), np.concatenate([child, parent]), np.tile(op, 2)
        way = np.repeat([CHILD, PARENT], len(op))
        order = np.lexsort((since, way, id_, whose))
        whose, id_, since, way = whose[order], id_[order], since[order], way[order]
        other = [np.diff(column, prepend=-1) != 0 for column in (whose, id_, way)]
        first = np.flatnonzero(np.logical_or.reduce(other))
        whose, id_, since, way = whose[first], id_[first], since[first], way[first]
        order = np.lexsort((id_, since, whose))
        start = np.searchsorted(whose, np.arange(len(self.size) + 1))
        return Neighbours(start, id_[order], since[order], way[order])


@dataclass
class Builder:
    """Appends operators and actions; numbers are handed out in order."""

    size: list[int] = field(default_factory=list)
    constant: list[bool] = field(default_factory=list)
    storage: list[int] = field(default_factory=list)
    cost: list[int] = field(default_factory=list)
    in_start: list[int] = field(default_factory=lambda: [0])
    in_id: list[int] = field(default_factory=list)
    out_start: list[int] = field(default_factory=lambda: [0])
    verb: list[int] = field(default_factory=list)
    arg: list[int] = field(default_factory=list)

    def act(self, verb: int, arg: int) -> None:
        self.verb.append(verb)
        self.arg.append(arg)

    def compute(self, cost: int, inputs: Sequence[int], outputs: Sequence[tuple[int, int]]) -> range:
        """Run an operator; outputs: (bytes, -1), or (0, the tensor that it is a view of).  Returns its new tensors."""
        first = len(self.storage)
        for size, of in outputs:
            if of < 0:
                self.size.append(size)
                self.constant.append(False)
            self.storage.append(self.storage[of] if of >= 0 else len(self.size) - 1)
        self.in_id += inputs
        self.cost.append(cost)
        self.in_start.append(len(self.in_id))
        self.out_start.append(len(self.storage))
        self.act(COMPUTE, len(self.cost) - 1)
        return range(first, len(self.storage))

    def bring(self, size: int) -> int:
        """A constant: it comes from outside and stays."""
        (tensor,) = self.compute(0, (), [(size, -1)])
        self.constant[-1] = True
        self.act(PIN, tensor)
        return tensor

    def finish(self, frees_constants: bool = False) -> RecomputeProgram:
        whole = {n: np.array(getattr(self, n), np.int64) for n in (
            "cost", "in_start", "in_id", "out_start", "storage", "size", "verb", "arg",
        )}  # fmt: skip
        return RecomputeProgram(**whole, constant=np.array(self.constant, bool), frees_constants=frees_constants)

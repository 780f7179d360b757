"""What grows: the steps of a program, and the tensors that every step leaves behind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.trace.iterations import iterations
from gpusim.trace.trace import ALLOC, FREE, I64, Trace

FEWEST = 3     # steps in which the same tensor has to be left behind
APART = 3      # every so many steps, at least, it has to happen again; in every one where there are few
EVEN = 1.6     # times the usual distance between two steps, at most; at least the usual one divided by it
MOSTLY = 0.66  # of the program between the first and the last step lies in such distances
LONG = 0.75    # of the program: what comes next may be no step, an evaluation perhaps
SMALLEST = 8   # tensors of a step in which nothing repeats: with fewer it may be one layer
WITHIN = 0.35  # of the kinds of tensors of a step, at most, may be left behind; more is one pass that saves what it computes


@dataclass(frozen=True)
class Leak:
    """Tensors of one place of the program, left behind by step after step.

    site    category of the tensors; tensors: their ids; bytes: of all of them
    steps   in so many steps; per_step: bytes
    """

    site: str
    tensors: I64
    bytes: int
    steps: int

    @property
    def per_step(self) -> int:
        return self.bytes // self.steps


@dataclass(frozen=True)
class Steps:
    """number: (E,) the step of each event, -1 outside; how: "phases", "allocations" (they repeat), or "" without steps."""

    number: I64
    how: str

    @property
    def count(self) -> int:
        return int(self.number.max(initial=-1)) + 1


def steps(trace: Trace) -> Steps:
    """The steps of a program, by its phases, else by allocations that come back at even distances until the end."""
    number = iterations(trace)
    if number.max(initial=0) > 0:
        return Steps(number, "phases")
    made = np.flatnonzero(trace.kind == ALLOC)
    made = made[int((trace.meta.get("start") or {}).get("tensors", 0)) :]
    marks = made[_marks(trace, made)]
    if not len(marks):
        return Steps(np.full(trace.events, -1, np.int64), "")
    return Steps(np.searchsorted(marks, np.arange(trace.events), "right") - 1, "allocations")


def leaks(trace: Trace, event: int, found: Steps) -> list[Leak]:
    """Per site what each step left behind up to an event, largest first; [] where no step repeats."""
    if found.count < FEWEST + 1 or event <= 0:
        return []
    born, died = _lives(trace, event)
    step = np.where(born >= 0, found.number[np.maximum(born, 0)], -1)
    now = int(found.number[event - 1])
    if now < 0:
        now = int(found.number[:event].max(initial=-1))
    first = 1 if found.how == "phases" else 0  # what the first step makes is there to stay (states of an optimizer)
    # Alive over the whole step after its own: where a step is cut in the middle, what it saved is free by then.
    last = now - 1 if found.how == "phases" and event >= trace.events else now - 2
    of = (step >= first) & (step <= last)
    left = (died < 0) & of
    if found.how != "phases" and (_kinds(trace, left) > WITHIN * _kinds(trace, of) or _one_layer(trace, step, of)):
        return []
    leaks = []
    for site in np.unique(trace.category[left]).tolist():
        mine = np.flatnonzero(left & (trace.category == site))
        counts = np.bincount(step[mine], minlength=now + 1)[first : last + 1]
        seen = np.flatnonzero(counts)
        most = APART if len(counts) >= 2 * APART else 1
        if len(seen) < FEWEST or max(np.diff(np.concatenate([[-1], seen, [len(counts)]]))) > most:
            continue
        # What the first and the last steps made of the same size is there for the same reason.
        alike = np.isin(trace.size, np.unique(trace.size[mine])) & (trace.category == site)
        mine = np.flatnonzero(alike & (died < 0) & (step >= 0))
        leaks.append(Leak(trace.categories[site], mine, int(trace.size[mine].sum()), len(np.unique(step[mine]))))
    return sorted(leaks, key=lambda leak: -leak.bytes)


def _kinds(trace: Trace, which: npt.NDArray[np.bool_]) -> int:
    """How many places of the program, with sizes, these tensors come from again and again."""
    columns = np.stack([trace.category[which].astype(np.int64), trace.size[which]])
    return int(np.count_nonzero(np.unique(columns, axis=1, return_counts=True)[1] >= FEWEST))


def _one_layer(trace: Trace, step: I64, of: npt.NDArray[np.bool_]) -> bool:
    """Whether the "steps" may be the layers of one pass: few tensors each, and nothing that repeats within, as layers do."""
    columns = np.stack([step[of], trace.category[of].astype(np.int64), trace.size[of]])
    repeats = np.unique(columns, axis=1, return_counts=True)[1]
    return bool(len(columns.T) < SMALLEST * len(np.unique(step[of])) and repeats.max(initial=1) == 1)


def _lives(trace: Trace, event: int) -> tuple[I64, I64]:
    """(T,) the event before `event` of each tensor's allocation and of its end, -1: none."""
    kind, arg = trace.kind[:event], trace.arg[:event]
    born, died = np.full(trace.tensors, -1, np.int64), np.full(trace.tensors, -1, np.int64)
    made, ended = np.flatnonzero(kind == ALLOC), np.flatnonzero(kind == FREE)
    born[arg[made]], died[arg[ended]] = made, ended
    return born, died


def _marks(trace: Trace, made: I64) -> I64:
    """Indices in `made` at which a step begins: where the tensor that comes back most rarely, but evenly, is allocated."""
    tensor = trace.arg[made]
    _, key = np.unique(np.stack([trace.category[tensor].astype(np.int64), trace.size[tensor]]), axis=1, return_inverse=True)
    key = key.ravel()
    order = np.argsort(key, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(key[order])) + 1)
    groups = [group for group in groups if len(group) >= FEWEST + 1 and _even(group, len(made))]
    widest = max((int(group[-1] - group[0]) for group in groups), default=0)
    found: dict[int, list[I64]] = {}
    for group in groups:
        if group[-1] - group[0] >= widest * MOSTLY:  # what repeats in a part of the program only is a loop within it
            found.setdefault(len(group), []).append(group)
    if not found:
        return np.zeros(0, np.int64)
    fewest = min((count for count, groups in found.items() if len(groups) > 1), default=min(found))
    return min(found[fewest], key=lambda group: int(group[0]))


def _even(at: I64, total: int) -> bool:
    """Whether these allocations come at even distances, but for a few in the beginning, up to the end of the program."""
    gaps = np.diff(at)
    usual = float(np.median(gaps))
    even = (gaps <= EVEN * usual) & (gaps * EVEN >= usual)
    return bool(gaps[even].sum() >= MOSTLY * gaps.sum() and even[-2:].all() and at[-1] + EVEN * usual >= LONG * total)

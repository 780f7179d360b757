"""What grows: the steps of a program, and the tensors that every step leaves behind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpusim.trace.iterations import iterations
from gpusim.trace.trace import ALLOC, FREE, I64, Trace

FEWEST = 3     # steps in which the same tensor has to be left behind
REGULAR = 0.9  # share of the allocations that are as they were one step before
WITHIN = 0.35  # of a step's allocations, at most, may be left behind; more is one pass that saves what it computes


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
    """The steps of a program, by its phases, else by the period of its allocations."""
    number = iterations(trace)
    if number.max(initial=0) > 0:
        return Steps(number, "phases")
    made = np.flatnonzero(trace.kind == ALLOC)
    made = made[int((trace.meta.get("start") or {}).get("tensors", 0)) :]
    period, first = _period(trace, made)
    if not period:
        return Steps(np.full(trace.events, -1, np.int64), "")
    marks = made[first::period]
    number = np.searchsorted(marks, np.arange(trace.events), "right") - 1
    return Steps(number, "allocations")


def leaks(trace: Trace, event: int, found: Steps) -> list[Leak]:
    """Per site what each step left behind up to an event, largest first; [] where no step repeats."""
    if found.count < FEWEST + 1 or event <= 0:
        return []
    born, died = _lives(trace, event)
    step = np.where(born >= 0, found.number[np.maximum(born, 0)], -1)
    now = int(found.number[event - 1])
    if now < 0:
        now = int(found.number[:event].max(initial=-1))
    # Alive over the whole step after its own; what the first step makes is there to stay (states of an optimizer).
    left = (died < 0) & (step >= 1) & (step <= now - 2)
    regular = found.how == "phases" or left.sum() <= WITHIN * ((step >= 1) & (step <= now - 2)).sum()
    if not regular:
        return []
    leaks = []
    for site in np.unique(trace.category[left]).tolist():
        mine = np.flatnonzero(left & (trace.category == site))
        counts = np.bincount(step[mine], minlength=now + 1)[1 : now - 1]
        if np.count_nonzero(counts) < max(FEWEST, 0.6 * len(counts)):
            continue
        # What the first and the last steps made of the same size is there for the same reason.
        alike = np.isin(trace.size, np.unique(trace.size[mine])) & (trace.category == site)
        mine = np.flatnonzero(alike & (died < 0) & (step >= 0))
        leaks.append(Leak(trace.categories[site], mine, int(trace.size[mine].sum()), len(np.unique(step[mine]))))
    return sorted(leaks, key=lambda leak: -leak.bytes)


def _lives(trace: Trace, event: int) -> tuple[I64, I64]:
    """(T,) the event before `event` of each tensor's allocation and of its end, -1: none."""
    kind, arg = trace.kind[:event], trace.arg[:event]
    born, died = np.full(trace.tensors, -1, np.int64), np.full(trace.tensors, -1, np.int64)
    made, ended = np.flatnonzero(kind == ALLOC), np.flatnonzero(kind == FREE)
    born[arg[made]], died[arg[ended]] = made, ended
    return born, died


def _period(trace: Trace, made: I64) -> tuple[int, int]:
    """(allocations per step, index of the first allocation of the first whole step); (0, 0) when nothing repeats."""
    n = len(made)
    if n < 2 * (FEWEST + 1):
        return 0, 0
    key = trace.size[trace.arg[made]] * 1021 + trace.category[trace.arg[made]]
    _, key = np.unique(key, return_inverse=True)
    same = _agreement(key, n)
    longest = n // FEWEST
    if longest < 1:
        return 0, 0
    best = float(same[1 : longest + 1].max())
    if best < REGULAR:
        return 0, 0
    period = 1 + int(np.argmax(same[1 : longest + 1] >= min(best, max(REGULAR, best - 0.005))))
    again = key[period:] == key[:-period]  # the program's beginning (its parameters) does not repeat
    wrong = np.flatnonzero(~again)
    first = int(wrong[wrong < n // 2].max(initial=-1)) + 1 if len(wrong) else 0
    return period, first


def _agreement(key: I64, n: int) -> I64:
    """(n,) the share of allocations, beyond chance, that equal the one so many before, in the second half of the program."""
    tail = key[n // 4 :]
    m = len(tail)
    random = np.random.default_rng(0)
    size = 1 << int(2 * m - 1).bit_length()
    total = np.zeros(m)
    for _ in range(8):
        signs = random.choice([-1.0, 1.0], int(key.max()) + 1)[tail]
        spectrum = np.fft.rfft(signs, size)
        total += np.fft.irfft(spectrum * spectrum.conj(), size)[:m]
    found = total / 8 / np.maximum(m - np.arange(m), 1)
    return np.concatenate([found, np.zeros(n - m)])

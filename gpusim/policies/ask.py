"""Eviction policies in plain Python: what the engine tells them, and what it asks.

The compiled island does not call Python.  It collects what happened and stops when it needs room; then the control
plane hands over the events and asks for victims.  One answer may name as many victims as the policy likes, which is
what makes this fast; the engine uses them in that order until there is room, and asks again when they were too few.
"""

from __future__ import annotations

import inspect
import reprlib
import traceback
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from gpusim.base.errors import PolicyError
from gpusim.policies.compiled import F64, I64, U8
from gpusim.policies.decorators import place_of
from gpusim.policies.entry import Entry, Value

# Kinds of events.
INSERT, TOUCH, EVICTED, FREED = range(4)

NUMBERS = "biuf"  # kinds of dtype that can be scores


class Ask(Protocol):
    """One eviction policy within one simulation."""

    facts: tuple[str, ...]  # columns that `victims` wants
    listens: bool  # False: it is told of no events

    def start(self, n_units: int, capacity: int, seed: int) -> None:
        """Before the first event; capacity in bytes."""

    def events(self, kind: I64, unit: I64, size: I64) -> None:
        """What happened since the last call, in order: INSERT, TOUCH, EVICTED, FREED.  The columns are lent, not given."""

    def victims(self, need: int, locked: U8, sizes: I64, units: I64, facts: Mapping[str, F64]) -> list[int]:
        """Units that shall leave, first to last, until `need` bytes are free.

        locked  uint8[n_units]: 1 may not be chosen        sizes  int64[n_units] bytes
        units   the resident units that are not locked     facts  one column per name in `self.facts`, over `units`
        """
        ...


def own_line(entry: Entry, error: BaseException) -> str:
    """file:line in the user's own file where the error was raised, or where the policy is defined."""
    file = entry.where.rpartition(":")[0]
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f"{file}:{lines[-1]}" if lines else entry.where


@contextmanager
def blamed(entry: Entry) -> Generator[None]:
    """Whatever the policy's own code raises within is told as the policy's fault, with its line."""
    try:
        yield
    except PolicyError:
        raise
    except (Exception, SystemExit) as error:
        message = f"policy '{entry.name}' raised {type(error).__name__}: {error}"
        raise PolicyError(message, own_line(entry, error)) from error


class ColumnAsk:
    """A function of facts, called with whole columns: one numpy array per fact, one score per candidate back."""

    listens = False

    def __init__(self, entry: Entry, function: Any, values: Mapping[str, Value]) -> None:
        self.facts = entry.facts
        self._entry, self._function = entry, function
        self._values = {name: values[name] for name in entry.parameters}

    def start(self, n_units: int, capacity: int, seed: int) -> None:
        pass

    def events(self, kind: I64, unit: I64, size: I64) -> None:
        pass

    def victims(self, need: int, locked: U8, sizes: I64, units: I64, facts: Mapping[str, F64]) -> list[int]:
        order = self.scores(len(units), facts).argsort(kind="stable")
        enough = int(sizes[units[order]].cumsum().searchsorted(need)) + 1
        chosen: list[int] = units[order[:enough]].tolist()
        return chosen

    def scores(self, count: int, facts: Mapping[str, F64]) -> F64:
        """One score per candidate; PolicyError when the function raises or answers anything else."""
        entry = self._entry
        with blamed(entry):
            answer = self._function(*(facts[name] for name in self.facts), **self._values)
        try:
            given = np.asarray(answer)
            if given.dtype.kind not in NUMBERS:
                raise TypeError
            scores = given.astype(np.float64, copy=False)
            if scores.shape != (count,):
                scores = np.broadcast_to(scores, (count,))
        except (TypeError, ValueError):
            message = f"policy '{entry.name}' returned {_described(answer)}, not one number for each of {count} candidates"
            raise PolicyError(message, entry.where) from None
        if np.isnan(scores).any():
            worst = int(np.flatnonzero(np.isnan(scores))[0])
            read = ", ".join(f"{name}={facts[name][worst]:g}" for name in self.facts)
            raise PolicyError(f"policy '{entry.name}' returned nan for {read}", entry.where)
        return scores


def _described(answer: Any) -> str:
    """What a function returned instead of scores, in a few words."""
    if answer is None:
        return "None"
    if isinstance(answer, np.ndarray):
        kind = "" if answer.dtype.kind in NUMBERS else f" of type {answer.dtype}"
        return f"an array of shape {answer.shape}{kind}"
    return f"{reprlib.repr(answer)}, a {type(answer).__name__}"


class ObjectAsk:
    """A user's class with verbs.  Only `victim` is required:

    insert(unit, size)      the unit became resident
    touch(unit, size)       a resident unit was accessed
    remove(unit, size)      the unit left (evicted, or its tensor was freed)
    victim(need, locked)    a resident unit with locked[unit] == 0, or a list of them; None when there is none

    A unit is removed as soon as it is chosen.  If it is used before it has to leave, it is inserted again.
    """

    facts: tuple[str, ...] = ()
    listens = True

    def __init__(self, entry: Entry, cls: Any, values: Mapping[str, Value]) -> None:
        self._entry, self._cls, self._values = entry, cls, dict(values)
        if not callable(getattr(cls, "victim", None)):
            raise PolicyError(f"policy '{entry.name}' has no method 'victim(need, locked)'", entry.where)

    def start(self, n_units: int, capacity: int, seed: int) -> None:
        with blamed(self._entry):
            policy = self._cls(**self._values)
            told = (getattr(policy, name, _ignore) for name in ("insert", "touch", "remove"))
            self._insert, self._touch, self._remove = told
            self._victim = policy.victim
        self._resident = bytearray(n_units)  # 1 for what the policy has been told of and has not chosen

    def events(self, kind: I64, unit: I64, size: I64) -> None:
        with blamed(self._entry):
            for k, u, s in zip(kind.tolist(), unit.tolist(), size.tolist(), strict=True):
                self.hear(k, u, s)

    def hear(self, kind: int, unit: int, size: int) -> None:
        """One thing that has happened."""
        resident = self._resident
        if kind == TOUCH and resident[unit]:
            self._touch(unit, size)
        elif kind <= TOUCH:
            resident[unit] = 1
            self._insert(unit, size)
        elif resident[unit]:
            resident[unit] = 0
            self._remove(unit, size)

    def victims(self, need: int, locked: U8, sizes: I64, units: I64, facts: Mapping[str, F64]) -> list[int]:
        victim, remove, bytes_of = self._victim, self._remove, sizes.data
        chosen: list[int] = []
        with blamed(self._entry):
            while need > 0:
                batch = self._taken(victim(need, locked), locked)
                if not batch:
                    break
                for unit in batch:
                    size = bytes_of[unit]
                    need -= size
                    remove(unit, size)
                chosen += batch
        return chosen

    def _taken(self, answer: Any, locked: U8) -> list[int]:
        """The answer as units, which are resident no more; PolicyError when one of them is not a unit that may leave."""
        if answer is None:
            return []
        resident, taken = self._resident, []
        for unit in answer if type(answer) is list or isinstance(answer, Iterable) else (answer,):
            if type(unit) is not int:
                unit = self._whole(unit)
            if not 0 <= unit < len(resident) or not resident[unit]:
                raise self._refused(unit, "is named twice" if unit in taken else "is not resident")
            if locked[unit]:
                raise self._refused(unit, "is locked: the kernel about to run needs it")
            resident[unit] = 0
            taken.append(unit)
        return taken

    def _whole(self, unit: Any) -> int:
        if isinstance(unit, bool) or not isinstance(unit, int | np.integer):
            raise self._refused(unit, "is not a unit (a whole number)")
        return int(unit)

    def _refused(self, unit: Any, problem: str) -> PolicyError:
        where = place_of(inspect.unwrap(self._cls.victim))
        return PolicyError(f"policy '{self._entry.name}' chose {unit!r}, which {problem}", where)


def _ignore(unit: int, size: int) -> None:
    """A verb that the policy does not define."""

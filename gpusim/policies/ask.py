"""Eviction policies in plain Python: what the engine tells them, and what it asks.

The compiled island does not call Python.  It collects what happened and stops when it needs room; then the control
plane hands over the events and asks for victims.  One answer may name as many victims as the policy likes, which is
what makes this fast; the engine uses them in that order until there is room, and asks again when they were too few.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from gpusim.errors import PolicyError
from gpusim.policies.compiled import F64, I64, U8
from gpusim.policies.entry import Entry, Number

# Kinds of events.
INSERT, TOUCH, EVICTED, FREED = range(4)


class Ask(Protocol):
    """One eviction policy within one simulation."""

    facts: tuple[str, ...]  # columns that `victims` wants

    def start(self, n_units: int, capacity: int, seed: int) -> None:
        """Before the first event; capacity in bytes."""

    def events(self, kind: I64, unit: I64, size: I64) -> None:
        """What happened since the last call, in order: INSERT, TOUCH, EVICTED, FREED."""

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


class ColumnAsk:
    """A function of facts, called with whole columns: one numpy array per fact, one score per candidate back."""

    def __init__(self, entry: Entry, function: Any, values: Mapping[str, Number]) -> None:
        self.facts = entry.facts
        self._entry, self._function = entry, function
        self._values = {name: values[name] for name in entry.parameters}

    def start(self, n_units: int, capacity: int, seed: int) -> None:
        pass

    def events(self, kind: I64, unit: I64, size: I64) -> None:
        pass

    def victims(self, need: int, locked: U8, sizes: I64, units: I64, facts: Mapping[str, F64]) -> list[int]:
        scores = self.scores(len(units), facts)
        order = np.argsort(scores, kind="stable")
        enough = int(np.searchsorted(np.cumsum(sizes[units[order]]), need)) + 1
        return [int(u) for u in units[order[:enough]]]

    def scores(self, count: int, facts: Mapping[str, F64]) -> F64:
        """One score per candidate; PolicyError when the function raises or answers anything else."""
        entry = self._entry
        try:
            answer = self._function(*(facts[name] for name in self.facts), **self._values)
        except (Exception, SystemExit) as error:
            message = f"policy '{entry.name}' raised {type(error).__name__}: {error}"
            raise PolicyError(message, own_line(entry, error)) from error
        try:
            scores = np.broadcast_to(np.asarray(answer, np.float64), (count,))
        except (TypeError, ValueError):
            text = f"an array of shape {np.shape(answer)}" if np.ndim(answer) else repr(answer)
            message = f"policy '{entry.name}' returned {text}, not one number for each of {count} candidates"
            raise PolicyError(message, entry.where) from None
        if np.isnan(scores).any():
            worst = int(np.flatnonzero(np.isnan(scores))[0])
            read = ", ".join(f"{name}={facts[name][worst]:g}" for name in self.facts)
            raise PolicyError(f"policy '{entry.name}' returned nan for {read}", entry.where)
        return scores


class ObjectAsk:
    """A user's class with verbs.  Only `victim` is required:

    insert(unit, size)      the unit became resident
    touch(unit, size)       a resident unit was accessed
    remove(unit, size)      the unit left (evicted, or its tensor was freed)
    victim(need, locked)    a resident unit with locked[unit] == 0, or a list of them; None when there is none
    """

    facts: tuple[str, ...] = ()

    def __init__(self, entry: Entry, cls: Any, values: Mapping[str, Number]) -> None:
        self._entry, self._cls, self._values = entry, cls, dict(values)
        if not callable(getattr(cls, "victim", None)):
            raise PolicyError(f"policy '{entry.name}' has no method 'victim(need, locked)'", entry.where)

    def start(self, n_units: int, capacity: int, seed: int) -> None:
        self._object = self._call(self._cls, **self._values)
        self._resident = np.zeros(n_units, np.uint8)
        self._verbs = [getattr(self._object, name, None) for name in ("insert", "touch", "remove", "remove")]

    def events(self, kind: I64, unit: I64, size: I64) -> None:
        resident = self._resident
        for k, u, s in zip(kind.tolist(), unit.tolist(), size.tolist(), strict=True):
            if k in (EVICTED, FREED) and not resident[u]:
                continue  # chosen by this policy, and told at once
            if k == TOUCH and not resident[u]:
                k = INSERT  # chosen by this policy, but used before it had to leave
            resident[u] = k in (INSERT, TOUCH)
            function = self._verbs[k]
            if function is not None:
                self._call(function, u, s)

    def victims(self, need: int, locked: U8, sizes: I64, units: I64, facts: Mapping[str, F64]) -> list[int]:
        chosen: list[int] = []
        freed = 0
        remove = self._verbs[EVICTED]
        while freed < need:
            answer = self._call(self._object.victim, need - freed, locked)
            if answer is None:
                break
            batch = self._units(answer, locked)
            for unit in batch:
                self._resident[unit] = 0
                freed += int(sizes[unit])
                chosen.append(unit)
                if remove is not None:
                    self._call(remove, unit, int(sizes[unit]))
            if not batch:
                break
        return chosen

    def _units(self, answer: Any, locked: U8) -> list[int]:
        """The answer as units; PolicyError when one of them is not a unit that may leave."""
        batch = list(answer) if isinstance(answer, Iterable) else [answer]
        for unit in batch:
            if isinstance(unit, bool) or not isinstance(unit, int | np.integer):
                problem = "is not a unit (a whole number)"
            elif not 0 <= unit < len(self._resident) or not self._resident[unit]:
                problem = "is not resident"
            elif locked[unit]:
                problem = "is locked: the kernel about to run needs it"
            elif batch.count(unit) > 1:
                problem = "is named twice"
            else:
                continue
            raise PolicyError(f"policy '{self._entry.name}' chose {unit!r}, which {problem}", self._place("victim"))
        return [int(unit) for unit in batch]

    def _place(self, verb: str) -> str:
        from gpusim.policies.user import place_of

        return place_of(inspect.unwrap(getattr(self._cls, verb)))

    def _call(self, function: Any, *args: Any, **values: Any) -> Any:
        try:
            return function(*args, **values)
        except (Exception, SystemExit) as error:
            entry = self._entry
            message = f"policy '{entry.name}' raised {type(error).__name__}: {error}"
            raise PolicyError(message, own_line(entry, error)) from error

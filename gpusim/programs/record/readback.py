"""Values that a program reads back from the GPU, where nothing was computed.

Reading one for a log is common and harmless, so `item()` gives a placeholder that can be counted with and printed ("?").
A condition on it goes the way of a run in which nothing went wrong (see standins.py), and the line is told.  A length is
refused: what the program allocates from there on would be made up.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch

from gpusim.programs.record import running
from gpusim.programs.record.where import RecordError, times_here, users_line, warn, within

HINT = "take this branch by hand while recording: if gpusim.record.active(): ..."
_ENDLESS = 10_000  # decisions at one line within one step: the value never changes, so the loop would not end


def decided(outcome: bool, read_at: Iterable[str] = ()) -> bool:
    """A condition on a value that was not computed, read at these lines; the user is told which way it goes."""
    if (recording := running.current()) is not None:
        recording.tape.decide(read_at)
    if times_here() > _ENDLESS:
        raise RecordError(f"a loop ends by a value that a recording does not compute{within()}", users_line(), HINT)
    warn(f"a condition asks for a value that is not computed while recording{within()}: taken as {str(outcome).lower()}")
    return outcome


def _compare(ask: Callable[[float, Any], Any]) -> Any:
    def compared(self: Unknown, other: Any) -> Any:
        outcome = ask(float(self), float(other) if type(other) is Unknown else other)
        return outcome if outcome is NotImplemented else decided(bool(outcome), self.and_of((other,)).read_at)

    return compared


class Unknown(float):
    """A number that was not computed; it is its stand-in where a number is needed, and "?" where it is shown."""

    read_at: frozenset[str] = frozenset()  # lines at which the program read what it is made of

    @classmethod
    def read(cls, value: Any, line: str) -> Unknown:
        """What the program reads at this line."""
        made = cls(value)
        made.read_at = frozenset((line,))
        return made

    def and_of(self, others: Iterable[Any]) -> Unknown:
        """This number, made of others as well."""
        lines = self.read_at.union(*(other.read_at for other in others if type(other) is Unknown))
        if lines == self.read_at:
            return self
        made = Unknown(float(self))
        made.read_at = lines
        return made

    def _same(self, *others: Any) -> Any:
        return self.and_of(others)

    def _refuse(self, *_: Any) -> Any:
        raise RecordError(f"the program sizes by a value that a recording does not compute{within()}", users_line(), HINT)

    __add__: Any
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _same
    __pow__ = __rpow__ = __neg__ = __abs__ = __round__ = __floordiv__ = __mod__ = _same
    __int__ = __index__ = _refuse
    __lt__, __le__, __gt__ = _compare(operator.lt), _compare(operator.le), _compare(operator.gt)
    __ge__, __eq__, __ne__ = _compare(operator.ge), _compare(operator.eq), _compare(operator.ne)

    def __bool__(self) -> bool:
        return decided(float(self) != 0, self.read_at)

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return "?"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return "?"


def holds_unknown(values: Any) -> bool:
    """Whether there is a placeholder among arguments, lists opened."""
    return any(type(v) is Unknown or (isinstance(v, (list, tuple)) and holds_unknown(v)) for v in values)


def read_scalar(tensor: torch.Tensor) -> Any:
    """What `_local_scalar_dense` gives for a tensor without values: only the number 1, for PyTorch's own optimizers."""
    return 1.0 if tensor.is_floating_point() else 1


def refuse_values(name: str) -> Any:
    """The program asks for values in a way that no placeholder can serve."""
    what = {
        "__int__": "the program turns a tensor's value into an integer",
        "__index__": "the program indexes or sizes by a tensor's value",
        "arange": "the program makes a tensor as long as a value says",
        "data_ptr": "the program, or an extension of it, asks for a tensor's address",
    }.get(name, f"the program reads a tensor's values with .{name.strip('_')}()")
    raise RecordError(f"{what}, which a recording does not compute{within()}", users_line(), HINT)

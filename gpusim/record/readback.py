"""Values that a program reads back from the GPU, where nothing was computed.

Reading one for a log is common and harmless, so `item()` gives a placeholder that can be counted with and printed ("?").
To compare it, or to use it as a length, would let the recording take a path that the real program may not take: refused.
"""

from __future__ import annotations

from typing import Any

import torch

from gpusim.record.where import RecordError, users_line, within

HINT = "take this branch by hand while recording: if gpusim.record.active(): ..."


class Unknown(float):
    """A number that was not computed; it is 1.0 where a number is needed, and "?" where it is shown."""

    def __new__(cls) -> Unknown:
        return super().__new__(cls, 1.0)

    def _same(self, *_: Any) -> Any:
        return self

    def _refuse(self, *_: Any) -> Any:
        raise RecordError(f"the program decides by a value that a recording does not compute{within()}", users_line(), HINT)

    __add__: Any
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _same
    __pow__ = __rpow__ = __neg__ = __abs__ = __round__ = __floordiv__ = __mod__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __bool__ = __int__ = __index__ = _refuse

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
        "__bool__": "the program branches on a tensor's value",
        "__int__": "the program turns a tensor's value into an integer",
        "__index__": "the program indexes or sizes by a tensor's value",
        "arange": "the program makes a tensor as long as a value says",
        "data_ptr": "the program, or an extension of it, asks for a tensor's address",
    }.get(name, f"the program reads a tensor's values with .{name.strip('_')}()")
    raise RecordError(f"{what}, which a recording does not compute{within()}", users_line(), HINT)

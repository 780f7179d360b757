"""Numbers among the words of a study, each within its bounds."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from gpusim.base.errors import GpusimError

Bounds = Mapping[str, tuple[float, float | None]]


def check_bounds(values: Any, said: str, bounds: Bounds) -> None:
    """Attributes, or entries of a dict, are numbers within (least, most), whole where `least` is; None: no most.

    Raises GpusimError that names them as those of `said`.
    """
    for name, (least, most) in bounds.items():
        value = values[name] if isinstance(values, dict) else getattr(values, name)
        kind, highest = Integral if isinstance(least, int) else Real, float("inf") if most is None else most
        if isinstance(value, bool) or not isinstance(value, kind) or not least <= float(value) <= highest:
            whole = "a whole number " if kind is Integral else ""
            hint = f"{whole}from {least:g} on" if most is None else f"{whole}from {least:g} to {most:g}"
            raise GpusimError(f"{name} of {said} is {value!r}", hint=hint)

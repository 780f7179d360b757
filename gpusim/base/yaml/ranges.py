"""What a parameter may be when it is tuned: numbers between two ends, or one of a list."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpusim.base.errors import suggest
from gpusim.base.units import KINDS, Kind
from gpusim.base.yaml.fields import refuse

Number = int | float
KEYS = ("from", "to", "step", "log")
DIGITS = 4  # significant ones of a number that is not whole

_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?)\s*([^\d\s.,_]\S*)?\s*")


@dataclass(frozen=True)
class NumberRange:
    """Numbers from `low` to `high`, both among them.

    unit   with which each is written: "MiB"; "" for plain numbers
    whole  whether all are whole numbers (of that unit)
    step   how far apart they are; None: 1 where they are whole, else any number between the ends
    log    whether 1 to 10 counts as much as 10 to 100
    """

    low: Number
    high: Number
    unit: str = ""
    whole: bool = True
    step: Number | None = None
    log: bool = False

    @property
    def count(self) -> int | None:
        """How many numbers there are; None where any number between the ends will do."""
        if self.step is None and not self.whole:
            return None
        return math.floor((self.high - self.low) / (self.step or 1) + 1e-9) + 1

    def at(self, share: float) -> Number:
        """The number this far (0 to 1) from the low end, by ratio where `log`."""
        if self.log:
            found = self.low * (self.high / self.low) ** share
        else:
            found = self.low + (self.high - self.low) * share
        step = self.step or (1 if self.whole else None)
        if step is not None:
            found = self.low + min(round((found - self.low) / step), (self.count or 1) - 1) * step
        return self.rounded(found)

    def rounded(self, number: float) -> Number:
        """The number as it is written: whole, or with four significant digits, and not outside of the ends."""
        if self.whole:
            return round(number)
        return min(max(float(f"{number:.{DIGITS}g}"), float(self.low)), float(self.high))

    def holds(self, number: Number) -> bool:
        """Whether this is one of the numbers."""
        if not self.low <= number <= self.high:
            return False
        step = self.step or (1 if self.whole else None)
        return step is None or math.isclose((number - self.low) / step, round((number - self.low) / step), abs_tol=1e-9)

    def write(self, number: Number) -> str:
        """As it stands in an experiment: "17", "0.37", "6 MiB"."""
        text = str(number if self.whole else float(number))
        return f"{text} {self.unit}" if self.unit else text

    def read(self, text: object) -> Number | None:
        """The inverse of `write`, also of a quantity in another unit; None for what is no such number."""
        try:
            number, unit = _split(text)
            number = number if unit == self.unit else _in_unit(number, unit, self.unit)
        except ValueError:
            return None
        return int(number) if self.whole and number == int(number) else float(number)

    def __str__(self) -> str:
        between = f"{self.low:g} to {self.high:g}" + (f" {self.unit}" if self.unit else "")
        return between + (f" in steps of {self.step:g}" if self.step else "") + (", by ratio" if self.log else "")


def number_range(value: Mapping[str, Any]) -> NumberRange:
    """From {from, to, step, log}; refused where nothing is between the ends."""
    for key in value:
        if key not in KEYS:
            raise refuse(f"a range has no key '{key}'", suggest(key, KEYS))
    if missing := [key for key in ("from", "to") if key not in value]:
        raise refuse(f"the range lacks '{missing[0]}'", "write {from: 1, to: 64}; with log: true where ratios count")
    log, (low, unit), (high, other) = value.get("log", False), _end(value, "from"), _end(value, "to")
    if not isinstance(log, bool):
        raise refuse(f"log is {log!r}, neither true nor false")
    high = _number(lambda: _in_unit(high, other, unit) if other != unit else high, value["to"])
    step = None if value.get("step") is None else _step(value["step"], unit)
    whole = all(number == int(number) and not _is_real(value[key]) for key, number in (("from", low), ("to", high)))
    whole = whole and (step is None or step == int(step))
    if low >= high:
        said = "is empty" if low > high else "holds one value"
        hint = "write the smaller end at from" if low > high else "write that into the experiment"
        raise refuse(f"the range {said}: from {value['from']} to {value['to']}", hint)
    if step is not None and (step <= 0 or step > high - low):
        raise refuse(f"a step of {value['step']} leaves one value between {value['from']} and {value['to']}")
    if log and low <= 0:
        raise refuse(f"log: true needs ends above 0, and the range begins at {value['from']}", "leave log out")
    if log and step is not None:
        raise refuse("a range has log or a step, not both", "leave one of them out")
    convert = int if whole else float
    return NumberRange(convert(low), convert(high), unit, whole, None if step is None else convert(step), log)


def values(value: Any) -> NumberRange | tuple[Any, ...]:
    """From a range or a list of at least two values."""
    if isinstance(value, NumberRange):
        return value
    if isinstance(value, dict) and ({*KEYS} & set(value)):
        return number_range(value)
    if not isinstance(value, list | tuple):
        raise refuse("neither a range nor a list of values", "write {from: 1, to: 64} or [a, b]")
    if len(value) < 2:
        raise refuse("the list leaves nothing to choose", "name at least two values, or leave the parameter out")
    texts = [str(each) for each in value]
    if twice := next((text for text in texts if texts.count(text) > 1), None):
        raise refuse(f"'{twice}' stands twice in the list")
    return tuple(value)


def _end(value: Mapping[str, Any], key: str) -> tuple[Number, str]:
    return _number(lambda: _split(value[key]), value[key])


def _number(read: Any, said: object) -> Any:
    try:
        return read()
    except ValueError as error:
        raise refuse(f"{error}" if str(error) else f"{said!r} is not a number", "write 64, 0.5 or 2 MiB") from None


def _step(value: object, unit: str) -> Number:
    number, other = _number(lambda: _split(value), value)
    return number if not other or other == unit else _number(lambda: _in_unit(number, other, unit), value)


def _split(value: object) -> tuple[Number, str]:
    """(2, "MiB") of "2 MiB", (64, "") of 64.  ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ValueError(f"{value!r} is not finite")
        return value, ""
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a number")
    if match[2]:
        _kind(match[2])
    number = float(match[1])
    return (int(number) if number == int(number) and "." not in match[1] else number), match[2] or ""


def _kind(unit: str) -> Kind:
    for kind in KINDS:
        if unit and unit in kind.units:
            return kind
    raise ValueError(f"'{unit}' is not a unit" if unit else "one end has a unit, the other has none")


def _in_unit(number: Number, unit: str, wanted: str) -> Number:
    """A number of one unit in another of its kind.  ValueError."""
    kind = _kind(wanted)
    if unit not in kind.units or not unit:
        raise ValueError(f"{unit or 'a number without unit'} is not {kind.noun}, which {wanted} is")
    exact = Decimal(str(number)) * kind.units[unit] / kind.units[wanted]
    return int(exact) if exact == int(exact) else float(exact)


def _is_real(value: object) -> bool:
    """Written with a point: 1.0 is the number one, not a count."""
    return isinstance(value, float) or (isinstance(value, str) and "." in value)

"""Quantities as people write them ("32 GiB", "450 GB/s", "1.5 us", "60 %") and the base units in which gpusim computes.

    kind        base unit    Python   examples
    BYTES       bytes        int      32 GiB, 512 kB
    RATE        bytes/s      float    450 GB/s, 1.5 TiB/s
    TIME        ns           float    1.5 us, 20 ms
    FRACTION    1            float    60 %
    FLOPS       flop/s       float    312 TFLOP/s
    FREQUENCY   Hz           float    1.41 GHz
    POWER       W            float    700 W

`parse` is strict: a number without a unit, bits, and a quantity of another kind are refused with a hint.
`write` is its exact inverse; `show` rounds for people.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal

from gpusim.base.errors import UnitError, suggest

INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class Kind:
    """What is measured, in which units it may be written (unit -> how many base units), and an example for hints."""

    noun: str  # with its article, as it stands in "... is wanted"
    units: dict[str, Decimal]
    example: str
    whole: bool = False
    shown: tuple[str, ...] = ()  # units that `show` chooses from; all when empty

    @property
    def base(self) -> str:
        return next(u for u, factor in self.units.items() if factor == 1)


_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}


def _prefixed(unit: str, binary: bool = False) -> dict[str, Decimal]:
    units = {prefix + unit: Decimal(10) ** power for prefix, power in _DECIMAL.items()}
    if binary:
        units |= {prefix + unit: Decimal(2**power) for prefix, power in _BINARY.items()}
    return units


BYTES = Kind("a size", _prefixed("B", binary=True), "32 GiB", whole=True, shown=("B", *(prefix + "B" for prefix in _BINARY)))
RATE = Kind("a rate", _prefixed("B/s", binary=True), "450 GB/s", shown=tuple(prefix + "B/s" for prefix in _DECIMAL))
TIME = Kind(
    "a time",
    {
        "ns": Decimal(1), "us": Decimal(10**3), "µs": Decimal(10**3), "ms": Decimal(10**6), "s": Decimal(10**9),
        "min": Decimal(60 * 10**9), "h": Decimal(3600 * 10**9), "d": Decimal(86400 * 10**9),
    },
    "1.5 us",
    shown=("ns", "us", "ms", "s"),
)
FRACTION = Kind("a percentage", {"": Decimal(1), "%": Decimal("0.01")}, "60 %", shown=("%",))
FLOPS = Kind("a compute rate", _prefixed("FLOP/s"), "312 TFLOP/s")
FREQUENCY = Kind("a frequency", _prefixed("Hz"), "1.41 GHz")
POWER = Kind("a power", {"W": Decimal(1), "kW": Decimal(1000)}, "700 W", shown=("W",))
KINDS = (BYTES, RATE, TIME, FRACTION, FLOPS, FREQUENCY, POWER)

_QUANTITY = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\d\s.,_].*)?")
_BITS = re.compile(r"([kMGTP]?)(?:b|bit|bits)(/s|ps)?|([kmgtp])bps", re.IGNORECASE)


def parse(text: object, kind: Kind) -> int | float:
    """The value of `text` in the base unit of `kind`.

    Sizes are rounded to whole bytes.  Raises UnitError, with a hint of what to write instead.
    """
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise UnitError(f"{kind.noun} is wanted, not {_describe(text)}", hint=f"write for example '{kind.example}'")
    if not isinstance(text, str):
        raise UnitError(f"{text} has no unit: {kind.noun} is wanted", hint=_bare_hint(str(text), kind))
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise UnitError(f"'{_short(text)}' is not {kind.noun}", hint=f"write for example '{kind.example}'")
    digits, unit = match.group(1), (match.group(2) or "").strip()
    if not unit:
        raise UnitError(f"'{digits}' has no unit: {kind.noun} is wanted", hint=_bare_hint(digits, kind))
    number = Decimal(digits)
    if number < 0:
        raise UnitError(f"'{_short(text)}' is negative", hint=f"{kind.noun} is never below 0")
    if unit not in kind.units:
        raise UnitError(*_wrong_unit(digits, unit, kind))
    if number and not -40 < number.adjusted() < 40:  # before any arithmetic: '1e999999999 B' must not be expanded
        raise UnitError(f"'{_short(text)}' is out of range", hint=f"write for example '{kind.example}'")
    value = number * kind.units[unit]
    if not kind.whole:
        return float(value)
    if value > INT64_MAX:
        raise UnitError(f"'{_short(text)}' is more than 8 EiB, the largest size that can be counted")
    if unit == "B" and value != int(value):
        raise UnitError(f"'{_short(text)}' is not a whole number of bytes")
    return round(value)


def parse_bytes(text: object) -> int:
    """Bytes of "32 GiB"."""
    return int(parse(text, BYTES))


def parse_rate(text: object) -> float:
    """Bytes per second of "450 GB/s"."""
    return float(parse(text, RATE))


def parse_time(text: object) -> float:
    """Nanoseconds of "1.5 us"."""
    return float(parse(text, TIME))


def write(value: float, kind: Kind) -> str:
    """The shortest text that `parse` reads back as exactly `value` (base units, finite, not negative)."""
    exact = Decimal(value) if isinstance(value, int) else Decimal(repr(float(value)))
    candidates = []
    for unit in kind.units:
        if unit in ("", "µs"):
            continue
        scaled = exact / kind.units[unit]
        if scaled * kind.units[unit] == exact:
            digits = f"{scaled.normalize():f}"
            candidates.append((len(digits), float(abs(scaled)) < 1, -float(kind.units[unit]), f"{digits} {unit}"))
    return min(candidates)[-1]


def show(value: float, kind: Kind, digits: int = 3) -> str:
    """`value` (base units) rounded to `digits` significant digits in the unit that reads best: "3.2 GiB", "1.5 ms"."""
    if math.isnan(value):
        return "?"
    units = sorted((float(kind.units[unit]), unit) for unit in kind.shown or tuple(kind.units))
    size = abs(value)
    factor, unit = next(((f, u) for f, u in reversed(units) if size >= f), units[0])
    if math.isinf(value) or value == 0:
        return f"{value:g} {kind.base if kind is not FRACTION else '%'}".replace("inf", "∞")
    rounded = _round(value / factor, digits)
    larger = [(f, u) for f, u in units if f > factor]
    if larger and abs(rounded) * factor >= larger[0][0]:  # 1023.9 KiB reads 1 MiB
        factor, unit = larger[0]
        rounded = _round(value / factor, digits)
    return f"{rounded:,.10f}".rstrip("0").rstrip(".") + f" {unit}"


def show_bytes(value: float, digits: int = 3) -> str:
    return show(value, BYTES, digits)


def show_rate(value: float, digits: int = 3) -> str:
    return show(value, RATE, digits)


def show_time(value: float, digits: int = 3) -> str:
    return show(value, TIME, digits)


def show_fraction(value: float, digits: int = 3) -> str:
    return show(value, FRACTION, digits)


def _round(value: float, digits: int) -> float:
    """`digits` significant digits, but never fewer than the digits before the point."""
    return round(value, max(0, digits - 1 - math.floor(math.log10(abs(value)))))


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _describe(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, (list, tuple)) else type(value).__name__


def _bare_hint(digits: str, kind: Kind) -> str:
    number = Decimal(digits)
    if not number.is_finite() or number < 0:
        return _example(kind)
    if 5 < number.adjusted() < 25 and kind is not FRACTION:  # large: base units were meant
        return f"write '{write(float(number), kind)}' if {kind.base} is meant"
    unit = kind.example.split(" ", 1)[1]
    return f"write its unit, for example '{digits} {unit}'"


def _wrong_unit(digits: str, unit: str, kind: Kind) -> tuple[str, str, str]:
    """(message, where, hint) for a unit that `kind` does not have."""
    text = f"{digits} {_short(unit)}"
    bits = _BITS.fullmatch(unit)
    if bits and kind in (BYTES, RATE) and "b" in unit and "B" not in unit:
        prefix = (bits.group(1) or bits.group(3) or "").replace("K", "k")
        prefix = prefix if prefix in _DECIMAL else prefix.upper()
        per_second = "/s" if bits.group(2) or bits.group(3) else ""
        number = Decimal(digits)
        eighth = f"{(number / 8).normalize():f}" if -40 < number.adjusted() < 40 else "..."
        return (
            f"'{text}' counts bits; {kind.noun} is counted in bytes",
            "",
            f"{text} is {eighth} {prefix}B{per_second}" if (kind is RATE) == bool(per_second) else _example(kind),
        )
    for other in KINDS:
        if unit in other.units:
            hint = _example(kind)
            if kind is BYTES and other is RATE:
                hint = f"did you mean '{digits} {unit.removesuffix('/s')}'?"
            elif kind is RATE and other is BYTES:
                hint = f"did you mean '{digits} {unit}/s'?"
            return f"'{text}' is {other.noun}, but {kind.noun} is wanted", "", hint
    known = [u for u in kind.units if u and u != "µs"]
    if unit in ("KB", "KB/s"):
        return f"'{text}': KB can mean 1000 or 1024 bytes", "", f"write k{unit[1:]} (1000) or Ki{unit[1:]} (1024)"
    plain = re.sub(r"(?i)flops$", "FLOP/s", unit)
    plain = re.sub(r"(?<=[bB])ps$", "/s", plain)
    same = [u for u in known if u.lower() == plain.lower()]
    hint = f"write '{digits} {same[0]}'" if len(same) == 1 else suggest(unit, known)
    return f"'{_short(unit)}' is not a unit of {kind.noun.split(' ', 1)[1]}", "", hint or _example(kind)


def _example(kind: Kind) -> str:
    return f"write for example '{kind.example}'"

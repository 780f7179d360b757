"""What an axis of an experiment may hold beside plain words: memory sizes, grains, tiers, and policies with parameters."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from gpusim.base.errors import UnitError
from gpusim.base.units import BYTES, FRACTION, parse, write
from gpusim.base.yaml.fields import refuse

Number = int | float

_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NEXT = re.compile(r",(?=\s*(?:\w+\s*=|$))")  # the comma before another parameter: text may have commas of its own


@dataclass(frozen=True)
class Capacity:
    """Memory of a run: bytes, a fraction of the trace's footprint, or (neither) what the device (or host) has."""

    bytes: int | None = None
    fraction: float | None = None

    def resolve(self, footprint: int, machine: int) -> int:
        """Bytes, given the footprint (peak of live bytes) of the trace and what the machine offers."""
        if self.fraction is not None:
            return math.ceil(self.fraction * footprint)
        return machine if self.bytes is None else self.bytes

    def __str__(self) -> str:
        if self.fraction is not None:
            return write(self.fraction, FRACTION)
        return "capacity" if self.bytes is None else write(self.bytes, BYTES)


def capacity(value: Any) -> Capacity:
    """From a size, a percentage or `capacity`."""
    if isinstance(value, Capacity):
        return value
    if isinstance(value, str) and value.strip() == "capacity":
        return Capacity()
    try:
        if isinstance(value, str) and value.rstrip().endswith("%"):
            found = Capacity(fraction=float(parse(value, FRACTION)))
        else:
            found = Capacity(bytes=int(parse(value, BYTES)))
    except UnitError as error:
        other = "'60 %' of the footprint, or 'capacity'"
        raise UnitError(error.message, hint=f"{error.hint}; or {other}" if error.hint else f"write a size, {other}") from None
    if not (found.bytes or found.fraction):
        raise UnitError(f"'{value}' leaves no memory at all")
    return found


_MACHINE = re.compile(r"(.*?)\((.*=.*)\)\s*", re.DOTALL)
_SLICE = re.compile(r"(.*\S)\s*/\s*(\d+g\.\d+gb)\s*")
_NUMBER = re.compile(r",(?=\s*[\w.]+\s*=)")


def machine(text: str) -> tuple[str, list[tuple[str, str]]]:
    """From "a100-pcie-80gb(launch.submit=8 us)": the profile, and its numbers that are others here, as (path, text).

    Of a MIG slice, "a100-sxm4-80gb/3g.40gb", the profile is that of the whole GPU.
    """
    match = _MACHINE.fullmatch(text)
    if not match:
        return whole_and_slice(text)[0], []
    pairs = (part.partition("=") for part in _NUMBER.split(match[2]))
    return whole_and_slice(match[1].strip())[0], [(path.strip(), given.strip()) for path, _, given in pairs]


def whole_and_slice(text: str) -> tuple[str, str]:
    """From "a100-sxm4-80gb/3g.40gb": the GPU and its MIG slice, "" for none."""
    before, bracket, _ = text.partition("(")
    match = _SLICE.fullmatch(before)
    return (match[1], match[2]) if match else (before if bracket else text, "")


@dataclass(frozen=True)
class PolicySpec:
    """A policy by name, with the parameters given to it (sorted; the others keep their defaults)."""

    name: str
    params: tuple[tuple[str, Number | str], ...] = ()

    @property
    def path(self) -> str:
        """The file that the policy reads, "" for none: its parameter `path`."""
        return str(dict(self.params).get("path", ""))

    def __str__(self) -> str:
        return self.name + (f"({', '.join(f'{k}={v}' for k, v in self.params)})" if self.params else "")


NONE = PolicySpec("none")


def policy(value: Any) -> PolicySpec:
    """From `name`, `name(k=4)` or `{name: {k: 4}}`."""
    if isinstance(value, PolicySpec):
        return value
    if isinstance(value, dict) and len(value) == 1:
        name, params = next(iter(value.items()))
        if not isinstance(params or {}, dict):
            raise refuse(f"the parameters of '{name}' must be a mapping", f"write {name}(parameter=value)")
    elif isinstance(value, str) and (match := _CALL.fullmatch(value)):
        name, params = match[1], _arguments(match[2] or "", value)
    else:
        halved = isinstance(value, str) and ("(" in value) != (")" in value)
        raise refuse(
            f"{value!r} is not a policy",
            'a bracket is missing; in a list of YAML a comma ends an entry unless it is in quotes: "name(a=1, b=2)"' if halved
            else "write name, name(parameter=value) or {name: {parameter: value}}",
        )  # fmt: skip
    for key, given in (params or {}).items():
        if isinstance(given, bool) or not isinstance(given, (int, float, str)):
            raise refuse(f"parameter '{key}' of '{name}' is {given!r}, neither a number nor text")
        if isinstance(given, float) and not math.isfinite(given):
            raise refuse(f"parameter '{key}' of '{name}' is {given!r}, not a number")
    return PolicySpec(name, tuple(sorted((params or {}).items())))


def _arguments(text: str, spec: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in _NEXT.split(text))):
        key, equals, given = (p.strip() for p in part.partition("="))
        if not (key and equals):
            raise refuse(f"'{part}' in '{spec}' is not a parameter", "write parameter=value")
        if key in values:
            raise refuse(f"'{spec}' gives parameter '{key}' twice")
        try:
            values[key] = int(given) if re.fullmatch(r"[-+]?\d{1,18}", given) else float(given)
        except ValueError:
            values[key] = given
    return values


def tiers(value: Any) -> Any:
    """A chain of tiers with one space around each `>`; whether they exist is the loader's question."""
    return " > ".join(part.strip() for part in value.split(">")) if isinstance(value, str) else value

"""A number of a machine: `{value: 450 GB/s, basis: measured, source: key}`, in base units once it is read.

basis       measured   by a run; the source names its author, machine and method
            published  the vendor's figure
            estimated  neither is known; the source states the rule that it follows from
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, StrictInt, ValidationInfo, model_validator
from pydantic.dataclasses import dataclass

from gpusim.base.errors import suggest
from gpusim.base.units import BYTES, FLOPS, FRACTION, FREQUENCY, POWER, RATE, TIME, Kind, show
from gpusim.base.yaml import fields
from gpusim.base.yaml.fields import STRICT, refuse

Basis = Literal["measured", "published", "estimated"]


def _known_source(key: str, info: ValidationInfo) -> str:
    """The validation context is the table of sources."""
    if info.context is not None and key not in info.context:
        raise refuse(f"'{key}' is not in the table 'sources'", suggest(key, info.context))
    return key


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Quantity:
    """A number with its basis and its source, and error bars where they are known."""

    kind: ClassVar[Kind | None] = None
    value: float
    basis: Basis
    """measured, published (by the vendor) or estimated (by the rule that the source states)."""
    source: Annotated[str, AfterValidator(_known_source)]
    """A key of the table `sources`."""
    low: float | None = None
    """The lowest value that is known or likely."""
    high: float | None = None
    """The highest value that is known or likely."""
    note: str = ""

    @model_validator(mode="after")
    def _ordered(self) -> Quantity:
        if self.low is not None and self.low > self.value:
            raise refuse(f"low ({self.text(self.low)}) is above the value ({self.text()})")
        if self.high is not None and self.high < self.value:
            raise refuse(f"high ({self.text(self.high)}) is below the value ({self.text()})")
        return self

    def text(self, value: float | None = None, digits: int = 6) -> str:
        """The value (or another one of this kind) with its unit, rounded."""
        value = self.value if value is None else value
        return f"{value:g}" if self.kind is None else show(value, self.kind, digits)


def _positive(quantity: Rate | Compute) -> Rate | Compute:
    if not quantity.value > 0:
        raise refuse("a rate of 0 would never come to an end")
    return quantity


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Size(Quantity):
    """Bytes."""

    kind: ClassVar[Kind | None] = BYTES
    value: fields.Bytes
    low: fields.Bytes | None = None
    high: fields.Bytes | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Rate(Quantity):
    """Bytes per second."""

    kind: ClassVar[Kind | None] = RATE
    value: fields.BytesPerSecond
    low: fields.BytesPerSecond | None = None
    high: fields.BytesPerSecond | None = None

    @model_validator(mode="after")
    def _moves(self) -> Rate:
        _positive(self)
        return self


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Time(Quantity):
    """Nanoseconds."""

    kind: ClassVar[Kind | None] = TIME
    value: fields.Nanoseconds
    low: fields.Nanoseconds | None = None
    high: fields.Nanoseconds | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Compute(Quantity):
    """Floating point operations per second."""

    kind: ClassVar[Kind | None] = FLOPS
    value: fields.FlopPerSecond
    low: fields.FlopPerSecond | None = None
    high: fields.FlopPerSecond | None = None

    @model_validator(mode="after")
    def _moves(self) -> Compute:
        _positive(self)
        return self


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Frequency(Quantity):
    """Hz."""

    kind: ClassVar[Kind | None] = FREQUENCY
    value: fields.Hertz
    low: fields.Hertz | None = None
    high: fields.Hertz | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Power(Quantity):
    """W."""

    kind: ClassVar[Kind | None] = POWER
    value: fields.Watts
    low: fields.Watts | None = None
    high: fields.Watts | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Share(Quantity):
    """A fraction of 1."""

    kind: ClassVar[Kind | None] = FRACTION
    value: fields.Fraction
    low: fields.Fraction | None = None
    high: fields.Fraction | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Count(Quantity):
    """A number of things, without a unit."""

    value: Annotated[StrictInt, Field(ge=1)]
    low: fields.Natural | None = None
    high: fields.Natural | None = None

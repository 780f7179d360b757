"""Field types of the models: quantities that are read from text with a unit, and settings shared by all models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, StrictInt, WithJsonSchema
from pydantic_core import PydanticCustomError

from gpusim.base.errors import ConfigError, GpusimError
from gpusim.base.units import BYTES, FLOPS, FRACTION, FREQUENCY, POWER, RATE, TIME, Kind, parse

# Unknown keys are refused.  Models are frozen pydantic dataclasses: plain values that may call a field `copy`.
# The text under a field is its description, in JSON Schema and in `gpusim profiles` (`descriptions`).
STRICT = ConfigDict(extra="forbid")


def refuse(message: str, hint: str = "") -> PydanticCustomError:
    """A validator's refusal that keeps its hint: the text is shown as it is, at the value's place in the file."""
    return PydanticCustomError("gpusim", "{message}", {"message": message, "hint": hint})


def checked(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`function` as a validator: its GpusimError becomes a refusal, which names the other file where there is one."""

    def validate(value: Any) -> Any:
        try:
            return function(value)
        except GpusimError as error:
            where = error.problems[0].where if isinstance(error, ConfigError) and error.problems else error.where
            raise refuse(f"{where}: {error.message}" if where else error.message, error.hint) from None

    return validate


def quantity_pattern(kind: Kind) -> str:
    """A regular expression (no anchors, JavaScript's and Python's dialect) for quantities of this kind."""
    units = "|".join(u for u in kind.units if u)
    return rf"\s*\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*({units})\s*"


def quantity(kind: Kind) -> tuple[BeforeValidator, WithJsonSchema]:
    """What a field of this kind carries: its reader, and its JSON Schema (text of number and unit)."""
    pattern = f"^{quantity_pattern(kind)}$"
    schema = {"type": "string", "pattern": pattern, "description": f"{kind.noun}, for example '{kind.example}'"}
    return BeforeValidator(checked(lambda value: parse(value, kind))), WithJsonSchema(schema)


# Read, each, as one value in the base unit of its kind.
Bytes = Annotated[int, *quantity(BYTES)]
BytesPerSecond = Annotated[float, *quantity(RATE)]
Nanoseconds = Annotated[float, *quantity(TIME)]
Fraction = Annotated[float, *quantity(FRACTION)]
FlopPerSecond = Annotated[float, *quantity(FLOPS)]
Hertz = Annotated[float, *quantity(FREQUENCY)]
Watts = Annotated[float, *quantity(POWER)]
Natural = Annotated[StrictInt, Field(ge=0)]

"""What questions as YAML files have in common: every list in one is an axis, and all combinations of the axes are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import product
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import BeforeValidator, Field

from gpusim.base.errors import GpusimError

T = TypeVar("T")


def _many(value: Any) -> Any:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


Axis = Annotated[tuple[T, ...], BeforeValidator(_many), Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(ge=0)]
Words = dict[str, tuple[Any, ...]]


class OfAxes:
    """A file with a question; AXES names the field whose own fields are the axes."""

    AXES: ClassVar[str]

    def words(self) -> Words:
        """What is said, in the order of the fields."""
        return words_of(getattr(self, self.AXES))

    def axes(self) -> Words:
        """What of it has several values."""
        return several(self.words())


@dataclass(frozen=True)
class QuestionPoint(Generic[T]):
    """One combination: the values of the axes, what came of it and its numbers, or why nothing did."""

    values: dict[str, Any]
    answer: T | None
    numbers: dict[str, Any]
    why: str = ""

    def row(self) -> dict[str, Any]:
        """The axes' values and the numbers by which combinations are compared."""
        return {**self.values, **(self.numbers if self.answer is not None else {"why not": self.why})}


def words_of(axes: Any) -> Words:
    """What a file says of the fields of `axes`, in their order; what it leaves out is None there."""
    found = {f.name: getattr(axes, f.name) for f in fields(axes)}
    return {name: values for name, values in found.items() if values is not None}


def several(words: Words) -> Words:
    """What of it has several values."""
    return {name: values for name, values in words.items() if len(values) > 1}


def combinations(words: Words) -> Iterator[dict[str, Any]]:
    """All of them, in the order of the axes."""
    for values in product(*words.values()):
        yield dict(zip(words, values, strict=True))


def points(
    words: Words, answer: Callable[[dict[str, Any]], T], numbers: Callable[[T], dict[str, Any]]
) -> list[QuestionPoint[T]]:  # fmt: skip
    """All combinations, in the order of the axes; what cannot be run says why."""
    found = []
    for one in combinations(words):
        shown = {name: one[name] for name in several(words)}
        try:
            came = answer(one)
        except GpusimError as error:
            found.append(QuestionPoint[T](shown, None, {}, error.message))
        else:
            found.append(QuestionPoint(shown, came, numbers(came)))
    return found


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a row, of four digits."""
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in row.items()}

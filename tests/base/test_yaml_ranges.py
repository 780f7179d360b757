"""Ranges of numbers: what they hold, how they are written, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_core import PydanticCustomError

from gpusim.base.yaml.ranges import NumberRange, values


@pytest.mark.parametrize(
    ("given", "count", "shown", "ends"),
    [
        ({"from": 1, "to": 64}, 64, "1 to 64", ("1", "64")),
        ({"from": 1, "to": 64, "log": True}, 64, "1 to 64, by ratio", ("1", "64")),
        ({"from": 0, "to": 100, "step": 30}, 4, "0 to 100 in steps of 30", ("0", "90")),
        ({"from": 0.5, "to": 4}, None, "0.5 to 4", ("0.5", "4.0")),
        ({"from": "2 MiB", "to": "1 GiB", "step": "2 MiB"}, 512, "2 to 1024 MiB in steps of 2", ("2 MiB", "1024 MiB")),
        ({"from": "50 %", "to": "60 %"}, 11, "50 to 60 %", ("50 %", "60 %")),
    ],
)
def test_what_a_range_holds(given: dict[str, Any], count: int | None, shown: str, ends: tuple[str, str]) -> None:
    found = values(given)
    assert isinstance(found, NumberRange)
    assert (found.count, str(found)) == (count, shown)
    assert (found.write(found.at(0)), found.write(found.at(1))) == ends
    for share in (0, 0.1, 0.37, 0.5, 1):
        number = found.at(share)
        assert found.holds(number) and found.read(found.write(number)) == number


def test_ratios_lie_in_the_middle_of_a_range_by_ratio() -> None:
    assert values({"from": 1, "to": 64, "log": True}).at(0.5) == 8
    assert values({"from": 1, "to": 65}).at(0.5) == 33


def test_a_quantity_is_read_in_another_unit() -> None:
    grain = values({"from": "2 MiB", "to": "64 MiB"})
    assert grain.read("4096 KiB") == 4
    assert [grain.read(text) for text in ("tensor", "4", "4 us", None)] == [None] * 4
    assert not grain.holds(1) and not grain.holds(2.5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"from": 64, "to": 1}, "the range is empty"),
        ({"from": 1, "to": 1}, "holds one value"),
        ({"from": 1, "to": 4, "step": 9}, "leaves one value"),
        ({"from": 0, "to": 4, "log": True}, "needs ends above 0"),
        ({"from": 1, "to": 4, "log": True, "step": 1}, "log or a step, not both"),
        ({"from": 1, "to": 4, "log": "yes"}, "neither true nor false"),
        ({"from": 1}, "lacks 'to'"),
        ({"from": 1, "to": 4, "form": 2}, "no key 'form'"),
        ({"from": "a", "to": 4}, "'a' is not a number"),
        ({"from": True, "to": 4}, "True is not a number"),
        ({"from": float("nan"), "to": 4}, "nan is not finite"),
        ({"from": "2 MiB", "to": "3 us"}, "us is not a size"),
        ({"from": "2 MiB", "to": 3}, "a number without unit is not a size"),
        ({"from": 2, "to": "3 MiB"}, "one end has a unit, the other has none"),
        ({"from": "2 foo", "to": "3 foo"}, "'foo' is not a unit"),
        (["a"], "leaves nothing to choose"),
        (["a", "a"], "stands twice"),
        (7, "neither a range nor a list"),
    ],
)
def test_what_is_no_range_is_refused(given: Any, said: str) -> None:
    with pytest.raises(PydanticCustomError) as refused:
        values(given)
    assert said in str(refused.value)

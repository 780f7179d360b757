"""Are tables made as their tuple declares them, by name?"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from numba import typeof

from gpusim.base.tables import f8, filled, i8, record, signature
from gpusim.engine.state import COUNTS, ISLAND, Island, PolicyVerbs
from gpusim.policies import contract
from gpusim.policies.verb_table import signatures

ROW = record([("at", i8), ("rate", f8)])


class Two(NamedTuple):
    rows: Annotated[Any, ROW, "R"]
    waits: Annotated[Any, i8, 2, "R"]
    spare: Annotated[Any, f8, "nothing says"]


def test_axes_are_as_long_as_their_names_say() -> None:
    made = filled(Two, {"R": 3}, waits=np.ones((2, 3), np.int64))
    assert made.rows.shape == (3,) and made.rows.dtype == ROW and not made.rows["at"].any()
    assert made.waits.sum() == 6 and made.spare.shape == (1,)
    assert typeof(made) == signature(Two)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"waits": np.zeros((2, 3))}, "Two.waits is int64 with 2 axes, not float64 with 2 axes"),
        ({"waits": np.zeros(3, np.int64)}, "Two.waits is int64 with 2 axes, not int64 with 1 axes"),
        ({"wait": np.zeros(3)}, "wait"),
    ],
)
def test_what_is_not_declared_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        filled(Two, {"R": 3}, **wrong)


def test_the_island_is_what_its_kernels_are_compiled_for() -> None:
    made = filled(Island, {"Q": 2, "U": 5})
    assert typeof(made) == ISLAND
    assert made.after.shape == (5, 2) and made.flags.shape == (3, 5) and made.counts.dtype == COUNTS


def test_every_verb_has_the_signature_of_its_contract() -> None:
    found = signatures(PolicyVerbs)
    assert found["victim"] == contract.VICTIM and found["release"] == contract.RELEASING
    assert tuple(found) == PolicyVerbs._fields

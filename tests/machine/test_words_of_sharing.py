"""Are the words for what is shared read in any order, and refused where they say nothing?"""

from __future__ import annotations

import pytest

from gpusim.base.errors import GpusimError
from gpusim.machine import sharing


def test_words_have_one_order() -> None:
    assert sharing.parse(["engines", "sms"]) == sharing.parse(" engines,sms ") == ("sms", "engines")
    assert sharing.write(sharing.parse("memory")) == "memory"
    assert sharing.parse(sharing.write(sharing.WORDS)) == sharing.WORDS
    assert sharing.parse("none") == sharing.parse([]) == sharing.parse(["none"]) == ()
    assert sharing.write(()) == "none"


@pytest.mark.parametrize(
    ("value", "said"),
    [("sm", "'sm' is nothing that is shared"), (["none", "sms"], "'none' stands alone"), (3, "3 is no list")],
)
def test_other_words_are_refused(value: object, said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        sharing.parse(value)


@pytest.mark.parametrize("value", [0, 101, 12.5, True, "50"])
def test_a_percentage_is_a_whole_number_up_to_100(value: object) -> None:
    with pytest.raises(GpusimError, match="whole number from 1 to 100"):
        sharing.percentage(value)
    assert sharing.percentage(1) == 1

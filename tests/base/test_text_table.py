"""Is a table of words and numbers read without a ruler, also in a narrow terminal?"""

from __future__ import annotations

import pytest

from gpusim.base.text import table

ROWS = [
    {"model": "gpt2-small", "parameters": 124_439_808, "help": "Twelve layers of width 768 and one embedding"},
    {"model": "resnet50", "parameters": 25_557_032, "help": "Short"},
]
COLUMNS = ["model", "parameters", "help"]


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    assert table(ROWS, COLUMNS).splitlines()[2:] == [
        "gpt2-small  124,439,808  Twelve layers of width 768 and one embedding",
        "resnet50     25,557,032  Short",
    ]


def test_a_narrow_table_goes_on_in_further_lines_and_cuts_no_number() -> None:
    assert table(ROWS, COLUMNS, 50).splitlines() == [
        "model        parameters  help",
        "----------  -----------  -------------------------",
        "gpt2-small  124,439,808  Twelve layers of width",
        "                         768 and one embedding",
        "resnet50     25,557,032  Short",
    ]


@pytest.mark.parametrize("width", [1, 20, 49, 50, 60, 69, 70, 200])
def test_every_word_is_there_whatever_the_width(width: int) -> None:
    lines = table(ROWS, COLUMNS, width).splitlines()
    assert sorted(" ".join(lines[2:]).split()) == sorted(table(ROWS, COLUMNS).split()[6:])
    assert max(map(len, lines)) <= max(width, 49)

"""Do errors say where, what and what to try, and survive being made anew from their args?"""

import pickle

import pytest

from gpusim.base import errors
from gpusim.base.errors import ConfigError, GpusimError, PolicyError, Problem, nearest, suggest


@pytest.mark.parametrize(
    "error",
    [
        PolicyError("no such policy", "my.py:3", "did you mean 'lru'?"),
        GpusimError("no"),
        ConfigError([Problem("one", "a.yaml", 1, 2, "x: y", "try z"), Problem("two", "a.yaml")]),
    ],
)
def test_is_an_error_the_same_after_simpy_or_pickle_made_it_anew(error):
    for again in (type(error)(*error.args), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.args == error.args


def test_how_does_an_error_read():
    assert str(PolicyError("no such policy", "my.py:3", "did you mean 'lru'?")) == (
        "my.py:3: no such policy (did you mean 'lru'?)"
    )
    assert str(GpusimError("no")) == "no"


def test_where_does_the_caret_stand():
    problem = Problem("unknown key 'bandwith'", "p.yaml", 12, 3, "  bandwith: 3", "did you mean 'bandwidth'?", 8)
    assert str(problem).splitlines() == [
        "p.yaml:12:3: unknown key 'bandwith'",
        "   12 |   bandwith: 3",
        "      |   ^^^^^^^^",
        "        did you mean 'bandwidth'?",
    ]


@pytest.mark.parametrize(
    ("word", "known", "best"),
    [
        ("bandwith", ["bandwidth", "capacity"], "bandwidth"),
        ("a100", ["a10", "a100-pcie-40gb", "v100-pcie-16gb"], "a100-pcie-40gb"),
        ("S3_FIFO", ["s3-fifo", "fifo"], "s3-fifo"),
    ],
)
def test_what_was_meant(word, known, best):
    assert nearest(word, known)[0] == best


def test_what_is_said_when_nothing_is_near():
    assert suggest("zzz", ["lru", "fifo"]) == "known: lru, fifo"
    assert suggest("zzz", []) == ""
    assert suggest("zzz", [f"policy{i}" for i in range(100)]) == ""


def test_are_all_errors_of_one_family():
    kinds = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)]
    assert len(kinds) > 5
    assert all(issubclass(kind, GpusimError) for kind in kinds)

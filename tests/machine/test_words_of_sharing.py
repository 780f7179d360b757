"""Are the words for what is shared read in any order, and refused where they say nothing?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusim.base.errors import GpusimError
from gpusim.base.yaml.values import policy
from gpusim.machine import sharing, tenancy


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


def test_the_words_of_over_commitment_and_faults() -> None:
    shared = tenancy.way(policy("over_commit(policy=nvshare, quantum=2)"))
    assert str(shared.memory) == "nvshare(quantum=2)" and shared.fault == 0
    assert tenancy.way(policy("mps(cap=30, fault=2 s)")) == replace(tenancy.way(policy("mps(cap=30)")), fault=2_000_000_000)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("over_commit", "over_commit needs a policy"),
        ("mps(fault=0 s)", "a fault at 0 s is before the programs begin"),
        ("exclusive(fault=1 s)", "exclusive has no parameter 'fault'"),
        ("nvshare", "'nvshare' is no way to share a GPU"),
    ],
)
def test_other_words_of_tenancy_are_refused(value: str, said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        tenancy.way(policy(value))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mps(yields=kernels)", "with mps(yields=kernels) a short kernel waits for all of a long one that came before"),
        ("mps", "with mps a program of short kernels beside long ones that fill the GPU"),
        ("mps(yields=waves)", "with mps(yields=waves) a program of short kernels beside long ones that fill the GPU is too"),
        ("mps(others_priority=1, yields=waves)", "with mps(others_priority=1, yields=waves) the program that goes first is"),
        ("mps(cap=40, others_cap=60, caps=first)", "with mps(cap=40, others_cap=60, caps=first) all caps begin"),
        ("mps(cap=40, others_cap=60)", ""), ("time_slices", ""),
    ],
)
def test_what_is_known_to_be_wrong_by_much_is_said(text: str, words: str) -> None:
    said = tenancy.caution(text)
    assert said.startswith(words) and bool(said) == bool(words)


def test_caps_lie_apart_where_they_are_all_of_the_gpu_at_most() -> None:
    shared = tenancy.way(policy("mps(cap=50, others_cap=25, caps=apart)"))
    made = [shared.tenancy(beside, tenancy.Switch()) for beside in (1, 2, 3)]
    assert [one is not None and one.apart for one in made] == [True, True, False]
    with pytest.raises(GpusimError, match="caps is 'beside'"):
        tenancy.way(policy("mps(caps=beside)"))

"""Are MIG slices what nvidia-smi prints, at the places that it allows, and is all else refused?"""

from __future__ import annotations

import pytest

from gpusim.base.errors import GpusimError, ProfileError
from gpusim.machine import catalogue, mig, words

GPU = "a100-sxm4-80gb"


def test_a_slice_is_a_machine_with_its_share() -> None:
    """deviceQuery on an A100-80: 42 multiprocessors, 2560 of 5120 bits (NJIT); nvidia-smi: 39.25 GiB."""
    whole, part = catalogue.load(GPU), words.load(f"{GPU}/3g.40gb")
    assert (part.gpu.sm_count.value, part.memory.capacity.value) == (42, 39.25 * 2**30)
    assert part.memory.bandwidth.value == whole.memory.bandwidth.value / 2
    assert part.gpu.l2.value == whole.gpu.l2.value / 2
    assert part.gpu.peak["fp32"].value == pytest.approx(whole.gpu.peak["fp32"].value * 42 / 108)
    assert part.link.h2d.value == whole.link.h2d.value


def test_all_of_mig_is_less_than_the_gpu() -> None:
    """7g has 98 of 108 multiprocessors of an A100, and all 132 of an H100."""
    assert words.load(f"{GPU}/7g.80gb").gpu.sm_count.value == 98
    assert words.load("h100-sxm-80gb/7g.80gb").gpu.sm_count.value == 132
    assert words.load("h100-sxm-80gb/1g.20gb").gpu.sm_count.value == 26


def test_numbers_of_a_slice_can_be_others() -> None:
    assert words.load(f"{GPU}/3g.40gb(link.h2d=20 GB/s)").link.h2d.value == 20e9


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (["3g.40gb", "3g.40gb"], (0, 4)), (["3g.40gb", "4g.40gb"], (4, 0)), (["1g.10gb"] * 7, (0, 1, 2, 3, 4, 5, 6)),
        (["2g.20gb"] * 3, (0, 2, 4)), (["1g.20gb"] * 4, (0, 2, 4, 6)), (["3g.40gb", "2g.20gb", "1g.10gb"], (0, 4, 6)),
        (["4g.40gb", "2g.20gb", "1g.10gb"], (0, 4, 6)), (["7g.80gb"], (0,)),
    ],
)  # fmt: skip
def test_slices_lie_where_nvidia_smi_allows(names: list[str], places: tuple[int, ...]) -> None:
    assert mig.arrange(GPU, names) == places


@pytest.mark.parametrize(
    "names",
    [["4g.40gb"] * 2, ["3g.40gb"] * 3, ["7g.80gb", "1g.10gb"], ["2g.20gb"] * 4, ["1g.10gb"] * 8, ["3g.40gb"] * 2 + ["1g.10gb"]],
)
def test_more_than_fits_is_refused(names: list[str]) -> None:
    with pytest.raises(ProfileError, match=f"do not fit on one '{GPU}'"):
        mig.arrange(GPU, names)


@pytest.mark.parametrize("gpu", ["a100-sxm4-40gb", GPU, "h100-sxm-80gb", "h100-pcie-80gb"])
def test_as_many_fit_as_nvidia_smi_says(gpu: str) -> None:
    for name, one in mig.slices(gpu).items():
        assert len(set(mig.arrange(gpu, [name] * one.instances))) == one.instances
        with pytest.raises(ProfileError):
            mig.arrange(gpu, [name] * (one.instances + 1))


def test_what_is_not_offered_or_not_published_is_refused() -> None:
    with pytest.raises(ProfileError, match=r"'a100-sxm4-40gb' does not offer the slice '3g.5gb'") as told:
        words.load("a100-sxm4-40gb/3g.5gb")
    assert "3g.20gb" in told.value.hint
    with pytest.raises(ProfileError, match=r"the memory and multiprocessors of 3g.90gb of 'b200-sxm' are not published"):
        words.load("b200-sxm/3g.90gb")
    with pytest.raises(ProfileError, match="no MIG slices of 'rtx-4090' are known"):
        words.load("rtx-4090/3g.20gb")


def test_cutting_anew_leaves_what_stays_and_needs_idle_slices() -> None:
    """Where 3g + 3g becomes 3g + 2g + 1g either may stay; 4g lies at 0 only."""
    assert mig.changes(GPU, ["3g.40gb"] * 2, ["3g.40gb", "2g.20gb", "1g.10gb"], busy=[0]) == ([1], {1: 4, 2: 6})
    assert mig.changes(GPU, ["3g.40gb"] * 2, ["3g.40gb", "2g.20gb", "1g.10gb"], busy=[1]) == ([0], {1: 0, 2: 2})
    assert mig.changes(GPU, mig.parts("3 x 1g.10gb"), mig.parts("3g.40gb + 1g.10gb"), busy=[2]) == ([0, 1], {0: 4})
    with pytest.raises(GpusimError, match=r"slice 0 \(3g.40gb\) of 'a100-sxm4-80gb' cannot be taken away while a program runs"):
        mig.changes(GPU, ["3g.40gb"] * 2, ["4g.40gb", "2g.20gb", "1g.10gb"], busy=[0])


def test_a_slice_goes_where_most_places_are_left() -> None:
    gpu = "a100-sxm4-80gb"
    assert mig.beside(gpu, [], "3g.40gb") == 4  # at 0 it would take the place of 4g.40gb
    assert mig.beside(gpu, [("3g.40gb", 4)], "4g.40gb") == 0
    assert mig.beside(gpu, [("4g.40gb", 0)], "3g.40gb") == 4
    assert mig.beside(gpu, [("3g.40gb", 0)], "4g.40gb") is None  # slices do not move
    assert mig.beside(gpu, [("4g.40gb", 0), ("3g.40gb", 4)], "1g.10gb") is None  # all sevenths are taken
    with pytest.raises(ProfileError, match=r"does not offer the slice '3g\.5gb'"):
        mig.beside(gpu, [], "3g.5gb")


def test_another_cut_says_what_goes_and_takes_the_time_of_its_steps() -> None:
    """3g at 4 stays beside a 4g at 0, for which the 3g at 0 goes: two steps."""
    found = mig.recut(GPU, ["3g.40gb", "3g.40gb"], ["3g.40gb", "4g.40gb"], busy="1", each="2 s")
    assert [(row["slice"], row["begins at"], row["what"]) for row in found.rows] == [
        ("3g.40gb", 0, "goes"), ("3g.40gb", 4, "stays"), ("4g.40gb", 0, "is made"),
    ]  # fmt: skip
    assert (found.gone, found.made, found.ns) == (1, 1, 4e9)


def test_another_cut_takes_as_long_as_was_measured() -> None:
    """One instance goes and one is made: 124.4 and 56.6 ms; four go and three are made: means of the cuts that have so many."""
    one = mig.recut(GPU, ["3g.40gb", "3g.40gb"], ["3g.40gb", "4g.40gb"], busy="1")
    assert [one.ns, one.low, one.high] == [pytest.approx(181e6)] * 3 and one.basis == "measured"
    many = mig.recut(GPU, ["1g.10gb"] * 4, ["2g.20gb", "2g.20gb", "2g.20gb"])
    assert many.low == pytest.approx((154.1 + 108.0) * 1e6) and many.high == pytest.approx((174.1 + 111.3) * 1e6)
    assert many.low < many.ns < many.high
    assert mig.recut("h100-sxm-80gb", ["3g.40gb"], ["4g.40gb"]).basis == "estimated"
    assert mig.recut(GPU, ["3g.40gb"], ["3g.40gb"]).ns == 0.0


def test_a_busy_slice_does_not_go() -> None:
    with pytest.raises(GpusimError, match=r"slice 0 \(3g.40gb\) of 'a100-sxm4-80gb' cannot be taken away"):
        mig.recut(GPU, ["3g.40gb"] * 2, ["3g.40gb", "4g.40gb"], busy="0")
    with pytest.raises(GpusimError, match="busy slice '2' is none of 2"):
        mig.recut(GPU, ["3g.40gb"] * 2, ["3g.40gb"], busy="2")

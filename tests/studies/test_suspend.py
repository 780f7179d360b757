"""Which way to suspend a served model is the fastest, and what is refused."""

import pytest

import gpusim
from gpusim.base.errors import GpusimError

pytestmark = pytest.mark.fast
SLEEPS = ("sleep(level=1)", "sleep(level=2)")


@pytest.mark.oracle
def test_the_published_order_of_the_levels_on_the_first_cycle():
    """vllm-project/vllm pull request 48337: 0.6B 1.44 and 1.92 s, 8B 12.76 and 6.84 s; 0.08 and 22 GiB of new host memory."""
    small = gpusim.suspend("qwen3-0.6b", "a100-sxm4-80gb", how=SLEEPS, buffers="all")
    large = gpusim.suspend("qwen3-8b", "a100-sxm4-80gb", how=SLEEPS)
    assert small.best(1).name == SLEEPS[0] and large.best(1).name == SLEEPS[1]


def test_level_1_wins_for_8b_from_the_fourth_cycle_on():
    found = gpusim.suspend("qwen3-8b", "a100-sxm4-80gb", how=SLEEPS)
    assert [(cycles, way.name) for cycles, way in found.changes()] == [(1, SLEEPS[1]), (4, SLEEPS[0])]
    one, two = found.ways
    assert one.ns(3) > two.ns(3) and one.ns(4) < two.ns(4)


def test_by_the_published_times_level_1_wins_from_the_third_cycle_on():
    """Level 1 first 12.76 s, later its wake of 2.19 s and a sleep as simulated; level 2 6.84 s each."""
    later = sum(step.ns for step in gpusim.suspend("qwen3-8b", "a100-sxm4-80gb", how=SLEEPS).ways[0].later[0]) / 1e9 + 2.19
    assert 12.76 + later > 2 * 6.84 and 12.76 + 2 * later < 3 * 6.84


def test_buffers_that_are_there_make_level_1_the_fastest_at_once():
    found = gpusim.suspend("qwen3-8b", "a100-sxm4-80gb", how=SLEEPS, buffers="all")
    assert [(cycles, way.name) for cycles, way in found.changes()] == [(1, SLEEPS[0])]


@pytest.mark.oracle
def test_host_buffers_are_powers_of_two():
    """The pull request found about 22 GiB for Qwen3-8B with adapters."""
    found = gpusim.suspend("qwen3-8b", "a100-sxm4-80gb", how=SLEEPS[0])
    assert found.process.buffers / 2**30 == pytest.approx(22, rel=0.06)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"how": "sleep(level=3)"}, "'sleep(level=3)' is no way to suspend"),
        ({"buffers": "some"}, "buffers are 'some'"),
        ({"files": "tape"}, "files come from 'tape'"),
        ({"cycles": 0}, "0 cycles are no suspend"),
        ({"memory": 1.5}, "memory is 1.5"),
        ({"pin": "fast"}, "pin is 'fast'"),
        ({"level": 1}, "a suspend has no 'level'"),
        ({"memory": 0.1}, "the weights of 'qwen3-8b' take 15.3 GiB on one GPU"),
    ],
)
def test_what_is_refused(words, said):
    with pytest.raises(GpusimError, match=said.replace("(", r"\(").replace(")", r"\)")):
        gpusim.suspend("qwen3-8b", "a100-sxm4-80gb", **words)


def test_a_host_that_is_too_small_for_the_buffers():
    with pytest.raises(GpusimError, match=r"keeps .* in host memory, and the host of"):
        gpusim.suspend("llama-405b", "b300-sxm", gpus=8, how="checkpoint")

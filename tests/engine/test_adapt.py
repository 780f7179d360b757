"""Adaptive batches: what each controller asks for, by hand, and a training that meets a neighbour."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim.base.errors import GpusimError, TraceError
from gpusim.engine import control as adapt
from gpusim.engine.control import controller
from gpusim.machine import catalogue
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace

pytestmark = pytest.mark.hand_worked

ROOT = Path(__file__).parents[2]


def asks(spec: str, largest: list[int], recorded: int = 8) -> list[int]:
    """The batches that the controller asks for when in round i at most `largest[i]` samples fit."""
    control = controller.get(spec)
    found = [next(control) or recorded]
    for i, fits in enumerate(largest):
        ended = "finished" if found[-1] <= fits else "oom"
        found.append(control.send(adapt.Round(i, 0, found[-1], 1, ended, 1, 0.0, 0)))
    return found


def test_what_controllers_ask_for() -> None:
    assert asks("fixed", [100, 4]) == [8, 0, 0]
    assert asks("fixed(batch=5)", [100, 4]) == [5, 5, 5]
    assert asks("aimd", [13] * 5) == [8, 12, 16, 8, 12, 16]
    assert asks("aimd(start=1, add=1, cut=0.9)", [2] * 4) == [1, 2, 3, 2, 3]
    # 8 and 16 fit, 32 does not; then 24, 20, 22, 21 close in on 21.
    assert asks("bisect", [21] * 8) == [8, 16, 32, 24, 20, 22, 21, 21, 21]
    # What had worked fails: down from there and up again to the new largest.
    assert asks("bisect", [21] * 8 + [9] * 6) == [8, 16, 32, 24, 20, 22, 21, 21, 21, 10, 5, 7, 8, 9, 9]
    assert asks("bisect", [0] * 6) == [8, 4, 2, 1, 1, 1, 1]


def test_waiting_counts_as_failing() -> None:
    control = controller.get("aimd(stall=0.2)")
    next(control)
    assert control.send(adapt.Round(0, 0, 8, 1, "finished", 100, 0.25, 0)) == 4


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("amid", "there is no controller 'amid' (did you mean 'aimd'?)"),
        ("aimd(ad=1)", "controller 'aimd' has no parameter 'ad' (did you mean 'add'?)"),
    ],
)
def test_controllers_that_do_not_exist(spec: str, said: str) -> None:
    with pytest.raises(GpusimError) as error:
        controller.get(spec)
    assert said in str(error.value)


def test_a_share_that_is_none() -> None:
    with pytest.raises(GpusimError, match="'cut' of controller 'aimd' is 5"):
        next(controller.get("aimd(cut=5)"))


def test_a_batch_that_is_not_known() -> None:
    b = TraceBuilder("nameless")
    b.op("k", [b.alloc(512)], [])
    with pytest.raises(TraceError, match="does not say its batch"):
        adapt.train(b.finish(), catalogue.load("a100-pcie-40gb"), rounds=1)


@pytest.mark.slow
def test_a_training_finds_the_batch_that_fits_and_follows_a_neighbour() -> None:
    """resnet50 with 64 samples of 224 x 224 needs 5.5 GiB, most of it by samples: what fits shrinks with what is left."""
    trace, profile = load_trace(ROOT / "traces" / "resnet50-train.npz"), catalogue.load("a100-pcie-40gb")
    free = adapt.train(trace, profile, "bisect", rounds=9, capacity_bytes=8 * 2**30)
    found = free[-1]
    assert found.finished and found.batch > 64 and found.reserved_peak <= 8 * 2**30
    assert [r.start_ns for r in free[1:]] == [r.start_ns + r.time_ns for r in free[:-1]]
    more = [r for r in free if r.batch > found.batch]
    assert more and not any(r.finished for r in more)  # one sample more than what was kept did not fit
    taken = adapt.train(
        trace, profile, "bisect", rounds=17, capacity_bytes=8 * 2**30, neighbours=[(found.start_ns + 1, 4 * 2**30)]
    )
    assert taken[:9] == free[:9]
    assert {r.memory for r in taken[9:]} == {4 * 2**30}
    assert not taken[9].finished and taken[-1].finished and taken[-1].batch < found.batch / 2 + 8


def test_a_neighbour_that_takes_everything() -> None:
    trace, profile = load_trace(ROOT / "traces" / "resnet50-train.npz"), catalogue.load("a100-pcie-40gb")
    with pytest.raises(GpusimError, match="the neighbours leave nothing"):
        adapt.train(trace, profile, "fixed", rounds=2, capacity_bytes=2**33, neighbours=[(0, 2**33)])


def test_what_a_user_writes() -> None:
    def careful(start: int = 0) -> adapt.Controller:
        seen = yield start
        while True:
            seen = yield seen.batch // 2

    trace, profile = load_trace(ROOT / "traces" / "resnet50-train.npz"), catalogue.load("a100-pcie-40gb")
    assert [r.batch for r in adapt.train(trace, profile, careful(), rounds=3)] == [64, 32, 16]


def test_policies_are_chosen_where_no_batch_is_known() -> None:
    """The bandit leaves the batch as recorded, whatever that is; a batch of one's own needs to know it."""
    trace, profile = load_trace(ROOT / "traces" / "resnet50-sgd.npz"), catalogue.load("a100-pcie-40gb")
    rounds = adapt.train(trace, profile, "bandit", rounds=3, capacity_bytes=2 * 2**30, evict="lru")
    assert [r.outcome for r in rounds] == ["finished"] * 3 and len({r.policies for r in rounds}) > 1
    with pytest.raises(TraceError, match="does not say its batch"):
        adapt.train(trace, profile, "aimd", rounds=1)

"""Is a run that something outside decides the run of the policy whose choices it makes, to the byte?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hand_worked import BLOCK, machine, three_tensors_in_two_blocks

from gpusim.base.errors import GpusimError, PolicyError
from gpusim.engine.control.episode import DecisionAsked as Asked
from gpusim.engine.control.episode import DecisionEpisode as Episode
from gpusim.engine.run.simulate import Prepared, prepared, simulate
from gpusim.machine import catalogue
from gpusim.programs.generate.synth import random_program
from gpusim.results.result import Result
from gpusim.trace import workload

pytestmark = pytest.mark.agreement


def choices(seed: int, **more: Any) -> dict[str, Any]:
    """A random program with 60 % of its memory, as `prepared` takes it."""
    trace = random_program(seed, 300, streams=2, mean_life=30.0, largest=16 << 20)
    durations = np.random.Generator(np.random.PCG64(seed)).integers(1000, 300_000, 300)
    capacity = workload.build(trace, durations).live_peak * 6 // 10 + (20 << 20)
    return {
        "trace": trace, "profile": catalogue.load("a100-pcie-40gb"), "durations": durations, "capacity_bytes": capacity,
        "log": True, **more,
    }  # fmt: skip


def finished(episode: Episode, choose: Any = lambda episode: 0) -> Result:
    going = episode.decide()
    while going:
        going = episode.decide(choose(episode))
    return episode.run.result()


def same(one: Result, other: Result) -> bool:
    assert one.log is not None and other.log is not None
    return one.metrics == other.metrics and one.log.tobytes() == other.log.tobytes()


@pytest.mark.parametrize("prefetch", ["none", "next_k(k=3)"])
@pytest.mark.parametrize("evict", ["lru", "fifo", "lfu", "belady", "cost_aware"])
def test_the_first_candidate_is_the_choice_of_the_policy(evict: str, prefetch: str) -> None:
    chosen = choices(1, evict=evict, prefetch=prefetch)
    found = finished(Episode(prepared(**chosen), Asked(candidates=5)))
    assert found.metrics["swap_outs"] > 10 and same(found, simulate(**chosen))


def test_the_furthest_next_use_among_all_is_belady() -> None:
    """All tensors are candidates, the longest unused first: of equal next uses belady too takes the one that waited longest."""
    found = finished(
        Episode(prepared(**choices(2, evict="lru")), Asked(observe=("next_use",), candidates=300)),
        lambda episode: int(np.argmax(episode.observed[: len(episode.candidates)])),
    )
    belady = simulate(**choices(2, evict="belady"))
    assert same(found, belady) and not same(found, simulate(**choices(2, evict="lru")))


def test_the_largest_among_all_is_largest() -> None:
    found = finished(
        Episode(prepared(**choices(3, evict="lru")), Asked(observe=("size",), candidates=300)),
        lambda episode: int(np.argmax(episode.observed[: len(episode.candidates)])),
    )
    assert found.metrics["swap_outs"] == simulate(**choices(3, evict="largest")).metrics["swap_outs"]


def test_a_depth_that_stays_is_next_k() -> None:
    chosen = choices(4, evict="lru", prefetch="next_k(k=3)")
    found = finished(Episode(prepared(**choices(4, prefetch="next_k")), Asked("prefetch", ("free", "missing"))), lambda _: 3)
    assert same(found, simulate(**chosen))


def test_a_release_policy_has_its_victims_decided_too() -> None:
    chosen = choices(5, evict="lru", release="watermark(low=0.2, high=0.4)")
    found = finished(Episode(prepared(**chosen), Asked()))
    assert found.metrics["release_evictions"] > 0 and same(found, simulate(**chosen))


@pytest.mark.hand_worked
def test_what_is_observed_is_worked_out_by_hand() -> None:
    """Memory for two; a runs 0 .. 1000, b .. 2000, then c wants room: a waits since 0, b since 1000 of program time."""
    episode = Episode(_by_hand(), Asked(observe=("need", "free", "now", "size", "last_use", "uses", "dirty"), candidates=3))
    assert episode.decide()
    assert episode.candidates.tolist() == [0, 1]
    need, free, now, *rest = episode.observed.tolist()
    assert (need, free, now) == (BLOCK, 0, 1000)  # the program has come to b's operator
    first, second, third = rest[:4], rest[4:8], rest[8:]
    assert first == [BLOCK, 0, 1, 1] and second == [BLOCK, 1000, 1, 1] and third == second  # there are two: the last again
    assert not episode.decide(1) or episode.candidates[0] == 0  # b left, a stays


def _by_hand() -> Prepared:
    return prepared(three_tensors_in_two_blocks().trace(), machine(), place="first_fit", capacity_bytes=2 * BLOCK)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"kind": "victims"}, "an episode cannot decide 'victims'"),
        ({"observe": ("last_used",)}, "'last_used' is no fact that can be observed where 'victim' is decided"),
        ({"kind": "prefetch", "observe": ("size",)}, "'size' is no fact that can be observed where 'prefetch' is decided"),
        ({"observe": ()}, "observe names each fact once, and at least one"),
        ({"candidates": 0}, "candidates is 0"),
    ],
)
def test_what_cannot_be_asked(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(GpusimError) as error:
        Asked(**asked)
    assert said in str(error.value)


def test_policies_without_a_list() -> None:
    with pytest.raises(PolicyError, match="cannot make the list of candidates"):
        Episode(prepared(**choices(1, evict="none")), Asked())
    with pytest.raises(PolicyError, match="has no depth that could be decided"):
        Episode(prepared(**choices(1, prefetch="stride")), Asked("prefetch", ("free",)))

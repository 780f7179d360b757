"""Kernels that tests of a machine run: are they refused where they say what is not known?  Rates by hand."""

from __future__ import annotations

import pytest

from gpusim.base.errors import ProfileError, TraceError
from gpusim.engine.run.simulate import simulate
from gpusim.machine.catalogue import load
from gpusim.machine.generations import generation
from gpusim.machine.loads import little
from gpusim.machine.peers import HOST, LINKS, PCIE, meeting
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import Trace

pytestmark = pytest.mark.hand_worked


def one(name: str, shape: str | None = None, size: int = 1 << 30) -> Trace:
    builder = TraceBuilder("one")
    builder.op(name, (builder.alloc(size),), (), read_bytes=size, shape=shape)
    return builder.finish()


def test_little_and_a_limit_meet_at_the_rate_of_a_full_device() -> None:
    """A full device has 3 bytes/ns under way and reaches 2.4, so 4 is its limit (3, 4, 5); half of its threads have 1.5."""
    full, threads = 2.4e9, 1024.0
    turn = threads * 8 / 3.0
    assert little(full, 8, threads, threads, turn) == full
    assert little(full, 8, threads / 2, threads, turn) == pytest.approx(1.5 * 4 / (1.5**2 + 4**2) ** 0.5 * 1e9)


def test_a_device_whose_threads_are_all_that_limits_it() -> None:
    """Where a full device reaches more than its threads can have under way, so do a few of them."""
    assert little(5e9, 8, 10, 20, 80) == pytest.approx(1e9)


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("stream.tour", None, "'stream.tour' is no kernel that tests run"),
        ("stream.kernel", "-> | loads=4", "stream.kernel has no 'loads'"),
        ("stream.kernel", "-> | threads=64", "stream.kernel has only one of 'threads' and 'width'"),
        ("stream.kernel", "-> | passes=0 blocks=1", "the passes of stream.kernel are '0', not a number above 0"),
        ("stream.chase", "-> | loads=4 at=disk", "stream.chase is at 'disk', which is no memory"),
    ],
)
def test_what_is_no_such_kernel_is_refused_with_the_reason(name: str, shape: str | None, why: str) -> None:
    with pytest.raises(TraceError, match=why):
        simulate(one(name, shape), load("a100-sxm4-80gb"))


def test_a_chain_in_a_memory_of_which_the_profile_says_nothing() -> None:
    with pytest.raises(ProfileError, match="has no 'link\\.load', which a chain of loads needs there"):
        simulate(one("stream.chase", "-> | loads=4 at=host"), load("a40"))


def test_a_test_of_a_machine_runs_as_any_program_does() -> None:
    """A million loads more from memory are 571 cycles of 1.41 GHz more, each."""
    machine = load("a100-sxm4-80gb")
    took = [simulate(one("stream.chase", f"-> | loads={n}000000"), machine).metrics["makespan_ns"] for n in (1, 2)]
    assert took[1] - took[0] == pytest.approx(1e6 * 571 / 1.41, rel=1e-6)


def test_generations_by_capability() -> None:
    """A capability between two known ones is of the earlier; one before all of them of the first."""
    assert generation(load("a100-sxm4-40gb")).l1_cycles == 36
    assert generation(load("b300-sxm")) == generation(load("gb200"))
    assert generation(load("v100-pcie-16gb")).far_cycles == generation(load("v100-pcie-16gb")).near_cycles


def test_peers_meet_where_they_can() -> None:
    """Links of their own stay as they are; a GPU without them has none until it is said how peers meet."""
    linked, alone = load("a100-sxm4-80gb"), load("l40")
    assert meeting(linked, LINKS) is linked and meeting(alone, LINKS, both=True) is alone and alone.peer is None
    host, past = meeting(alone, HOST).peer, meeting(alone, PCIE, both=True).peer
    assert host is not None and host.rate.value == pytest.approx(0.7 * 25.7e9) and host.latency.value == 14_000
    assert past is not None and past.rate.value == 25.7e9 and past.latency.value == alone.link.latency_queued.value

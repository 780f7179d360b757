"""Is running out of memory a result that says what did not fit, where, and what would help?"""

from __future__ import annotations

import pytest
from hand_worked import BLOCK, Steps, machine, play

from gpusim.results import log


def two_tensors_taking_turns() -> Steps:
    steps = Steps()
    a = steps.alloc()
    steps.kernel(10, writes=(a,))
    b = steps.alloc()
    steps.kernel(10, writes=(b,))
    steps.kernel(10, reads=(a,))
    return steps


def test_an_operator_that_touches_more_than_the_memory() -> None:
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(10, writes=(a,))
    steps.kernel(10, reads=(a, b))
    result = play(steps, blocks=1)
    assert result.outcome == "oom" and result.metrics["ooms"] == 1
    assert result.failure is not None
    assert result.failure["memory"] == "device" and result.failure["request"] == BLOCK
    assert result.failure["advice"].startswith("operator 1 alone touches 20 KiB")


def test_a_tensor_larger_than_the_memory() -> None:
    steps = Steps()
    steps.alloc(3)
    steps.kernel(10)
    result = play(steps, blocks=2)
    assert result.outcome == "oom" and result.failure is not None
    assert result.failure["request"] == 3 * BLOCK and result.failure["free"] == 2 * BLOCK
    assert result.failure["advice"] == "tensor 0 alone takes 30 KiB, more than the 20 KiB of memory"


def test_without_eviction_what_does_not_fit_does_not_run() -> None:
    result = play(two_tensors_taking_turns(), blocks=1, evict="none")
    assert result.outcome == "oom" and result.failure is not None
    assert result.failure["advice"] == "nothing may leave: choose an evict policy"
    assert (result.failure["tensor"], result.failure["free"]) == (1, 0)


def test_enough_bytes_in_two_pieces() -> None:
    """Three blocks, the outer two freed: two free blocks, but not together."""
    steps = Steps()
    a, _b, c = steps.alloc(), steps.alloc(), steps.alloc()
    steps.free(a, c)
    steps.alloc(2)
    result = play(steps, blocks=3, evict="none")
    assert result.outcome == "oom" and result.failure is not None
    assert (result.failure["free"], result.failure["largest"]) == (2 * BLOCK, BLOCK)
    assert "not in one piece" in result.failure["advice"]
    assert result.metrics["frag_failures"] == 1


def test_host_memory_runs_out_as_well() -> None:
    """The host has room for one block; a is out there when b has to leave too."""
    steps = two_tensors_taking_turns()
    assert play(steps, {"host.capacity": 2 * BLOCK}, blocks=1).finished
    result = play(steps, {"host.capacity": BLOCK - 512}, blocks=1)
    assert result.outcome == "host_oom" and result.failure is not None
    assert result.failure["memory"] == "host" and result.failure["free"] == BLOCK - 512
    assert "host memory" in result.failure["advice"]


def test_is_it_told_when_only_the_memory_that_may_be_pinned_is_full() -> None:
    """Two blocks and a half of host memory, half of which may be pinned: a is there when b has to leave too."""
    profile = machine({"host.capacity": 2.5 * BLOCK, "host.numa_remote": 0.5})
    object.__setattr__(profile.host, "pinned", profile.host.numa_remote)  # a half; no profile of the catalogue has it
    steps = two_tensors_taking_turns()
    assert play(steps, blocks=1, profile=profile, tiers="host(pageable=1)").finished
    for tiers in ("host", "host > host(pageable=1, capacity=1 KiB)"):
        result = play(steps, blocks=1, profile=profile, tiers=tiers)
        assert result.outcome == "host_oom" and result.failure is not None
        assert "no more host memory may be pinned" in result.failure["advice"]
        assert "Linux" not in result.failure["advice"]
    small = play(steps, {"host.capacity": 9 * BLOCK}, blocks=1, tiers=f"host(capacity={BLOCK} B)")
    assert small.failure is not None and small.failure["advice"].endswith("the tiers are given no more of host memory")
    full = play(steps, {"host.capacity": BLOCK}, blocks=1, tiers="host(numa=remote)")
    assert full.failure is not None and "Linux would kill the program" in full.failure["advice"]


@pytest.mark.parametrize(("back", "outcome"), [(True, "finished"), (False, "host_oom")])
def test_a_host_copy_makes_room_when_the_device_has_the_bytes_too(back: bool, outcome: str) -> None:
    """Host memory for one block.  c pushes a out there; a comes back into c's room, its copy on the host is spare; then
    b has to leave: it gets that room.  While a is only on the host, it cannot.
    """
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(10, reads=(a, b))
    steps.free(steps.alloc())
    if back:
        steps.kernel(10, reads=(a,))
    else:
        steps.alloc()
    steps.alloc()
    result = play(steps, {"host.capacity": BLOCK}, blocks=2)
    assert result.outcome == outcome
    assert result.metrics["host_peak_bytes"] == BLOCK


def test_a_machine_with_one_memory_has_nowhere_to_swap_to() -> None:
    result = play(two_tensors_taking_turns(), blocks=1, profile=machine(base="jetson-agx-orin-64gb"))
    assert result.outcome == "host_oom" and result.failure is not None
    assert "nowhere to swap to" in result.failure["advice"]


def test_what_was_simulated_until_then_is_reported() -> None:
    """The kernel that was running when memory ran out is in the result, and so is the record of the end."""
    result = play(two_tensors_taking_turns(), blocks=1, evict="none")
    assert result.metrics["kernels"] == 1
    assert result.log is not None and result.log["kind"][-1] == log.OOM

"""Do compressed swaps take the time, the link and the room that a hand works out?  See `hand_worked` for the machine.

With a ratio of 2 a block of 10,240 bytes is 5,120 in host memory.  Behind a codec on the GPU these cross the link, in
1000 + 5120 / 10 = 1512 ns to the device and 1000 + 5120 / 8 = 1640 ns to the host, unless the codec is slower.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hand_worked import BLOCK, Steps, machine, play, spans, three_tensors_in_two_blocks

from gpusim import policy
from gpusim.base.errors import GpusimError, TraceError
from gpusim.engine.run.simulate import simulate
from gpusim.experiment.execute import RunProgram
from gpusim.programs import transforms
from gpusim.programs.generate.synth import random_program
from gpusim.referee import check
from gpusim.results.result import Result
from gpusim.trace.trace import COPY_OUT, Trace

pytestmark = pytest.mark.hand_worked

FAST = "compress=1 PB/s, decompress=1 PB/s"


def packed(trace: Trace, arguments: str) -> Trace:
    return transforms.apply(trace, f"compressed_swap({arguments})")


def swapped(arguments: str, changes: dict[str, float] | None = None, steps: Steps | None = None) -> Result:
    """The steps with memory for two blocks, refereed."""
    trace = packed((steps or three_tensors_in_two_blocks()).trace(), arguments)
    result = simulate(trace, machine(changes), place="first_fit", log=True, capacity_bytes=2 * BLOCK)
    assert check(result, trace).violations == ()
    return result


def bytes_of(result: Result) -> list[int | float]:
    return [result.metrics[name] for name in ("h2d_bytes", "d2h_bytes", "host_peak_bytes")]


def test_half_of_the_bytes_cross_the_link() -> None:
    """As in `test_engine_swaps`, with the copies of 1640 and 1512 ns.

    kernel a 0 .. 1000, kernel b 1000 .. 2000; out a 1000 .. 2640, kernel c in its block 2640 .. 3140
    out b    2640 .. 4280, in a in its block 4280 .. 5792, kernel a 5792 .. 6492
    """
    result = swapped(f"ratio=2, {FAST}, on=gpu")
    found = spans(result)
    assert found["out"] == [(1000, 2640), (2640, 4280)]
    assert found["in"] == [(4280, 5792)]
    assert found["kernel"] == [(0, 1000), (1000, 2000), (2640, 3140), (5792, 6492)]
    assert bytes_of(result) == [BLOCK // 2, BLOCK, BLOCK]
    assert result.metrics["d2h_busy_share"] == pytest.approx(BLOCK / (8 * 6492))


def test_a_codec_on_the_gpu_that_is_slower_than_the_link_sets_the_pace() -> None:
    """Packing 10240 bytes at 4 per ns takes 2560, unpacking at 5 per ns 2048; the link would need 640 and 512."""
    found = spans(swapped("ratio=2, compress=4 GB/s, decompress=5 GB/s, on=gpu"))
    assert found["out"] == [(1000, 4560), (4560, 8120)]
    assert found["in"] == [(8120, 8120 + 1000 + 2048)]


@pytest.mark.slow
def test_a_codec_on_the_cpu_saves_host_memory_and_no_traffic() -> None:
    """The link needs 1280 and 1024 for all the bytes; packing takes 2560, unpacking at 20 bytes per ns less than the link."""
    result = swapped("ratio=2, compress=4 GB/s, decompress=20 GB/s, on=cpu")
    found = spans(result)
    assert found["out"] == [(1000, 4560), (4560, 8120)]
    assert found["in"] == [(8120, 8120 + 1000 + 1024)]
    assert bytes_of(result) == [BLOCK, 2 * BLOCK, BLOCK]


def test_copies_side_by_side_share_the_codec() -> None:
    """Both leave at 1000 and flow from 2000 on.  Of 4 compressed bytes per ns each gets 2: 5120 / 2 = 2560."""
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(1000, writes=(a, b))
    steps.kernel(500, writes=(steps.alloc(2),))
    result = swapped("ratio=2, compress=8 GB/s, decompress=8 GB/s, on=gpu", {"copy_engines.d2h": 2}, steps)
    assert spans(result)["out"] == [(1000, 4560), (1000, 4560)]


def test_the_program_s_own_copy_passes_no_codec() -> None:
    """With two copy engines it flows alone from 1000 to 2000: 8000 bytes.  The swap beside it packs 4 bytes per ns, 2 of which
    cross the link: the other 2240 go at 6 per ns, until 2373.3; the swap's 5120 take 2560.

    With one it takes 1280, and then the swap its turn.
    """
    found = []
    for engines in (2, 1):
        steps = Steps()
        steps.carry(COPY_OUT, stream=1)
        a, b = steps.alloc(), steps.alloc()
        steps.kernel(1000, writes=(a, b))
        steps.kernel(500, writes=(steps.alloc(),))
        codec = "ratio=2, compress=4 GB/s, decompress=4 GB/s, on=gpu"
        found.append(spans(swapped(codec, {"copy_engines.d2h": engines}, steps)))
    assert [at["kernel"][:2] for at in found] == [[(0, 2374), (0, 1000)], [(0, 2280), (0, 1000)]]
    assert [at["out"] for at in found] == [[(1000, 4560)], [(2280, 5840)]]


def test_what_is_left_of_a_byte_counts_as_one() -> None:
    """10240 / 3 = 3413.3"""
    assert bytes_of(swapped(f"ratio=3, {FAST}, on=gpu")) == [3414, 2 * 3414, 2 * 3414]


@pytest.mark.parametrize("on", ["gpu", "cpu"])
def test_compressed_copies_leave_more_room_in_host_memory(on: str) -> None:
    """Two tensors are swapped out; host memory has room for one."""
    room = {"host.capacity": float(BLOCK)}
    assert swapped(f"ratio=2, {FAST}, on={on}", room).outcome == "finished"
    result = swapped(f"ratio=1.6, {FAST}, on={on}", room)
    assert result.outcome == "host_oom"
    assert result.failure is not None
    assert (result.failure["request"], result.failure["free"]) == (6400, BLOCK - 6400)


@pytest.mark.parametrize("on", ["gpu", "cpu"])
def test_a_codec_that_does_and_costs_nothing_changes_nothing(on: str) -> None:
    trace = random_program(3, 400)
    same = packed(trace, f"ratio=1, {FAST}, on={on}")
    profile, memory = machine({"copy_engines.h2d": 2}), int(trace.size.max()) * 4
    with_codec, without = (simulate(t, profile, log=True, capacity_bytes=memory) for t in (same, trace))
    assert without.metrics["swap_ins"] > 10
    assert with_codec.metrics == without.metrics
    assert with_codec.log is not None
    assert without.log is not None
    assert np.array_equal(with_codec.log, without.log)


@pytest.mark.parametrize("on", ["gpu", "cpu"])
def test_the_referee_follows_a_random_program(on: str) -> None:
    trace = packed(random_program(5, 400), f"ratio=1.7, compress=9 GB/s, decompress=11 GB/s, on={on}")
    profile = machine({"copy_engines.h2d": 2, "copy_engines.d2h": 3})
    result = simulate(trace, profile, log=True, capacity_bytes=int(trace.size.max()) * 4)
    assert result.metrics["swap_ins"] > 10
    assert check(result, trace).violations == ()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ratio": 4.0}, "a copy moves 5120 bytes"),
        ({"ratio": 1.0}, "a block of 5120 bytes for a tensor of 10240"),
        ({"compress": 1e9}, "activity 2 moves 5120 bytes in 1640 ns"),
        ({"decompress": 1e9}, "activity 5 moves 5120 bytes in 1512 ns"),
    ],
)
def test_the_referee_sees_what_the_codec_cannot_do(changed: dict[str, Any], said: str) -> None:
    result = swapped(f"ratio=2, {FAST}, on=gpu")
    trace = packed(three_tensors_in_two_blocks().trace(), f"ratio=2, {FAST}, on=gpu")
    other = replace(trace, meta={**trace.meta, "swap": {**trace.meta["swap"], **changed}})
    claims = replace(result, spec={**result.spec, "trace_hash": other.content_hash})
    assert said in " ".join(v.what for v in check(claims, other).violations)


SEEN: list[tuple[float, float]] = []


@policy.evict(columns=True)
def watchful(reload_ns, evict_ns, last_use):  # type: ignore[no-untyped-def]
    SEEN.extend(zip(reload_ns.tolist(), evict_ns.tolist(), strict=True))
    return last_use


@pytest.mark.parametrize(
    ("arguments", "times"), [("ratio=1", (2024, 2280)), ("ratio=2, on=gpu", (1512, 1640)), ("ratio=2, on=cpu", (2024, 2280))]
)
def test_policies_are_told_what_a_swap_costs(arguments: str, times: tuple[float, float]) -> None:
    SEEN.clear()
    trace = packed(three_tensors_in_two_blocks().trace(), f"{arguments}, {FAST}")
    simulate(trace, machine(), place="first_fit", evict="watchful", use=[watchful], capacity_bytes=2 * BLOCK)
    assert times in SEEN


@pytest.mark.formulas
def test_the_traffic_bound_counts_what_crosses_the_link() -> None:
    """With room for one tensor the first has to come back."""
    trace, profile = three_tensors_in_two_blocks().trace(), machine()
    chains = ("none", *(f"compressed_swap(ratio=3, {FAST}, on={on})" for on in ("gpu", "cpu")))
    bounds = [RunProgram(transforms.apply(trace, chain), profile).bounds.swap_in(BLOCK) for chain in chains]
    assert bounds == [BLOCK, BLOCK // 3, BLOCK]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("ratio=0.5", "parameter 'ratio' of transform 'compressed_swap' is 0.5"),
        ("on=gpus", "parameter 'on' of transform 'compressed_swap' is 'gpus'"),
        ("compress=3", "'3' has no unit"),
        ("decompress=0 B/s", "parameter 'decompress' of transform 'compressed_swap' is 0"),
    ],
)
def test_what_is_no_codec_gets_one_sentence(arguments: str, said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        packed(three_tensors_in_two_blocks().trace(), arguments)


def test_swaps_are_compressed_once() -> None:
    with pytest.raises(GpusimError, match="its swaps are compressed already"):
        transforms.apply(three_tensors_in_two_blocks().trace(), "compressed_swap | compressed_swap")


@pytest.mark.parametrize("said", [{"ratio": 2}, 7, {"ratio": 2, "compress": 0, "decompress": 1e9, "on": "gpu"},
                                  {"ratio": "x", "compress": 1e9, "decompress": 1e9, "on": "gpu"}])  # fmt: skip
def test_a_meta_that_describes_no_codec_is_refused(said: Any) -> None:
    trace = replace(three_tensors_in_two_blocks().trace(), meta={"swap": said})
    with pytest.raises(TraceError, match="the meta's 'swap' is"):
        simulate(trace, machine(), capacity_bytes=2 * BLOCK)


def test_without_the_transform_nothing_is_compressed() -> None:
    assert bytes_of(play(three_tensors_in_two_blocks(), blocks=2)) == [BLOCK, 2 * BLOCK, 2 * BLOCK]

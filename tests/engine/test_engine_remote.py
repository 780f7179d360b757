"""Do kernels that read and write below the device take as long as the slower of their work and the link?

See `hand_worked` for the machine: 10 bytes/ns to the device and 8 from it after 1000 ns, so that a kernel which reads a block
of 10,240 bytes in host memory takes at least 2024 ns, and one that writes it there 2280.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hand_worked import BLOCK, Steps, machine, play, spans, stalls
from plain_python import fingerprint, interpreted
from plan_policies import OWN, Written
from test_engine_agreement import program

from gpusim import policy
from gpusim.base.errors import PolicyError
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.policies.planning import EVICT, PREFETCH, Schedule, View
from gpusim.referee import check
from gpusim.results.result import Result
from gpusim.trace.trace import Trace

pytestmark = pytest.mark.hand_worked


def in_place(steps: Steps, *remote: int, rows: tuple[tuple[int, ...], ...] = (), **choices: Any) -> Result:
    """The steps with these tensors in host memory for good, refereed."""
    Written.rows, Written.remote = rows, remote
    try:
        result = play(steps, choices.pop("changes", None), plan="written", use=OWN, **{"blocks": 2, **choices})
    finally:
        Written.rows, Written.remote = (), ()
    assert check(result, steps.trace()).violations == ()
    return result


def one_kernel(ns: int, reads: bool, writes: bool) -> Steps:
    steps = Steps()
    tensor = steps.alloc()
    steps.kernel(ns, reads=(tensor,) if reads else (), writes=(tensor,) if writes else ())
    return steps


@pytest.mark.parametrize(
    ("ns", "reads", "writes", "took"),
    [
        (100, True, False, 2024),
        (5000, True, False, 5000),
        (100, False, True, 2280),
        (100, True, True, 2280),   # both at once, in their own directions
        (2024, True, False, 2024),
    ],
)  # fmt: skip
def test_a_kernel_ends_with_its_work_or_with_its_bytes(ns: int, reads: bool, writes: bool, took: int) -> None:
    result = in_place(one_kernel(ns, reads, writes), 0)
    assert spans(result)["kernel"] == [(0, took)]
    assert result.metrics["zero_copy_read_bytes"] == BLOCK * reads
    assert result.metrics["zero_copy_written_bytes"] == BLOCK * writes
    assert result.metrics["compute_busy_ns"] == took and stalls(result) == {}
    assert result.metrics["requested_peak_bytes"] == 0 and result.metrics["host_peak_bytes"] == BLOCK
    assert result.metrics["h2d_busy_share"] == pytest.approx(BLOCK * reads / (10 * took))


def test_narrow_accesses_reach_a_part_of_the_link() -> None:
    """32 of 128 bytes: 2.5 bytes/ns, 1000 + 4096 ns."""

    @policy.plan
    def narrow(view: View) -> Schedule:
        return replace(Schedule.of([]), remote=np.array([0]), access=32)

    steps = one_kernel(100, True, False)
    result = play(steps, blocks=2, plan=narrow)
    assert check(result, steps.trace()).ok
    assert spans(result)["kernel"] == [(0, 5096)]


def test_reads_share_the_link_with_copies() -> None:
    """Kernel 3 reads 0 in place while 1 comes back: both flow from 31,000 + 1000 at 5 bytes/ns: .. 34,048.

    Four blocks; 1 is written 0 .. 1000 and leaves 1000 .. 3280; the host waits for the long kernel: 31,000.
    """
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(1000, writes=(b,))
    steps.kernel(30_000)
    steps.sync()
    steps.kernel(10, reads=(a,))
    steps.kernel(10, reads=(b,))
    result = in_place(steps, a, rows=((1, EVICT, b), (2, PREFETCH, b)), blocks=4)
    assert spans(result)["in"] == [(31_000, 34_048)]
    assert spans(result)["kernel"][-2:] == [(31_000, 34_048), (34_048, 34_058)]


def test_a_tensor_that_stays_below_neither_comes_nor_goes() -> None:
    """Room for one block.  0 stays in host memory, so that 1 never leaves; what a plan says of 0 is skipped."""
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    for _ in range(3):
        steps.kernel(10, reads=(a,), writes=(b,))
    steps.free(a, b)
    steps.kernel(10)
    result = in_place(steps, a, rows=((1, EVICT, a), (1, PREFETCH, a)), blocks=1)
    assert result.metrics["swap_ins"] == result.metrics["swap_outs"] == 0
    assert result.metrics["plan_skipped"] == 2
    assert result.metrics["zero_copy_read_bytes"] == 3 * BLOCK
    assert spans(result)["kernel"] == [(0, 2024), (2024, 4048), (4048, 6072), (6072, 6082)]


def test_host_memory_that_is_full_ends_the_run() -> None:
    result = in_place(one_kernel(10, True, False), 0, changes={"host.capacity": BLOCK - 1})
    assert result.outcome == "host_oom" and result.failure is not None and result.failure["memory"] == "host"


@pytest.mark.parametrize(
    ("tiers", "said"),
    [("nvme", "leaves tensors in nvme, which"), ("host(pageable=1)", "leaves tensors in host memory that is not pinned")],
)
def test_what_kernels_cannot_address_is_refused(tiers: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        in_place(one_kernel(10, True, False), 0, tiers=tiers)


def test_unknown_tensors_are_refused() -> None:
    with pytest.raises(PolicyError, match="leaves a tensor below that is none"):
        in_place(one_kernel(10, True, False), 7)


def test_a_codec_of_swaps_does_not_touch_what_stays_below() -> None:
    steps = one_kernel(100, True, False)
    trace = steps.trace()
    packed = replace(trace, meta={**trace.meta, "swap": {"ratio": 2.0, "compress": 1e12, "decompress": 1e12, "on": "gpu"}})
    Written.remote = (0,)
    result = simulate(packed, machine(), place="first_fit", capacity_bytes=2 * BLOCK, plan="written", use=OWN, log=True)
    Written.remote = ()
    assert spans(result)["kernel"] == [(0, 2024)] and result.metrics["host_peak_bytes"] == BLOCK
    assert check(result, packed).violations == ()


def test_the_referee_knows_what_kernels_may_read_below() -> None:
    steps = one_kernel(100, True, False)
    result = in_place(steps, 0)
    said = "; ".join(str(v) for v in check(replace(result, spec={**result.spec, "remote": []}), steps.trace()).violations)
    assert "has no block where it is used" in said
    rates = {**result.spec["rates"], "h2d": 4e9}
    said = "; ".join(str(v) for v in check(replace(result, spec={**result.spec, "rates": rates}), steps.trace()).violations)
    assert "(h2d)" in said


# --- agreement -------------------------------------------------------------------------------------------------------------

SETS = (("first_fit", "lru", "next_k"), ("pytorch", "belady", "none"), ("device", "none", "stride"), ("tlsf", "arc", "oracle"))


def run(seed: int) -> tuple[Result, Trace]:
    trace, durations, capacity = program(seed)
    place, evict, prefetch = SETS[seed % len(SETS)]
    result = simulate(
        trace, catalogue.load("a100-pcie-40gb"), durations=durations, capacity_bytes=capacity * (2 if evict == "none" else 1),
        place=place, evict=evict, prefetch=prefetch, plan=f"scatter(seed={seed}, actions=200, remote=60)", use=OWN, log=True,
    )  # fmt: skip
    return result, trace


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(8))
def test_tensors_below_are_right_under_any_policies(seed: int) -> None:
    result, trace = run(seed)
    assert result.finished and result.metrics["zero_copy_read_bytes"] > 0
    assert check(result, trace).violations == ()


@pytest.mark.agreement
@pytest.mark.slow
def test_compiled_and_interpreted_runs_agree() -> None:
    said = interpreted("test_engine_remote", "[t.fingerprint(t.run(seed)[0]) for seed in range(4)]")
    assert said == [fingerprint(run(seed)[0]) for seed in range(4)]

"""Engines of two services on one GPU: turns, switches, and parts of its speed, to 1 ns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import GpusimError
from gpusim.engine.serving.beside import ServicesOnGpus as Shared
from gpusim.engine.serving.beside import together
from gpusim.engine.serving.costs import linear_cost
from gpusim.engine.serving.run import Engine, ServiceRun
from gpusim.engine.serving.tiering import dense
from gpusim.machine.tenancy import FIXED_NS, HIGH, LOW, MEASURED_SLICE_NS, MPS, SLICES, STATE_NS, Switch, Tenancy, Tenant
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.running import EngineLimits, request_table

pytestmark = pytest.mark.hand_worked
LIMITS = EngineLimits(blocks=1000, block_size=16, max_seqs=8, max_tokens=64, max_len=1024)


def shared(slices: tuple[int, ...] = (400, 400), way: str = SLICES, fixed: float = 50.0, levels: Any = (LOW, LOW)) -> Shared:
    """A switch takes 50 ns, and 10 for each step that is interrupted or goes on."""
    tenants = tuple(Tenant(slice_, level) for slice_, level in zip(slices, levels, strict=True))
    return Shared(Tenancy(way, tenants, Switch(fixed)), (10.0,))


def side_by_side(*each: Any, how: Shared | None, steps: tuple[float, ...] = (1000.0, 1000.0), gpus: int = 1) -> ServiceRun:
    """The requests of each service, whose steps take so many ns; each GPU has an engine of each service."""
    among = together(each)
    requests = dense(among.requests)
    engines = [
        Engine(f"e{k} of {d}", get("schedule", "vllm@0.33").start(requests, LIMITS), linear_cost(steps[k]), service=k,
               device=d if how else -1)
        for k in range(len(each)) for d in range(gpus)
    ]  # fmt: skip
    run = ServiceRun(requests, engines, shared=how, among=among)
    run.advance()
    return run


def ends(run: ServiceRun, services: int = 2) -> list[list[int]]:
    return [run.result(k).ended.tolist() for k in range(services)]


def test_slices_alternate_while_both_have_a_step() -> None:
    """0 A 400, switch 60 (A leaves), 460 B 860, switch 70, 930 A 1330, 1400 B 1800, 1870 A 2070; A has ended: switch 60 (B
    comes back), 2130 B 2330."""
    run = side_by_side(request_table([0], 8, 1), request_table([0], 8, 1), how=shared())
    assert ends(run) == [[2070], [2330]]
    assert [int(run.tables.device[0][name]) for name in ("switches", "switched")] == [5, 60 + 3 * 70 + 60]
    assert [e.busy_ns for k in (0, 1) for e in run.result(k).engines] == [1000, 1000]


def test_a_turn_goes_on_from_step_to_step() -> None:
    """A slice of 1,500: A has a step until 1,000 and half of the next, though B has waited since 0."""
    run = side_by_side(request_table([0], 8, 2), request_table([0], 8, 1), how=shared((1500, 1500)))
    # 1500 switch 60, 1560 B until 2560, which has ended: switch 60 (A comes back), 2620 A until 3120
    assert ends(run) == [[3120], [2560]]


def test_a_device_passes_at_once_when_there_is_nothing_to_run() -> None:
    """A has its step until 1,000, long before its slice is over; a switch with nothing to save takes 50."""
    run = side_by_side(request_table([0], 8, 1), request_table([300], 8, 1), how=shared((10**6, 10**6)))
    assert ends(run) == [[1000], [2050]]


def test_a_service_without_company_has_all_of_the_device() -> None:
    """B comes when A has ended: but for one switch, all is as if each had the GPU for itself."""
    each = request_table([0, 1500], 8, 3), request_table([7000], 8, 2)
    run = side_by_side(*each, how=shared())
    alone = side_by_side(*each, how=None)
    assert ends(run)[0] == ends(alone)[0] and ends(run)[1][0] == ends(alone)[1][0] + 50


def test_a_high_level_has_a_turn_after_every_other() -> None:
    """Slices of 100 and no cost: the high one (C) has every second turn, C A C B, until its ten are over at 1,900."""
    how = shared((100, 100, 100), fixed=0.0, levels=(LOW, LOW, HIGH))
    run = side_by_side(*(request_table([0], 8, 1) for _ in range(3)), how=Shared(how.tenancy, (0.0,)), steps=(1000.0,) * 3)
    assert ends(run, 3) == [[2900], [3000], [1900]]


def test_under_mps_steps_run_at_once_at_equal_parts() -> None:
    """A has 700 ns left when B's 600 begin at 300: B ends at 1,500, and A, which has 100 left then, at 1,600."""
    run = side_by_side(request_table([0], 8, 1), request_table([300], 8, 1), how=shared(way=MPS), steps=(1000.0, 600.0))
    assert ends(run) == [[1600], [1500]] and int(run.tables.device[0]["switches"]) == 0


def test_each_gpu_has_turns_of_its_own() -> None:
    """Two GPUs: A's two requests go to one each, B's only one shares the first."""
    run = side_by_side(request_table([0, 0], 8, 1), request_table([0], 8, 1), how=replace(shared(), state=(10.0, 0.0)), gpus=2)
    assert ends(run) == [[2070, 1000], [2330]] and run.result(1).engine.tolist() == [0]


def test_what_a_service_is_told_is_its_own() -> None:
    """Three requests of A and one of B; tokens, gaps, samples and times of each are its own."""
    a, b = request_table([0, 0, 100], 8, [2, 2, 2]), request_table([50], 8, 4)
    run = side_by_side(a, b, how=shared(way=MPS))
    first, second = run.result(0), run.result(1)
    assert (first.prompt.size, second.prompt.size) == (3, 1) and first.made.tolist() == [2, 2, 2]
    assert (first.gaps.sum(), second.gaps.sum()) == (3, 3)
    assert (first.samples["output_tokens"].sum(), second.samples["output_tokens"].sum()) == (6, 4)
    assert first.makespan_ns == first.ended.max() and second.makespan_ns == second.ended.max() != first.makespan_ns


@pytest.mark.oracle
def test_six_services_take_as_long_as_six_processes_did() -> None:
    """Kernels of 12.99 ms of six processes on an RTX 5090 took 82.16 ms, and 36.0 % of them 11.52 ms longer
    (eunomia-bpf/gpu_ext @3f4cc2d, MIT; docs/tenants.md): steps of that length do so by the slice and switch that follow."""
    tenants = tuple(Tenant(MEASURED_SLICE_NS) for _ in range(6))
    how = Shared(Tenancy(SLICES, tenants, Switch(FIXED_NS)), (STATE_NS / 2,))
    run = side_by_side(*(request_table([0], 8, 300) for _ in range(6)), how=how, steps=(12_990_000.0,) * 6)
    for service in map(run.result, range(6)):
        longer = service.gaps[service.gap_ns[:-1] > 88e6].sum() / service.gaps.sum()
        assert service.tpot_ns()[0] == pytest.approx((82.16 + 0.36 * 11.52) * 1e6, rel=0.005)
        assert longer == pytest.approx(0.36, abs=0.02)


def test_prompts_of_two_services_have_nothing_in_common() -> None:
    a = request_table([5, 9], [32, 16], 1, known=[32, 16], start=[0, 2, 3], identity=[1, 2, 1], piece=16)
    b = request_table([0, 9], [16, 16], 1, known=16, start=[0, 1, 2], identity=[2, 0], piece=16)
    made = together([a, b])
    assert made.service.tolist() == [1, 0, 0, 1] and made.nth.tolist() == [0, 0, 1, 1]
    own = [made.requests.identity[made.requests.start[r] : made.requests.start[r + 1]].tolist() for r in range(4)]
    assert own == [[5], [1, 2], [1], [3]]
    plain = together([request_table([0], 8, 1), b])
    assert plain.requests.piece[0] == 16 and np.diff(plain.requests.start).tolist() == [0, 1, 1]
    with pytest.raises(GpusimError, match="pieces of 16 and 512 tokens"):
        together([a, request_table([0], 512, 1, known=512, start=[0, 1], identity=[0], piece=512)])

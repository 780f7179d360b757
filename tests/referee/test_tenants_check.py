"""Does the referee pass programs on one GPU that are right, and find what is wrong in their turns and parts?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from coupled_programs import Together, copies, played
from hand_worked import machine
from tenant_programs import S, kernels, random_programs, slices
from test_coupled_check import ended, said

from gpusim.engine import state
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.simulate import prepared
from gpusim.machine.tenancy import MPS, SLICES, YIELDS, Switch, Tenancy, Tenant
from gpusim.machine.topology.connections import Connections
from gpusim.referee import tenants
from gpusim.trace.trace import COPY_IN


def checked(ran: Together, **changes: Any) -> list[Any]:
    assert ran.between.tenancy is not None
    given = {"results": ran.results, "tenancy": ran.between.tenancy, **changes}
    return tenants.check(given["results"], ran.traces, ran.profiles, given["tenancy"])


def ran(tenancy: Tenancy) -> Together:
    return played(Connections(tenancy=tenancy), kernels(2500, 300), kernels(1500))


WAYS = (slices(switch=Switch(100.0, 108, bandwidth=108.0)), Tenancy(MPS, (Tenant(), Tenant())),
        Tenancy(MPS, (Tenant(), Tenant(priority=1))),
        Tenancy(MPS, (Tenant(priority=1), Tenant()), yields="kernels"), Tenancy(MPS, (Tenant(),) * 2, yields="kernels"),
        Tenancy(MPS, (Tenant(),) * 2, yields="waves"), Tenancy(MPS, (Tenant(), Tenant(priority=1)), yields="waves"),
        Tenancy(MPS, (Tenant(),) * 2, apart=True))  # fmt: skip


@pytest.mark.parametrize("tenancy", WAYS)
def test_what_is_right_passes(tenancy: Tenancy) -> None:
    assert said(checked(ran(tenancy))) == ["", ""]


@pytest.mark.parametrize("tenancy", WAYS)
@pytest.mark.parametrize("by", [-700, -5, 5, 40_000])
def test_an_end_at_another_time_is_found(tenancy: Tenancy, by: int) -> None:
    right = ran(tenancy)
    end = int(right.results[1].metrics["makespan_ns"])
    wrong = [right.results[0], ended(right, 1, 0, end + by)]
    assert any(report.ok is False for report in checked(right, results=wrong))


@pytest.mark.parametrize("by", [0, -700, 700])
def test_slices_share_the_link_to_the_host_and_nothing_else(by: int) -> None:
    """10,240 bytes of each at 5 bytes/ns, as the link has 10."""
    runs = [prepared(s.trace(), machine(), log=True, place="device") for s in (copies((COPY_IN, 1)), copies((COPY_IN, 1)))]
    both = ("h2d", "d2h", "both")
    rates = {f"gpu {name}": getattr(runs[0].simulation.machine, name) for name in both}
    Coupled([run.simulation for run in runs], Connections(rates, [{n: (f"gpu {n}",) for n in both}] * 2)).advance(state.NEVER)
    results = [run.result() for run in runs]
    assert [one.metrics["makespan_ns"] for one in results] == [3048, 3048]
    traces = [run.work.trace for run in runs]
    if by:
        log = results[1].log.copy()
        log["t"][log["t"] == 3048] += by
        results[1] = replace(results[1], log=log)
    reports = tenants.check(results, traces, [machine()] * 2, None)
    assert all(report.ok for report in reports) == (by == 0)
    assert not all(report.ok for report in tenants.check(results, traces, [machine()] * 2, None, one_link=False))


def test_other_rules_than_those_that_ran_are_found() -> None:
    """Longer slices, no cost, a cap's rule: none of them gives these times."""
    right = ran(WAYS[0])
    for other in (slices(switch=Switch(0.0, 0)), Tenancy(SLICES, (Tenant(2 * S),) * 2, WAYS[0].switch), WAYS[1]):
        assert any(report.ok is False for report in checked(right, tenancy=other))


@pytest.mark.slow
@pytest.mark.agreement
@pytest.mark.parametrize("way", [SLICES, MPS])
def test_random_programs_on_one_gpu_are_right(way: str) -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        traces = random_programs(rng)
        tenancy = Tenancy(
            way, tuple(Tenant(int(rng.integers(5_000, 200_000)), priority=int(rng.integers(2))) for _ in traces),
            Switch(float(rng.integers(0, 3000)), int(rng.integers(0, 100_000)), 1555.0), YIELDS[seed % 3],
        )  # fmt: skip
        caps = [100 if way == SLICES else int(rng.integers(10, 101)) for _ in traces]
        runs = [
            prepared(trace, machine(), log=True, place="device", active_thread_percentage=cap)
            for trace, cap in zip(traces, caps, strict=True)
        ]
        Coupled([run.simulation for run in runs], Connections(tenancy=tenancy)).advance(state.NEVER)
        reports = tenants.check([run.result() for run in runs], traces, [machine()] * len(traces), tenancy)
        assert all(report.ok for report in reports), (seed, [str(v) for report in reports for v in report.violations[:2]])

"""Are the metrics over time those of the run: at its end its metrics, on the way never falling, and by the list's own words?"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim.results.activities import activities
from gpusim.results.monitoring.clock import chosen
from gpusim.results.monitoring.families import FAMILIES
from gpusim.results.monitoring.family import COUNTER, GAUGE, IDENTITY
from gpusim.results.monitoring.samples import Samples
from gpusim.results.monitoring.taken import samples
from gpusim.results.result import Result
from gpusim.trace.trace import Trace

# What a metric of a run is, of which family, with which own labels: exactly, or times 1e9.
SAME = {
    "makespan_ns": ("simulated_seconds", {}), "compute_busy_ns": ("kernel_seconds", {}),
    "swap_ins": ("swaps", {"direction": ["in"]}), "swap_outs": ("swaps", {"direction": ["out"]}),
    "h2d_bytes": ("swap_bytes", {"direction": ["in"]}), "d2h_bytes": ("swap_bytes", {"direction": ["out"]}),
    "device_allocs": ("device_calls", {"call": ["alloc"]}), "device_frees": ("device_calls", {"call": ["free"]}),
    "allocated_current_bytes": ("memory_allocated_bytes", {}), "requested_current_bytes": ("memory_requested_bytes", {}),
    "reserved_current_bytes": ("memory_reserved_bytes", {}),
}  # fmt: skip
OF_PAGES = {
    "makespan_ns": SAME["makespan_ns"], "compute_busy_ns": SAME["compute_busy_ns"],
    "gpu_faults": ("faults", {"processor": ["gpu"]}), "cpu_faults": ("faults", {"processor": ["cpu"]}),
    "fault_batches": ("fault_batches", {}), "h2d_bytes": ("migrated_bytes", {"direction": ["in"]}),
    "d2h_bytes": ("migrated_bytes", {"direction": ["out"]}),
}  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "swaps": {"trace": "resnet50-train", "on": "a100-pcie-40gb", "memory": "60 %"},
    "tiers": {
        "trace": "resnet50-train", "on": "a100-pcie-40gb", "memory": "50 %", "host_memory": "1 GiB", "tiers": "host > nvme"
    },
    "grains": {"trace": "resnet50-train", "on": "a100-pcie-40gb", "memory": "60 %", "grain": "2 MiB"},
    "out of memory": {"trace": "resnet50-train", "on": "a100-pcie-40gb", "memory": "30 %", "evict": "none"},
}  # fmt: skip


def taken(**run: Any) -> tuple[Result, Samples]:
    """A run and its samples."""
    made = gpusim.simulate(**run, log=True, bounds=False)
    trace = made.source if isinstance(made.source, Trace) else None
    found = samples(made.value, trace, activities(made.value, trace), chosen(int(made.makespan_ns)))
    return made.value, found


def at_the_end(result: Result, found: Samples, same: dict[str, Any], off: int = 2) -> dict[str, tuple[float, float]]:
    """What is not the same, times by more than so many ns: metric -> (as measured, as the last sample has it)."""
    out = {}
    for name, (family, labels) in same.items():
        if name in result.metrics:
            last = float(found.total(family, **labels)[-1]) * (1e9 if name.endswith("_ns") else 1)
            if last != pytest.approx(result.metrics[name], rel=1e-12, abs=off if name.endswith("_ns") else 0):
                out[name] = (float(result.metrics[name]), last)
    return out


@pytest.mark.slow
@pytest.mark.agreement
@pytest.mark.parametrize("name", RUNS)
def test_the_last_sample_is_what_was_measured(name: str) -> None:
    result, found = taken(**RUNS[name])
    # A kernel that a failure cuts off counts as busy in full.
    same = {metric: of for metric, of in SAME.items() if result.finished or metric != "compute_busy_ns"}
    assert not at_the_end(result, found, same)
    stalls = {k: v for k, v in result.metrics.items() if k.startswith("stall_") and k != "stall_ns"}
    by_cause = {k: float(found.total("stall_seconds", cause=[k[6:-3]])[-1]) * 1e9 for k in stalls}
    assert by_cause == pytest.approx(stalls, abs=1)
    assert found.total("ooms")[-1] == (not result.finished)
    assert found.total("evictions")[-1] == result.metrics["swap_outs"] + result.metrics.get("clean_drops", 0)


@pytest.mark.slow
@pytest.mark.agreement
@pytest.mark.parametrize(
    "run",
    [{"trace": "resnet50-train", "on": "rtx-4090", "memory": "60 %"}, {"trace": "pingpong", "on": "rtx-4090"}],
    ids=["recorded", "managed"],
)
def test_of_unified_memory_as_well(run: dict[str, Any]) -> None:
    result, found = taken(**run, unified="driver")
    batches = int(result.metrics["fault_batches"])  # a kernel goes on at the tick after each
    assert not at_the_end(result, found, OF_PAGES, off=2 + batches)
    assert "swaps" not in {name for name, curves in found.curves.items() if curves}


@pytest.mark.slow
@pytest.mark.formulas
@pytest.mark.parametrize("name", RUNS)
def test_counters_never_fall_and_gauges_are_no_less_than_nothing(name: str) -> None:
    _, found = taken(**RUNS[name])
    for family in FAMILIES.values():
        for values in found.curves[family.name].values():
            assert values.shape == found.seconds.shape and np.isfinite(values).all() and (values >= 0).all(), family.name
            if family.kind == COUNTER:
                assert (np.diff(values) >= 0).all(), family.name
            if family.unit == "ratio":
                assert (values <= 1).all(), family.name


@pytest.mark.slow
@pytest.mark.formulas
def test_the_time_of_streams_is_kernels_and_stalls() -> None:
    result, found = taken(**RUNS["swaps"])
    busy, stalled = found.total("kernel_seconds")[-1], found.total("stall_seconds")[-1]
    assert busy + stalled == pytest.approx(result.metrics["makespan_ns"] / 1e9, rel=0.001)


@pytest.mark.slow
@pytest.mark.hand_worked
def test_steps_are_those_of_the_program() -> None:
    result, found = taken(**RUNS["swaps"])
    assert found.total("steps")[-1] == 2  # resnet50-train has two
    took = found.total("step_seconds")
    assert took[0] == 0 and took[-1] < result.metrics["makespan_ns"] / 1e9
    peak = found.total("step_peak_bytes", memory=["device"])
    assert peak.max() == result.metrics["allocated_peak_bytes"]
    assert found.total("step_peak_bytes", memory=["host"]).max() == result.metrics["host_peak_bytes"]


@pytest.mark.slow
@pytest.mark.hand_worked
def test_a_run_that_ends_early_has_not_ended_its_last_step() -> None:
    result, found = taken(**RUNS["out of memory"])
    assert result.outcome == "oom" and found.total("steps")[-1] == 0


def test_names_and_units_are_by_the_conventions_of_prometheus() -> None:
    for name, family in FAMILIES.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*[a-z]", name) and family.name == name
        assert family.kind in (COUNTER, GAUGE) and not name.endswith(("_total", "_count", "_sum", "_info"))
        assert family.unit in ("", "seconds", "bytes", "ratio", "bytes_per_second")
        assert family.unit == "" or name.endswith(f"_{family.unit}"), "the unit ends the name"
        assert not set(family.labels) & set(IDENTITY) and not set(family.labels) & {"le", "quantile", "job", "instance"}
        assert family.sample.endswith("_total") == (family.kind == COUNTER)
        assert family.meaning.endswith(".") and family.meaning[0].isupper() | family.meaning[0].isdigit()

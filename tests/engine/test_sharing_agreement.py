"""Do runs that share multiprocessors and bandwidth agree: compiled and interpreted, at once and alone, shared and not?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plain_python import fingerprint, interpreted

from gpusim.engine.run.simulate import simulate, simulate_together
from gpusim.machine import catalogue
from gpusim.programs.generate.synth import random_program
from gpusim.results import log
from gpusim.results.result import Result
from gpusim.trace import workload
from gpusim.trace.build import make_trace
from gpusim.trace.trace import COLLECTIVE, COPY_IN, COPY_OUT, COPY_PEER, KERNEL, NAME_TABLES, Trace, columns

pytestmark = pytest.mark.agreement

MACHINES = ("a100-pcie-40gb", "a100-sxm4-80gb", "l4")
LAUNCHES = ("grid=30 resident=1", "grid=70 resident=2", "grid=500 resident=2")


def contended(seed: int, streams: int) -> Trace:
    """A random program with copies and collectives, launches that fill parts of a GPU, and priorities of streams."""
    rng = np.random.default_rng(seed)
    made = random_program(seed, int(rng.integers(30, 150)), streams=streams, mean_life=30.0, largest=16 << 20)
    given = {name: column for name, column in columns(made) if name != "bytes"}
    kinds = [KERNEL, COPY_IN, COPY_OUT, COLLECTIVE, COPY_PEER]
    given["activity"] = rng.choice(kinds, made.ops, p=[0.7, 0.1, 0.1, 0.05, 0.05]).astype(np.uint8)
    given["launch"] = rng.integers(-1, len(LAUNCHES), made.ops)
    tables = {name: getattr(made, name) for name in NAME_TABLES} | {"launches": LAUNCHES}
    priorities = {str(stream): int(rng.integers(-1, 2)) for stream in range(streams)}
    return make_trace("contended", given, tables, {"stream_priority": priorities})


def program(seed: int, streams: int, **choices: Any) -> dict[str, Any]:
    """The arguments of a run: kernels of 0 to 20 us, so that many need all of the bandwidth, in 60 % of the memory."""
    trace = contended(seed, streams)
    work = workload.build(trace, np.random.default_rng(seed).integers(0, 20_000, trace.ops))
    return {
        "trace": trace, "profile": catalogue.load(MACHINES[seed % len(MACHINES)]), "work": work, "log": True,
        "capacity_bytes": int(work.live_peak * 0.6) + (20 << 20), "prefetch": ("none", "next_k")[seed % 2],
        "active_thread_percentage": (100, 100, 40)[seed % 3], **choices,
    }  # fmt: skip


def fingerprints(count: int) -> list[Any]:
    return [fingerprint(simulate(**program(seed, 1 + seed % 4))) for seed in range(count)]


@pytest.mark.slow
def test_compiled_and_interpreted_runs_agree() -> None:
    assert interpreted("test_sharing_agreement", "t.fingerprints(8)") == fingerprints(8)


@pytest.mark.slow
def test_programs_at_once_are_each_as_it_is_alone() -> None:
    runs = [program(seed, 1 + seed % 4) for seed in range(20)]
    shared = 0
    for together, run in zip(simulate_together(runs), runs, strict=True):
        alone = simulate(**run)
        assert fingerprint(together) == fingerprint(alone)
        shared += alone.metrics["sharing_ns"] > 0 and alone.metrics["stall_sms_ns"] > 0
    assert shared > 5


def kernel_times(result: Result, kernels: Any) -> tuple[Any, Any]:
    """START and END of the operators of this mask, by operator."""
    assert result.log is not None
    issues, starts, ends = (result.log[result.log["kind"] == kind] for kind in (log.ISSUE, log.START, log.END))
    number = dict(zip(issues["a"].tolist(), issues["addr"].tolist(), strict=True))
    at = [dict(zip(some["a"].tolist(), some["t"].tolist(), strict=True)) for some in (starts, ends)]
    wanted = np.flatnonzero(kernels).tolist()
    start, end = (np.array([times[number[o]] for o in wanted]) for times in at)
    return start, end


@pytest.mark.parametrize("seed", range(6))
def test_what_counts_adds_up_to_the_log(seed: int) -> None:
    run = program(seed, 3, capacity_bytes=None)
    result = simulate(**run)
    assert result.finished
    kernels = run["trace"].activity == KERNEL
    start, end = kernel_times(result, kernels)
    alone = run["work"].duration[kernels]
    assert (end - start >= alone).all()
    assert result.metrics["compute_busy_ns"] == (end - start).sum()
    assert result.metrics["sharing_ns"] == (end - start - alone).sum()
    parts = [name for name in result.metrics if name.startswith("stall_") and name != "stall_ns"]
    assert result.metrics["stall_ns"] == sum(result.metrics[name] for name in parts)


@pytest.mark.parametrize("seed", range(6))
def test_one_stream_of_kernels_that_leave_bandwidth_shares_nothing(seed: int) -> None:
    """Kernels a thousand times as long need little of the memory."""
    run = program(seed, 1, active_thread_percentage=100)
    run["work"] = workload.build(run["trace"], run["work"].duration * 1000)
    shared, alone = simulate(**run), simulate(**run, share="engines")
    assert alone.log is not None and shared.log is not None and np.array_equal(shared.log, alone.log)
    assert {**alone.metrics, "sharing_ns": 0, "stall_sms_ns": 0} == shared.metrics

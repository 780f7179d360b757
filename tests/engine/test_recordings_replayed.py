"""Does a recording's replay on the machine of the recording take the time that the device took there?"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.machine.kernels.alone import alone
from gpusim.machine.kernels.measured import measured_gpu
from gpusim.machine.product import profile_of
from gpusim.programs.recordings import import_trace
from gpusim.referee import check
from gpusim.results import log
from gpusim.results.result import Result
from gpusim.show.basis import basis
from gpusim.trace.build import TraceBuilder
from gpusim.trace.recorded_times import recorded_on
from gpusim.trace.trace import COPY_IN, COPY_OUT, KERNEL, Trace

pytestmark = pytest.mark.oracle

DATA = Path(__file__).parents[1] / "data" / "traces"
OTHERS = os.environ.get("GPUSIM_KINETO", "")  # a folder of other Kineto recordings, each of one device
MACHINE, SHARED = "a100-sxm4-80gb", ("sms", "memory", "engines")


def random_run(seed: int) -> list[dict[str, Any]]:
    """Operators of two or three streams, issued one by one: kernels that move up to what the memory gives, and copies."""
    rng, time, out = np.random.default_rng(seed), 0, list[dict[str, Any]]()
    streams = int(rng.integers(2, 4))
    for _ in range(int(rng.integers(20, 60))):
        activity = int(rng.choice([KERNEL, KERNEL, KERNEL, COPY_IN, COPY_OUT]))
        ns = int(rng.integers(5_000, 200_000))
        time += int(rng.integers(0, 60_000))
        rate = rng.choice([0, 240, 600, 1080, 1200]) if activity == KERNEL else rng.uniform(5, 25)  # bytes/ns
        launch = f"grid={rng.integers(1, 400)} block=256 registers=32"
        out.append({
            "activity": activity, "duration": ns, "read_bytes": int(rate * ns), "stream": int(rng.integers(0, streams)),
            "time": time, "launch": launch if activity == KERNEL and rng.random() < 0.7 else None,
        })  # fmt: skip
    return out


def traced(operators: list[dict[str, Any]], on: str = MACHINE) -> Trace:
    build = TraceBuilder("recorded")
    for columns in operators:
        build.op("aten.add.Tensor", [], [], **columns)
    build.meta = {"recorded_on": on}
    return build.finish()


def recording(operators: list[dict[str, Any]], on: str = MACHINE) -> Trace:
    """What a profiler would see of a run: when each operator began and how long it was there, with all that ran beside it."""
    trace = traced(operators)
    result = simulate(trace, catalogue.load(MACHINE), durations=trace.duration, log=True)
    assert result.log is not None
    issued, times = result.log[result.log["kind"] == log.ISSUE], {}
    for kind in (log.START, log.END):
        rows = result.log[result.log["kind"] == kind]
        times[kind] = dict(zip(rows["a"].tolist(), rows["t"].tolist(), strict=True))
    at = {int(r["a"]): int(r["addr"]) for r in issued}
    seen = [
        {**columns, "device_time": times[log.START][at[i]], "duration": times[log.END][at[i]] - times[log.START][at[i]]}
        for i, columns in enumerate(operators)
    ]
    return traced(seen, on)


def apart(result: Result) -> float:
    """By which part of the recorded time the replay's is longer."""
    return float(result.metrics["device_ns"] / result.metrics["recorded_device_ns"] - 1)


@pytest.mark.slow
def test_a_replay_of_what_ran_side_by_side_comes_back() -> None:
    """Within 1 in 1,000; with the durations as they were recorded several of these programs would be more than 2 % off."""
    machine, off = catalogue.load(MACHINE), []
    for seed in range(12):
        trace = recording(random_run(seed))
        replayed = simulate(trace, machine)
        assert abs(apart(replayed)) < 1e-3 and "contention" not in replayed.spec
        off.append(apart(simulate(trace, machine, durations=trace.duration)))
    assert max(off) > 0.02 and sum(part > 0.01 for part in off) > 3


def test_a_kernel_beside_a_recorded_copy_takes_its_recorded_time_again() -> None:
    """Bound by the memory, it left 25 bytes/ns to the copy all the time: alone it is faster by as much."""
    machine, ns = catalogue.load(MACHINE), 10_000_000
    alike = {"duration": ns, "time": 0, "device_time": 0}
    bandwidth = measured_gpu(machine).numbers.bandwidth / 1e9
    trace = traced([
        {**alike, "read_bytes": round((bandwidth - 25) * ns), "launch": "grid=108 resident=1"},
        {**alike, "read_bytes": 25 * ns, "activity": COPY_IN, "stream": 1},
    ])  # fmt: skip
    own = alone(trace, SHARED).duration
    assert own[0] == pytest.approx(ns * (1 - 25 / bandwidth), rel=1e-3) and own[1] == ns
    result = simulate(trace, machine)
    assert result.metrics["device_ns"] == pytest.approx(ns, rel=1e-3) and result.metrics["sharing_ns"] > 0


def test_what_does_not_come_back_is_said() -> None:
    """The device waited 3 ms for something that the recording does not tell."""
    first = {"duration": 1_000_000, "time": 0, "device_time": 0}
    late = {**first, "time": 10_000, "device_time": 4_000_000}
    result = simulate(traced([first, late]), catalogue.load(MACHINE))
    assert apart(result) == pytest.approx(-0.6, abs=0.01)
    assert "Contention unknown: the device works for 2 ms, in the recording for 5 ms." in basis([result])
    elsewhere = simulate(traced([first, late]), catalogue.load("h100-sxm-80gb"))
    assert "contention" not in elsewhere.spec


def test_the_referee_knows_both_times_of_the_device() -> None:
    trace, machine = traced([{"duration": 1_000_000, "time": 0, "device_time": 0}]), catalogue.load(MACHINE)
    result = simulate(trace, machine, log=True)
    assert check(result, trace, machine).violations == ()
    for name in ("device_ns", "recorded_device_ns"):
        edited = replace(result, metrics={**result.metrics, name: 999_999})
        assert [v.what for v in check(edited, trace, machine).violations] == [f"metric {name} is 999999"]


def test_operators_side_by_side_on_an_unknown_machine_are_said() -> None:
    overlapping = [{"duration": 1_000_000, "time": 0, "device_time": 0, "stream": stream} for stream in (0, 1)]
    result = simulate(traced(overlapping, "a machine of tomorrow"), catalogue.load(MACHINE))
    said = "Contention unknown: operators ran side by side on a machine that is not in the catalogue."
    assert said in basis([result])
    alone_each = simulate(traced(overlapping, "a machine of tomorrow"), catalogue.load(MACHINE), share="none")
    assert "contention" not in alone_each.spec


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kineto_v100_ddp", "kineto_v100_resnet50", "kineto_mi250", "simple_add_kineto"])
def test_recordings_of_pytorch_come_back(name: str) -> None:
    comes_back(import_trace(DATA / f"{name}.json.gz"))


@pytest.mark.slow
@pytest.mark.skipif(not OTHERS, reason="GPUSIM_KINETO names no folder with other Kineto recordings")
def test_other_recordings_come_back() -> None:
    traces = [import_trace(file) for file in sorted(Path(OTHERS).glob("*.json.gz"))]
    recordings = [trace for trace in traces if trace.meta["format"] == "kineto"]
    assert recordings
    for trace in recordings:
        comes_back(trace)


def comes_back(trace: Trace) -> None:
    """Within 2 % on the machine of the recording, or with its durations on another one where the catalogue has not that one."""
    assert (trace.device_time >= 0).all()
    machine = profile_of(recorded_on(trace))
    durations = trace.duration if machine is None else None
    result = simulate(trace, machine or catalogue.load("v100-sxm2-32gb"), durations=durations, evict="none")
    assert abs(apart(result)) < 0.02 and "contention" not in result.spec

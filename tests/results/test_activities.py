"""Rows of activities: nothing of a run is missing in them, nothing is in them that was not."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hand_worked import Steps, machine, play, three_tensors_in_two_blocks

from gpusim.base.errors import ResultError
from gpusim.engine.run.simulate import simulate
from gpusim.machine.catalogue import load
from gpusim.programs.generate.synth import random_program
from gpusim.results import log as lg
from gpusim.results.activities import KINDS, NONE, Activities, activities
from gpusim.results.result import Result
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import COPY_IN, COPY_OUT, Trace

RUNS: tuple[dict[str, Any], ...] = (
    {}, {"evict": "fifo", "prefetch": "next_k"}, {"streams": 3}, {"streams": 3, "share": "sms, memory"},
    {"tiers": "nvme"}, {"tiers": "host(capacity=32MiB) > nvme", "streams": 2}, {"grain": 2 << 20},
    {"share": "engines", "streams": 2}, {"place": "pytorch", "memory": 0.98},
)  # fmt: skip


def ran(seed: int, *, streams: int = 1, memory: float = 0.7, **choices: Any) -> tuple[Result, Trace]:
    trace = random_program(seed, ops=80, streams=streams)
    profile = load("l4")
    peak = int(simulate(trace, profile).metrics["requested_peak_bytes"])
    return simulate(trace, profile, capacity_bytes=int(peak * memory), log=True, **choices), trace


def shown(found: Activities) -> list[tuple[str, str, str, int, int, int]]:
    """(lane, kind, name, start, end, cause) of every row."""
    return [
        (found.lanes[r["lane"]].name, KINDS[r["kind"]], found.names[r["name"]], int(r["start"]), int(r["end"]), int(r["cause"]))
        for r in found.rows
    ]


def test_a_run_worked_out_by_hand() -> None:
    steps = three_tensors_in_two_blocks()
    found = activities(play(steps, blocks=2), steps.trace())
    of_stream = [(kind, start, end) for lane, kind, _, start, end, _ in shown(found) if lane == "stream 0"]
    assert of_stream == [("kernel", 0, 1000), ("kernel", 1000, 2000), ("kernel", 3280, 3780), ("kernel", 7584, 8284)]
    rows = shown(found)
    stalls = [(name, start, end, rows[cause][:2]) for lane, kind, name, start, end, cause in rows if kind == "stall"]
    assert stalls == [
        ("stall_swap_out", 2000, 3280, ("swap out", "swap_out")), ("stall_swap_out", 3780, 5560, ("swap out", "swap_out")),
        ("stall_swap_in", 5560, 7584, ("swap in", "swap_in")),
    ]  # fmt: skip
    # The swap out waits for the kernel that writes the tensor, the next one for the turn, the swap in for the room.
    swaps = [(kind, start, rows[cause][1], rows[cause][4]) for _, kind, _, start, _, cause in rows if kind.startswith("swap")]
    assert swaps == [
        ("swap_out", 1000, "kernel", 1000), ("swap_out", 3280, "swap_out", 3280), ("swap_in", 5560, "swap_out", 5560)
    ]  # fmt: skip
    assert [lane.name for lane in found.lanes if lane.group == "stall"] == ["stream 0: stalls"]
    times, values = found.rates["d2h"]
    assert times.tolist() == [1000, 5560] and values[0] == round(10240 * 1e9 / 2280)


@pytest.mark.parametrize("choices", RUNS, ids=str)
def test_sums_of_rows_are_the_metrics(choices: dict[str, Any]) -> None:
    for seed in range(3):
        result, trace = ran(seed, **choices)
        found = activities(result, trace)
        stalls = found.stalls()
        said = {name: ns for name, ns in result.metrics.items() if name.startswith("stall_") and name != "stall_ns"}
        assert stalls == {name: ns for name, ns in said.items() if ns}
        assert sum(stalls.values()) == result.metrics["stall_ns"] > 0
        kernels = found.of_kind("kernel")
        assert int((kernels["end"] - kernels["start"]).sum()) == result.metrics["compute_busy_ns"]
        if result.finished:
            assert len(kernels) == result.metrics["kernels"]
            assert int(found.of_kind("swap_in")["bytes"].sum()) == result.metrics["h2d_bytes"]
            assert int(found.of_kind("swap_out")["bytes"].sum()) == result.metrics["d2h_bytes"]
        for name in ("allocated", "reserved"):
            if name in found.counters:
                assert int(found.counters[name][1].max()) == result.metrics[f"{name}_peak_bytes"]
                assert int(found.counters[name][1][-1]) == result.metrics[f"{name}_current_bytes"]
        levels = np.array([[values[i] if (i := int(np.searchsorted(times, at, "right")) - 1) >= 0 else 0
                            for at in found.counters["allocated"][0]] for times, values in found.owners.values()])  # fmt: skip
        assert np.array_equal(levels.sum(0), found.counters["allocated"][1])


@pytest.mark.parametrize("choices", RUNS, ids=str)
def test_rows_are_what_the_log_has(choices: dict[str, Any]) -> None:
    """Every activity once, from START to END; rows of a lane do not overlap; a cause ends when its row begins or ends."""
    result, trace = ran(7, **choices)
    found = activities(result, trace)
    assert result.log is not None
    rows, log = found.rows, result.log
    began, ended = (dict(log[log["kind"] == kind][["a", "t"]].tolist()) for kind in (lg.START, lg.END))
    expected = sorted((t, ended.get(a, int(result.metrics["makespan_ns"]))) for a, t in began.items())
    ran_rows = rows[(rows["kind"] < KINDS.index("swap_out") + 1)]
    assert sorted(zip(ran_rows["start"].tolist(), ran_rows["end"].tolist(), strict=True)) == expected
    assert (np.diff(rows["start"]) >= 0).all()
    for lane in range(len(found.lanes)):
        mine = rows[rows["lane"] == lane]
        assert len(mine) and (mine["start"][1:] >= mine["end"][:-1]).all()
    waited = rows[rows["cause"] != NONE]
    until = np.where(waited["kind"] == KINDS.index("stall"), waited["end"], waited["start"])
    assert len(waited) > 20 and np.array_equal(rows["end"][waited["cause"]], until)


def test_operators_that_are_no_kernels_have_their_words_and_links() -> None:
    steps = Steps()
    steps.carry(COPY_IN, 1, blocks=2)
    steps.carry(COPY_OUT, 2)
    steps.kernel(100)
    found = activities(play(steps), steps.trace())
    kinds = {KINDS[r["kind"]]: found.lanes[r["lane"]].name for r in found.rows}
    assert {"copy_in": "stream 1", "copy_out": "stream 2", "kernel": "stream 0"}.items() <= kinds.items()
    assert set(found.rates) == {"h2d", "d2h"}


def test_a_run_that_ran_out_of_memory_ends_when_it_did() -> None:
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(1000, writes=(a,))
    steps.kernel(1000, reads=(a, b))
    result = play(steps, blocks=1)
    assert result.outcome == "oom"
    found = activities(result, steps.trace())
    assert found.rows["end"].max() <= result.metrics["makespan_ns"]


def test_what_is_no_timeline_is_refused() -> None:
    steps = three_tensors_in_two_blocks()
    result = play(steps, blocks=2)
    with pytest.raises(ResultError, match="kept no event log"):
        activities(dataclasses.replace(result, log=None), steps.trace())
    with pytest.raises(ResultError, match="in the trace that ran"):
        activities(result, None)
    with pytest.raises(ResultError, match="is not the one that ran"):
        activities(dataclasses.replace(result, spec={**result.spec, "trace_hash": "0"}), steps.trace())
    with pytest.raises(ResultError, match="version 2, which does not say what streams waited for"):
        activities(dataclasses.replace(result, spec={**result.spec, "log_version": 2}), steps.trace())


def test_phases_are_spans() -> None:
    """From the first start of a phase's operators to that of the next one's; none before the first phase."""
    build = TraceBuilder("phases")
    for phase in ("", "fwd", "bwd", "fwd"):
        if phase:
            build.begin_phase(phase)
        for _ in range(2):
            build.op("k", (), (), duration=1000)
    trace = build.finish()
    found = activities(simulate(trace, machine(), log=True), trace)
    kernels, phases = found.of_kind("kernel"), found.of_kind("phase")
    assert [found.names[n] for n in phases["name"]] == ["fwd", "bwd", "fwd"] and phases["op"].tolist() == [2, 4, 6]
    assert phases["start"].tolist() == kernels["start"][[2, 4, 6]].tolist() == [2000, 4000, 6000]
    assert phases["end"].tolist() == [4000, 6000, 8000]

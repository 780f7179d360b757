"""Does each metric mean one thing, with and without unified memory?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusim.engine.pages.run import simulate_unified
from gpusim.engine.pages.settings import DriverSettings
from gpusim.engine.run.simulate import simulate
from gpusim.machine.catalogue import load
from gpusim.programs.generate.synth import random_program
from gpusim.programs.managed.text import load as read
from gpusim.results import renamed
from gpusim.results.compare import changes
from gpusim.results.metrics import METRICS
from gpusim.results.result import Result
from gpusim.show.figure.time_breakdown import LOOKS
from gpusim.show.values.breakdown import IDLE, PARTS, breakdown
from gpusim.trace.workload import build

STALLS = {name for name, metric in METRICS.items() if metric.group == "stalls"} - {"stall_ns"}
OF_SWAPS = {"stall_swap_in_ns", "stall_swap_out_ns", "swap_ins", "swap_outs", "clean_drops", "prefetches"}
OF_AN_ALLOCATOR = {"allocated_peak_bytes", "reserved_peak_bytes", "host_peak_bytes", "device_allocs", "frag_external"}
PROGRAM = """
arrays: {a: 4 MiB, b: 3 MiB}
steps:
  - host_write: a
  - start
  - prefetch: a
  - repeat: 2
    steps:
      - kernel: copy
        accesses: [{read: a}, {write: b}]
      - host_read: b
  - prefetch: b
    to: cpu
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """A run of tensors, the same recording under unified memory, and two managed programs; none has memory for everything.

    `brought` is the recording with cudaMemPrefetchAsync before each kernel.
    """
    file = tmp_path_factory.mktemp("programs") / "p.yaml"
    file.write_text(PROGRAM)
    trace = random_program(3, ops=100)
    work = build(trace, trace.duration.clip(1000))
    capacity = work.live_peak * 7 // 10
    pages = {"capacity_bytes": 4 << 20}
    return {
        "tensors": simulate(trace, load("l4"), evict="lru", capacity_bytes=capacity, work=work),
        "recorded": simulate_unified(work, load("l4"), capacity_bytes=capacity, place="best_fit"),
        "brought": simulate_unified(
            work, load("l4"), settings=DriverSettings(advice="prefetch"), capacity_bytes=capacity, place="best_fit"
        ),
        "managed": simulate_unified(read(file), load("l4"), **pages),
        "remote": simulate_unified(read(file), load("l4"), settings=DriverSettings(advice="zero_copy"), **pages),
    }


KINDS = ("tensors", "recorded", "brought", "managed", "remote")


@pytest.mark.parametrize("kind", KINDS)
def test_work_and_stalls_are_the_makespan(runs: dict[str, Result], kind: str) -> None:
    m = runs[kind].metrics
    assert runs[kind].finished and m["stall_ns"] > 0
    assert m["stall_ns"] == sum(m.get(name, 0) for name in STALLS)
    # One stream, no copies of the program's own: it works or it waits.  Each part is rounded once.
    assert abs(m["compute_busy_ns"] + m["stall_ns"] - m["makespan_ns"]) <= (0 if kind == "tensors" else len(STALLS))


@pytest.mark.parametrize("kind", KINDS)
def test_the_bars_of_a_time_breakdown_are_the_makespan(runs: dict[str, Result], kind: str) -> None:
    shown = breakdown(runs[kind])
    assert shown.total == runs[kind].metrics["makespan_ns"] == pytest.approx(sum(shown.parts.values()))
    assert shown.parts.get(IDLE, 0) <= len(STALLS), "what is drawn as idle is rounding"


def test_a_time_breakdown_shows_every_stall_there_is() -> None:
    assert PARTS.keys() == {"compute_busy_ns", *STALLS}
    assert LOOKS.keys() == {*PARTS.values(), IDLE}
    assert len({*LOOKS.values()}) == len(LOOKS), "parts can be told apart"


def test_nothing_under_unified_memory_is_counted_as_a_swap_or_as_an_allocators(runs: dict[str, Result]) -> None:
    assert runs["tensors"].metrics.keys() >= OF_SWAPS | OF_AN_ALLOCATOR
    unified = {name for name, metric in METRICS.items() if metric.group == "unified memory"}
    assert not runs["tensors"].metrics.keys() & (unified | {"stall_fault_ns", "stall_host_ns"})
    for kind in ("recorded", "brought", "managed", "remote"):
        assert not runs[kind].metrics.keys() & (OF_SWAPS | OF_AN_ALLOCATOR)
        assert runs[kind].metrics.keys() >= {"resident_peak_bytes", "chunks_peak_bytes", "host_resident_peak_bytes"}


def test_each_stall_under_unified_memory_has_its_cause(runs: dict[str, Result]) -> None:
    managed, remote, recorded = (runs[kind].metrics for kind in ("managed", "remote", "recorded"))
    assert managed["stall_fault_ns"] > 0 and managed["stall_explicit_ns"] > 0 and managed["stall_host_ns"] > 0
    assert managed["stall_host_ns"] == managed["host_work_ns"] and managed["stall_remote_ns"] == 0 == managed["remote_bytes"]
    assert remote["remote_bytes"] > 0 and remote["stall_remote_ns"] > 0
    assert recorded["stall_launch_ns"] > 0 and recorded["stall_explicit_ns"] == recorded["stall_host_ns"] == 0
    brought = runs["brought"].metrics
    assert brought["stall_explicit_ns"] > 0 and brought["gpu_faults"] == 0
    assert brought["stall_fault_ns"] == brought["stall_migration_ns"] == 0
    for m in (managed, recorded):
        assert m["stall_migration_ns"] <= m["fault_copy_ns"], "only copies that no work hides"


def test_compare_knows_the_names_of_before(runs: dict[str, Result]) -> None:
    new = replace(runs["managed"], spec={**runs["managed"].spec, "unified": "driver"})
    names = {
        "resident_peak_bytes": "allocated_peak_bytes", "chunks_peak_bytes": "reserved_peak_bytes",
        "host_resident_peak_bytes": "host_peak_bytes", "stall_host_ns": "stall_sync_ns",
    }  # fmt: skip
    old = replace(new, metrics={names.get(name, name): value for name, value in new.metrics.items()})
    assert old.metrics.keys() != new.metrics.keys()
    read = replace(old, metrics=renamed.metrics(old.spec, old.metrics))  # as a folder is read
    assert changes([read], [new]) == []
    assert [c.metric for c in changes([replace(read, metrics={**read.metrics, "host_resident_peak_bytes": 1})], [new])] == [
        "host_resident_peak_bytes"
    ]

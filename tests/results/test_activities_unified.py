"""Rows of a run under unified memory: steps, stalls, fault batches and copies of pages are those of its log."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import ResultError
from gpusim.engine.pages.run import simulate_unified
from gpusim.engine.pages.settings import DriverSettings
from gpusim.machine.catalogue import load
from gpusim.programs.generate.synth import random_program
from gpusim.programs.managed.text import load as read
from gpusim.referee import pages as referee
from gpusim.results.activities import KINDS, Activities, activities
from gpusim.results.result import Result
from gpusim.trace.workload import build

PROGRAM = """
arrays: {a: 12 MiB, b: 6 MiB}
steps:
  - host_write: a
  - start
  - prefetch: a
  - repeat: 3
    steps:
      - kernel: copy
        accesses: [{read: a}, {write: b}]
      - host_read: b
  - prefetch: b
    to: cpu
"""


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("programs") / "p.yaml"
    path.write_text(PROGRAM)
    return read(path)


def of_managed(program: Any, **settings: Any) -> Result:
    return simulate_unified(program, load("l4"), settings=DriverSettings(**settings), capacity_bytes=8 << 20, log=True)


def of_recorded(seed: int) -> tuple[Result, Any]:
    work = build(random_program(seed, ops=40), np.random.default_rng(seed).integers(1000, 90_000, 40))
    return simulate_unified(work, load("l4"), capacity_bytes=work.live_peak * 7 // 10, log=True), work.trace


def agrees(result: Result, found: Activities) -> None:
    said = {name: ns for name, ns in result.metrics.items() if name.startswith("stall_") and name != "stall_ns"}
    assert found.stalls() == {name: ns for name, ns in said.items() if ns}
    assert sum(found.stalls().values()) == result.metrics["stall_ns"] > 0
    for lane in range(len(found.lanes)):
        mine = found.rows[found.rows["lane"] == lane]
        assert len(mine) and (mine["start"][1:] >= mine["end"][:-1]).all(), found.lanes[lane]
    assert int(found.rows["end"][found.rows["kind"] != KINDS.index("stall")].max()) <= result.metrics["makespan_ns"]
    came = {link: int(found.rows["bytes"][[found.names[n] == name for n in found.rows["name"]]].sum())
            for link, name in (("h2d", "pages to a GPU"), ("d2h", "pages from a GPU"))}  # fmt: skip
    assert came == {"h2d": result.metrics["h2d_bytes"], "d2h": result.metrics["d2h_bytes"]}
    assert len(found.of_kind("fault_batch")) == result.metrics["fault_batches"] > 0
    evicted = int(found.of_kind("eviction")["bytes"].sum())
    assert evicted == result.metrics["evicted_bytes"]
    assert int(found.counters["allocated"][1].max()) == result.metrics["resident_peak_bytes"]


@pytest.mark.parametrize("settings", [{}, {"evict": "clean_drop"}, {"prefetch": "stride"}], ids=str)
def test_a_managed_program(managed: Any, settings: dict[str, Any]) -> None:
    result = of_managed(managed, **settings)
    found = activities(result, None)
    agrees(result, found)
    steps = found.rows[[found.lanes[n].name == "program" for n in found.rows["lane"]]]
    names = [found.names[n] for n in steps["name"]]
    assert names == ["prefetch a", *["copy", "host reads b"] * 3, "prefetch b"]
    assert [KINDS[k] for k in steps["kind"][:3]] == ["step", "kernel", "host"]
    assert steps["end"][-1] == result.metrics["makespan_ns"] and (steps["start"][1:] == steps["end"][:-1]).all()
    assert len(found.of_kind("host_fault")) > 0 and found.rates["h2d"][1].max() <= 1.001 * result.spec["rates"]["h2d"]
    batches = found.of_kind("fault_batch")
    inside = [((k["start"] <= batches["start"]) & (batches["end"] <= k["end"])) for k in found.of_kind("kernel")]
    assert np.logical_or.reduce(inside).all()


def test_recorded_programs_have_their_operators() -> None:
    for seed in range(4):
        result, trace = of_recorded(seed)
        found = activities(result, trace)
        agrees(result, found)
        kernels = found.of_kind("kernel")
        assert set(kernels["op"].tolist()) == set(range(trace.ops))
        assert {found.names[k["name"]] for k in kernels} == {trace.op_names[o] for o in trace.op}
        assert result.metrics["stall_launch_ns"] > 0


def test_the_referee_adds_the_stalls_of_the_steps_up(managed: Any) -> None:
    result = of_managed(managed)
    assert result.pages is not None and referee.check(result).ok
    wrong = {**result.pages, "step_fault": result.pages["step_fault"] + 1}
    said = [str(v) for v in referee.check(dataclasses.replace(result, pages=wrong)).violations]
    assert any("stall_fault_ns" in text for text in said)


def test_a_log_of_an_earlier_version_or_another_program_is_refused(managed: Any) -> None:
    result = of_managed(managed)
    assert result.pages is not None
    without = {name: column for name, column in result.pages.items() if name != "until"}
    with pytest.raises(ResultError, match="of an earlier version"):
        activities(dataclasses.replace(result, pages=without), None)
    cut = {name: column[:20] if name in ("time", "kind") else column for name, column in result.pages.items()}
    with pytest.raises(ResultError, match="ends after 20 of"):
        activities(dataclasses.replace(result, pages=cut), None)
    with pytest.raises(ResultError, match="is not the one that ran"):
        activities(result, random_program(1, ops=5))

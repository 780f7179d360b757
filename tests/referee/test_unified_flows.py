"""Does the referee find when what managed memory moves ends, from the log alone, and does it see what is wrong?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hand_worked import machine

from gpusim.engine.pages.run import simulate_unified
from gpusim.engine.pages.settings import DriverSettings
from gpusim.machine.kernels.durations import durations
from gpusim.programs.managed.steps import Access, Advise, Array, HostTouch, Kernel, ManagedProgram, Prefetch, Start
from gpusim.referee import pages
from gpusim.results.result import Result
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import COPY_IN
from gpusim.trace.workload import build

pytestmark = pytest.mark.slow

MIB = 1 << 20


def of_streams() -> Result:
    """Faults, remote reads, a prefetch and kernels of two streams."""
    arrays = [Array(name, 2 * MIB) for name in "abc"] + [Array("d", 2 * MIB, kind="device")]
    far = Advise("c", "preferred_location", 0), Advise("c", "accessed_by", 1)
    touch = [Kernel(f"k{n}", [Access(n, tx=1, bx=4096, write=n == "a")], (128, 1), stream=s) for n, s in (("a", 0), ("c", 1))]
    work = Kernel("w", [Access("d", tx=1, bx=256)], (64, 1), stream=2, ns=400_000.0)
    steps = [HostTouch("a"), HostTouch("b"), HostTouch("c"), *far, Start(), *touch, Prefetch("b", stream=3), work, *touch]
    return simulate_unified(ManagedProgram("streams", arrays, steps), machine({}), capacity_bytes=32 * MIB, log=True)


def of_a_trace() -> Result:
    """A recorded program whose kernels fault while it copies."""
    b = TraceBuilder("by hand")
    weights, activations = b.alloc(4 * MIB), b.alloc(4 * MIB)
    b.op("write", (), (activations,), duration=1000)
    b.op("read", (weights,), (), duration=3000)
    for _ in range(4):
        b.op("copy", (), (), read_bytes=8 * MIB, activity=COPY_IN, stream=1)
    trace = b.finish()
    work = build(trace, durations(trace, machine({}))[0])
    return simulate_unified(work, machine({}), capacity_bytes=4 * MIB, place="best_fit", log=True)


@pytest.fixture(scope="module", params=[of_streams, of_a_trace], ids=["streams", "trace"])
def good(request: Any) -> Result:
    return request.param()  # type: ignore[no-any-return]


def test_every_flow_ends_as_its_links_let_it(good: Result) -> None:
    report = pages.check(good)
    assert report.ok, str(report)
    assert report.facts["flows"] >= 4 and report.facts["kernels on multiprocessors"] >= 2


def changed(good: Result, column: str, row: int, by: float) -> str:
    assert good.pages is not None
    values = good.pages[column].copy()
    values[row] += by
    return " ".join(map(str, pages.check(replace(good, pages={**good.pages, column: values})).violations))


def test_what_is_wrong_is_seen(good: Result) -> None:
    log = good.pages
    assert log is not None
    largest = int(np.argmax(log["flow_size"]))
    assert "by what its links let through" in changed(good, "flow_end", largest, -2000)
    assert "by what its links let through" in changed(good, "flow_end", largest, 1000)
    assert "by what its links let through" in changed(good, "flow_begin", largest, 1000)
    assert "by what its links let through" in changed(good, "flow_size", largest, 1e5)
    assert "too many when flow" in changed(good, "flow_size", largest, 4.0 * log["flow_size"][largest])
    kernel = int(np.argmax(log["step_wants"] * log["step_own"]))
    assert "which it takes on these without faults" in changed(good, "step_own", kernel, 1_000_000_000)
    slow = {**good.spec["paging"]["traffic"], "rates": [rate / 2 for rate in good.spec["paging"]["traffic"]["rates"]]}
    narrow = {**good.spec, "paging": {**good.spec["paging"], "traffic": slow}}
    assert "too many when flow" in " ".join(map(str, pages.check(replace(good, spec=narrow)).violations))


def test_a_flow_of_no_process_is_told(good: Result) -> None:
    assert "a flow goes way" in changed(good, "flow_process", 0, 7)


def test_ways_and_passes_are_those_of_what_moves() -> None:
    good = of_a_trace()
    assert good.pages is not None
    said = good.spec["paging"]["traffic"]
    for way, direction in zip(said["pages"][:2], ("to", "from"), strict=True):
        flow = int(np.flatnonzero(good.pages["flow_way"] == way)[0])
        assert f"have flown {direction} GPU 1" in changed(good, "flow_way", flow, 1)
        assert "passes the memory 2 times; expected 1" in changed(good, "flow_passes", flow, 1)
        assert "passes the memory 0 times; expected 1" in changed(good, "flow_passes", flow, -1)
    far = of_streams()
    assert far.pages is not None
    remote = int(np.flatnonzero(np.isin(far.pages["flow_way"], far.spec["paging"]["traffic"]["remote"][0]))[0])
    assert "were accessed remotely" in changed(far, "flow_size", remote, 1e6)


def test_a_flow_that_cannot_be_is_told_and_not_followed() -> None:
    assert "a rate above 0" in changed(of_a_trace(), "flow_cap", 0, -1e6)


def test_multiprocessors_that_were_given_otherwise_are_seen() -> None:
    """Three kernels of three streams: two that touch pages, and one that works on half of the GPU."""
    good = of_streams()
    log = good.pages
    assert log is not None
    assert set(log["grant_operator"].tolist()) == {5, 6, 8, 9, 10}, "touches, hints and the prefetch are no kernels"
    starts, ends = np.flatnonzero(log["grant_sms"] > 0), np.flatnonzero(log["grant_sms"] < 0)
    assert "by the order of those that run" in changed(good, "grant_sms", int(starts[0]), -1)
    assert "as its multiprocessors" in changed(good, "grant_time", int(ends[-1]), -5000)
    last = int(ends[-1])
    gone = {name: np.delete(column, last) if name.startswith("grant_") else column for name, column in log.items()}
    fewer = {**good.spec["paging"]["traffic"], "granted": len(gone["grant_time"])}
    without = {**good.spec, "paging": {**good.spec["paging"], "traffic": fewer}}
    assert "has no multiprocessors" in " ".join(map(str, pages.check(replace(good, pages=gone, spec=without)).violations))


def test_copies_take_turns_in_the_copy_engines() -> None:
    good = of_a_trace()
    assert good.pages is not None and good.spec["paging"]["traffic"]["engines"] == [[1, 1]]
    into = np.flatnonzero(np.isin(good.pages["flow_way"], good.spec["paging"]["traffic"]["copies"][0]))
    late = int(into[np.argmax(good.pages["flow_begin"][into])])
    assert "at most 1, which take turns" in changed(good, "flow_begin", late, -100_000)


def test_without_the_flows_the_rest_is_checked() -> None:
    good = simulate_unified(
        ManagedProgram("one", [Array("a", MIB)], [HostTouch("a"), Start(), Kernel("k", [Access("a", tx=1, bx=256)], (64, 1))]),
        machine({}), settings=DriverSettings(), log=True,
    )  # fmt: skip
    assert good.pages is not None
    without = {name: column for name, column in good.pages.items() if not name.startswith(("flow_", "grant_"))}
    assert pages.check(replace(good, pages=without)).ok

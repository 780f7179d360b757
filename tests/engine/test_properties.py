"""Does every registered policy give results that the referee accepts, on random programs?

Programs are drawn: sizes, lives, streams, events between streams, synchronisation, recorded times; so are memory and
machine.  The referee shares no code with the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpusim import policy
from gpusim.engine.run.bounds import swap_in_bound
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.policies import registry
from gpusim.policies.units import TENSORS, units
from gpusim.programs.generate.synth import random_program
from gpusim.referee import check
from gpusim.results.result import Result
from gpusim.trace.build import TraceBuilder, make_trace
from gpusim.trace.trace import ACTIVITIES, COLUMNS, KERNEL, NAME_TABLES, RECORD, SYNC, WAIT, Trace
from gpusim.trace.workload import Workload, build

pytestmark = pytest.mark.conformance

# PCIe 4, a wide link, one memory for GPU and CPU (nowhere to swap to), and a small old card.
PROFILES = ("a100-pcie-40gb", "a100-sxm4-80gb", "gh200-96gb", "jetson-orin-nano-8gb", "rtx-2080-ti")
ENTRIES = {
    "place": registry.entries("place"),
    **{kind: [e for e in registry.entries(kind) if TENSORS in units(e)] for kind in ("evict", "prefetch")},
}  # fmt: skip
NAMES = {kind: [e.name for e in entries] for kind, entries in ENTRIES.items()}
EXAMPLES = settings(
    max_examples=20, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


@dataclass(frozen=True)
class Case:
    """A program on a machine with so much memory, and the policies."""

    work: Workload = field(repr=False)
    profile: str
    capacity: int
    policies: dict[str, Any]
    seed: int

    def run(self, log: bool = True) -> Result:
        return simulate(
            self.work.trace, catalogue.load(self.profile), capacity_bytes=self.capacity, work=self.work, log=log,
            seed=self.seed, **self.policies,
        )  # fmt: skip


@st.composite
def cases(draw: st.DrawFn, **fixed: Any) -> Case:
    """A case with these policies fixed and the others drawn."""
    seed = draw(st.integers(0, 2**20))
    rng = np.random.default_rng(seed)
    trace = random_program(
        seed,
        draw(st.integers(1, 120)),
        largest=2 ** draw(st.integers(10, 26)),
        mean_life=draw(st.sampled_from([2.0, 8.0, 30.0])),
        streams=draw(st.integers(1, 3)),
    )
    if draw(st.booleans()):
        trace = with_events(trace, rng, timed=draw(st.booleans()))
    if draw(st.booleans()):
        trace = with_transfers(trace, rng)
    work = build(trace, rng.integers(0, 50_000, trace.ops))
    share = draw(st.sampled_from([1.5, 1.0, 0.8, 0.6, 0.4, 0.2]))
    slack = draw(st.sampled_from([0, 2 << 20, 20 << 20]))  # what allocators of whole segments need
    drawn = {kind: draw(st.sampled_from(names)) for kind, names in NAMES.items() if kind not in fixed}
    return Case(work, draw(st.sampled_from(PROFILES)), int(work.live_peak * share) + slack, {**drawn, **fixed}, seed)


def with_events(trace: Trace, rng: np.random.Generator, timed: bool) -> Trace:
    """The trace with some synchronisation and waits between its streams, and perhaps with times."""
    count = trace.events // 10 + 1
    at = np.sort(rng.integers(0, trace.events + 1, count))
    kind = rng.choice([SYNC, RECORD, WAIT], count, p=[0.2, 0.4, 0.4])
    added = {
        "kind": kind, "arg": np.where(kind == SYNC, -1, rng.integers(0, 3, count)), "time": -1, "addr": -1, "bytes": 0,
        "stream": rng.integers(0, int(trace.stream.max(initial=0)) + 1, count),
    }  # fmt: skip
    columns = {name: getattr(trace, name) for name in COLUMNS}
    columns |= {name: np.insert(columns[name], at, values) for name, values in added.items()}
    if timed:
        columns["time"] = np.cumsum(rng.integers(0, 20_000, len(columns["kind"])))
    return make_trace(trace.name, columns, {t: getattr(trace, t) for t in NAME_TABLES}, trace.meta)


def with_transfers(trace: Trace, rng: np.random.Generator) -> Trace:
    """The trace with some operators that are no kernels."""
    columns = {name: getattr(trace, name) for name in COLUMNS}
    columns["activity"] = np.where(rng.random(trace.ops) < 0.3, rng.integers(0, len(ACTIVITIES), trace.ops), KERNEL)
    columns["read_bytes"] = rng.integers(0, 2**22, trace.ops) * rng.integers(0, 2, trace.ops)
    return make_trace(trace.name, columns, {t: getattr(trace, t) for t in NAME_TABLES}, trace.meta)


def right(case: Case) -> Result:
    """The result of the case, after everything that must hold for any policy."""
    result = case.run()
    report = check(result, case.work.trace)
    assert report.ok, "\n".join(map(str, report.violations[:5]))
    if result.finished:
        assert result.metrics["h2d_bytes"] >= swap_in_bound(case.work, case.capacity)
    else:
        assert result.failure is not None and result.failure["advice"]
    return result


@pytest.mark.slow
@pytest.mark.parametrize("evict", NAMES["evict"])
def test_every_evict_policy_is_right(evict: str) -> None:
    @EXAMPLES
    @given(cases(evict=evict))
    def holds(case: Case) -> None:
        right(case)

    holds()


@pytest.mark.slow
@pytest.mark.parametrize("place", NAMES["place"])
def test_every_place_policy_is_right(place: str) -> None:
    @EXAMPLES
    @given(cases(place=place))
    def holds(case: Case) -> None:
        right(case)

    holds()


@pytest.mark.slow
@pytest.mark.parametrize("prefetch", NAMES["prefetch"])
def test_every_prefetch_policy_is_right(prefetch: str) -> None:
    @EXAMPLES
    @given(cases(prefetch=prefetch))
    def holds(case: Case) -> None:
        right(case)

    holds()


@policy.evict
def waited_longest(size, last_use, now, staleness=1.0):  # type: ignore[no-untyped-def]
    """A user's compiled score."""
    return -size * (now - last_use) ** staleness


@policy.evict(columns=True)
def largest_columns(size, last_use):  # type: ignore[no-untyped-def]
    """A user's score over whole columns."""
    return -(size + 0 * last_use)


@pytest.mark.slow
@pytest.mark.parametrize("mine", [waited_longest, largest_columns], ids=["compiled", "columns"])
def test_policies_of_ones_own_are_right(mine: Any) -> None:
    @EXAMPLES
    @given(cases(evict=mine))
    def holds(case: Case) -> None:
        right(case)

    holds()


@pytest.mark.slow
@EXAMPLES
@given(cases())
def test_a_run_does_not_depend_on_whether_its_log_is_kept(case: Case) -> None:
    with_log, without = case.run(), case.run(log=False)
    assert without.log is None and with_log.log is not None
    assert with_log.metrics == without.metrics and with_log.outcome == without.outcome
    assert all(np.array_equal(with_log.timeline[name], without.timeline[name]) for name in with_log.timeline)


def test_a_stream_hands_on_what_it_waits_for() -> None:
    """An event recorded on a stream without a kernel of its own stands for what that stream waits for."""
    r = TraceBuilder("relay")
    tensors = [r.alloc(512) for _ in range(2)]
    r.op("first", [tensors[0]], [], stream=0)
    r.event(RECORD, 0, stream=0)
    r.event(WAIT, 0, stream=2)
    r.event(RECORD, 1, stream=2)
    r.event(WAIT, 1, stream=1)
    r.op("second", [tensors[1]], [], stream=1)
    work = build(r.finish(), np.array([1_000_000, 1_000_000]))
    policies = {"place": "best_fit", "evict": "none", "prefetch": "none"}
    result = right(Case(work, "a100-pcie-40gb", 2**30, policies, 0))
    assert result.metrics["makespan_ns"] > 2_000_000

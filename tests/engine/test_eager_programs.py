"""Does the host take, for each operator, the time of how the program was recorded: eager, a graph, or neither?

Kernels and the host's times are round numbers: the host takes 6000 ns for an eager operator and 500 ns for a launch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hand_worked import BLOCK, Steps, machine, spans, stalls

from gpusim.base.yaml.find import find
from gpusim.engine.pages.tensors import launched
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue, variant
from gpusim.machine.constants import host_time
from gpusim.machine.profile import changed
from gpusim.machine.sampling import intervals
from gpusim.referee import check
from gpusim.results import log
from gpusim.results.result import Result
from gpusim.trace.submission import EAGER, GRAPH, submission
from gpusim.trace.trace import Trace
from gpusim.trace.workload import build

pytestmark = pytest.mark.hand_worked

EAGERLY, IN_A_GRAPH, ONE_BY_ONE = {"format": "record"}, {"format": "kineto", "submission": "graph"}, {"format": "g10"}
TIMES = {"launch.submit": 500.0, "launch.eager": 6000.0}


def program(meta: dict[str, str], ns: int, count: int = 5) -> Trace:
    """So many kernels of this time on one stream."""
    steps = Steps()
    for _ in range(count):
        steps.kernel(ns)
    return replace(steps.trace(), meta=meta)


def ran(trace: Trace, **changes: float) -> Result:
    result = simulate(trace, machine({**TIMES, **changes}), place="first_fit", log=True)
    assert check(result, trace).violations == ()
    return result


def test_short_kernels_of_an_eager_program_come_as_the_host_submits_them() -> None:
    """Submitted at 6000, 12000 ... 30000: the stream waits 6000 ns for the first kernel, 5000 for each of four others."""
    result = ran(program(EAGERLY, 1000))
    assert spans(result)["kernel"] == [(6000 * i, 6000 * i + 1000) for i in range(1, 6)]
    assert stalls(result) == {"launch": 6000 + 4 * 5000}


def test_long_kernels_of_an_eager_program_wait_only_for_the_first_submission() -> None:
    result = ran(program(EAGERLY, 10_000))
    assert spans(result)["kernel"] == [(6000 + 10_000 * i, 16_000 + 10_000 * i) for i in range(5)]
    assert result.metrics["makespan_ns"] - 6000 == ran(program(ONE_BY_ONE, 10_000)).metrics["makespan_ns"] - 500


def test_other_programs_take_a_launch_and_a_graph_takes_nothing() -> None:
    """Launches 500 ns apart keep ahead of kernels of 1000 ns; those of a graph start at 0, whatever a launch takes."""
    assert ran(program(ONE_BY_ONE, 1000)).metrics["makespan_ns"] == 5500
    assert ran(program(IN_A_GRAPH, 1000)).metrics["makespan_ns"] == 5000


def test_an_eager_operator_takes_no_less_than_its_launch() -> None:
    """As a variant whose `launch.eager` is 0: 500, 1000 ... 2500, and the last of five kernels of 100 ns ends at 2600."""
    assert ran(program(EAGERLY, 100), **{"launch.eager": 0.0}).metrics["makespan_ns"] == 2600


def test_a_swap_takes_a_launch() -> None:
    """Kernel a: paid at 6000.  b's alloc pushes a out, its copy is paid at 6500; kernel b: 6000 ns later."""
    steps = Steps()
    steps.kernel(10, writes=(steps.alloc(),))
    steps.kernel(10, writes=(steps.alloc(),))
    trace = replace(steps.trace(), meta=EAGERLY)
    result = simulate(trace, machine(TIMES), place="first_fit", log=True, capacity_bytes=BLOCK)
    assert check(result, trace).violations == () and result.log is not None
    issued = result.log[(result.log["kind"] == log.ISSUE) | (result.log["kind"] == log.COPY)]
    assert [(int(r["t"]), log.KINDS[r["kind"]]) for r in issued] == [(6000, "issue"), (6000, "copy"), (12_500, "issue")]


def test_unified_memory_takes_the_same_time() -> None:
    profile = machine({**TIMES, "launch.gap": 100.0})
    for meta, least in ((EAGERLY, 6000), (IN_A_GRAPH, 1100), (ONE_BY_ONE, 1100)):
        trace = program(meta, 1000)
        assert launched(build(trace, trace.duration), profile).tolist() == [least] * 5


@pytest.mark.parametrize(
    ("meta", "how"),
    [({"format": f}, EAGER) for f in ("record", "recorder", "kineto", "execution-trace")]
    + [({"format": f}, "") for f in ("g10", "synthetic", "xla", "minimalloc", "nsys", "pytorch", "dtr", "csv")]
    + [({}, ""), (IN_A_GRAPH, GRAPH), ({"format": "csv", "submission": "eager"}, EAGER)],
)
def test_a_traces_meta_says_how_it_was_submitted(meta: dict[str, Any], how: str) -> None:
    assert submission(program(meta, 1)) == how


def test_the_number_is_every_profiles_and_uncertain() -> None:
    name, trace = "a100-pcie-80gb", program(EAGERLY, 1)
    profile = catalogue.load(name)
    assert host_time(trace, profile) == (6000, 5000, 10_000)
    assert {i.path: (i.low, i.high) for i in intervals(profile, 0.0)}["launch.eager"] == (5000, 10_000)
    graph = variant.load(find("profile", name), f"{name}(launch.eager=0 us, launch.submit=0 us)")
    assert host_time(trace, graph) == (0, 0, 0)
    assert "launch.eager" not in {i.path for i in intervals(graph, 0.15)}
    slow = changed(profile, "launch.eager", 50_000.0)
    assert host_time(trace, slow).ns == 50_000 and host_time(program(ONE_BY_ONE, 1), slow).ns == profile.launch.submit.value

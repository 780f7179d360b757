"""Does a replay evict and run again exactly what DTR's rules say: by hand, against the plain reference, on DTR's own logs?"""

from __future__ import annotations

import csv
import gzip
import os
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from dtr_reference import Replay, baseline, schedule
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from plain_python import interpreted
from test_dtr import START, call, constant, exported, line, log, made_up

from gpusim.base.errors import PolicyError, TraceError
from gpusim.machine.catalogue import load
from gpusim.machine.kernels.durations import durations
from gpusim.policies.plan.parts.recompute import from_log
from gpusim.policies.plan.parts.recompute import victim as choice
from gpusim.policies.plan.parts.recompute.execution import RecomputeOutcome, peak, replay
from gpusim.policies.plan.parts.recompute.heuristics import HEURISTICS
from gpusim.trace.files import load_trace

HERE = Path(__file__).parents[1]
RULES = [h for h in HEURISTICS if h != "rand"]
LOGS = os.environ.get("GPUSIM_DTR_LOGS", "")  # the folder of DTR's own logs, which are not shipped
needs_logs = pytest.mark.skipif(not LOGS, reason="GPUSIM_DTR_LOGS names no folder")


def facts(outcome: RecomputeOutcome) -> tuple[Any, ...]:
    """In the order of the reference's, and of dtr_results.csv."""
    o = outcome
    return (
        o.status, o.model_cost + o.remat_cost, o.model_cost, o.remat_cost, o.evictions, o.eager_evictions, o.reruns,
        o.evicted_bytes, o.peak, o.final, o.first_runs, o.digest,
    )  # fmt: skip


def op(name: str, args: list[str], time: int, size: int) -> list[dict[str, Any]]:
    """A call of one result, which has its name."""
    return call(name, args, time, **{name: (size, -1)})


def release(*names: str) -> list[dict[str, Any]]:
    return [line("RELEASE", NAME=name) for name in names]


def run(data: bytes, heuristic: str, budget: int, **more: Any) -> RecomputeOutcome:
    return replay(from_log.read(data, "x"), heuristic, budget, **more)


# --- by hand.  w is a constant of one byte, tensor 0; the others are numbered as they are made; the clock starts at 1 -----


def test_each_heuristic_has_its_own_victim() -> None:
    """When v comes, the clock is 380 and 34 of 34 bytes are held.  The pool, with cost, bytes and age:

        x 100, 4, 279    q 20, 4, 259    z 4, 8, 205 (made from p, cost 50, which is gone)    y 200, 16, 5    u 5, 1, 0
    """
    program = log(
        START, constant("w", 1), op("x", ["w"], 100, 4), op("q", ["w"], 20, 4), op("p", ["w"], 50, 1), op("z", ["p"], 4, 8),
        release("p"), op("y", ["w"], 200, 16), op("u", ["w"], 5, 1), op("v", ["w"], 1, 2),
    )  # fmt: skip
    x, q, z, y, u = 1, 2, 4, 5, 6
    first = {h: run(program, h, 34, limit=1).victims[0] for h in RULES}
    assert first == {
        "lru": x,        # the oldest access
        "size": y,       # the largest
        "dtr_local": z,  # 4/(8 205) < 20/(4 259) < 100/(4 279) < 200/(16 5), and u is of age 0
        "dtr": q,        # z is (4 + 50)/(8 205) now
        "dtr_eq": q,
        "msps": u,       # 20/4 = 5/1 are equal: the last of the pool; z is (4 + 50)/8
    }
    assert {run(program, "rand", 34, limit=1, seed=s).victims[0] for s in range(40)} == {x, q, z, y, u}


def test_a_class_is_not_split_when_its_middle_comes_back() -> None:
    """m, and c1 and c2 made from it, go together; g brings m back.  e1, made from c1, has c1 alone beyond it in truth, but its
    class still has both: 2 + 10 + 1000.  At v the clock is 1078, e1 of age 58, e2 (cost 50) of age 8, all of 8 bytes."""
    program = log(
        START, constant("w", 1), op("m", ["w"], 7, 8), op("c1", ["m"], 10, 8), op("c2", ["m"], 1000, 8), op("e1", ["c1"], 2, 8),
        op("e2", ["w"], 50, 8), release("c1", "c2", "m"),
        # m is named no more, but a name that was given up is known still.
        op("g", ["m"], 1, 8), op("v", ["w"], 1, 10),
    )  # fmt: skip
    e1, e2 = 4, 5
    assert run(program, "dtr", 41).victims[0] == e1     # 12 / (8 58) < 50 / (8 8)
    assert run(program, "dtr_eq", 41).victims[0] == e2  # 1012 / (8 58) > 50 / (8 8)


def test_a_view_is_made_again_after_what_it_views() -> None:
    """big pushes a out, so its view t is undefined as well: u needs both again, 10 + 3 ns, and big leaves for a."""
    program = log(
        START, constant("w", 1), op("a", ["w"], 10, 8), call("t", ["a"], 3, t=(0, 0)), op("big", ["w"], 5, 8),
        op("u", ["t"], 2, 4), release("big"),
    )  # fmt: skip
    outcome = run(program, "dtr", 16)
    a, big = 1, 3
    assert outcome.victims.tolist() == [a, big] and outcome.status == "ok"
    assert (outcome.reruns, outcome.remat_cost, outcome.model_cost) == (2, 13, 20)
    assert (outcome.peak, outcome.final, outcome.eager_evictions) == (13, 13, 0)  # w, a, u at the end


def test_a_sibling_that_is_there_is_double_for_a_moment() -> None:
    """x and y come from one operator, x (the larger) leaves for b.  Having x again makes y as well, which is dropped."""
    program = log(
        START, constant("w", 1), call("pair", ["w"], 10, x=(9, -1), y=(8, -1)), op("b", ["w"], 5, 10), release("b"),
        op("c", ["x", "y"], 1, 1),
    )  # fmt: skip
    outcome = run(program, "size", 26)
    assert outcome.victims.tolist() == [1] and (outcome.status, outcome.reruns) == ("ok", 1)
    assert (outcome.peak, outcome.final) == (26, 19)  # 1 + 8 of y + 17 of both; at the end w, x, y, c
    assert run(program, "size", 25).status == "oom"  # y is locked for c


def test_among_equals_the_last_among_zeros_the_first() -> None:
    def program(cost: int) -> bytes:
        alike = [op(name, ["w"], cost, 4) for name in "abc"]
        return log(START, constant("w", 1), *alike, op("later", ["w"], 9, 1), op("v", ["w"], 1, 4))

    assert run(program(7), "size", 15).victims[0] == 3 and run(program(0), "size", 15).victims[0] == 3
    assert run(program(0), "dtr_local", 15).victims[0] == 1 and run(program(0), "msps", 15).victims[0] == 1


def test_a_run_that_cannot_end_well_has_a_name() -> None:
    program = log(START, constant("w", 1), op("a", ["w"], 10, 8), op("b", ["w"], 10, 8), op("c", ["a"], 1, 1), release("b"))
    assert run(program, "lru", 18).status == "ok"
    assert (run(program, "lru", 8).status, run(program, "lru", 8).first_runs) == ("oom", 1)  # w; a never fits
    again = run(program, "lru", 10)  # a leaves for b, b for a: 10 ns once more
    assert (again.status, again.remat_cost, again.overhead) == ("ok", 10, 32 / 21)
    assert run(program, "lru", 10, limit=10).status == "ok" and run(program, "lru", 10, limit=9).status == "thrash"
    over = run(program, "lru", 8, lenient=True)
    assert (over.status, over.overdrafts, over.first_runs, over.peak) == ("ok", 4, 4, 10)


# --- against the plain reference --------------------------------------------------------------------------------------


def same(data: bytes, heuristic: str, share: float, limit: float) -> RecomputeOutcome:
    """The outcome, after comparing it with the reference's."""
    known = baseline(data)
    budget, most = int(known.peak_v1 * share), int(known.cost * limit)
    outcome = run(data, heuristic, budget, limit=most)
    assert facts(outcome) == Replay(schedule(data), heuristic, budget, most).facts()
    return outcome


@pytest.mark.agreement
@pytest.mark.slow
@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(1, 90), st.sampled_from(RULES), st.floats(0.3, 1.1))
def test_any_log_is_replayed_as_the_reference_replays_it(seed: int, length: int, heuristic: str, share: float) -> None:
    same(made_up(Random(seed), length), heuristic, share, 3.0)


@cache
def recorded(name: str) -> bytes:
    """A shipped trace as a log, which is how DTR's simulator would be shown it."""
    trace = load_trace(HERE.parent / "traces" / f"{name}.npz")
    return exported(trace, duration=durations(trace, load("a100-sxm4-80gb"))[0])


@pytest.mark.agreement
@pytest.mark.slow
@pytest.mark.parametrize("share", [0.8, 0.5])
@pytest.mark.parametrize("heuristic", ["dtr_eq", "dtr_local", "lru", "size"])
def test_a_recorded_step_is_replayed_as_the_reference_replays_it(heuristic: str, share: float) -> None:
    assert same(recorded("unet3d-train"), heuristic, share, 1.0).evictions > 0


@pytest.mark.slow
def test_lru_and_size_explode_where_dtr_goes_on() -> None:
    """The paper's figure 2: what ignores the cost of chains runs into the limit of work, or out of memory."""
    program = from_log.read(recorded("unet3d-train"), "x")
    half, cost = peak(program) // 2, int(program.cost.sum())
    outcomes = {h: replay(program, h, half, limit=cost) for h in ("dtr", "dtr_eq", "dtr_local", "lru", "size")}
    assert {h: o.status for h, o in outcomes.items()} == {
        "dtr": "ok", "dtr_eq": "ok", "dtr_local": "thrash", "lru": "thrash", "size": "thrash",
    }  # fmt: skip
    assert outcomes["dtr_eq"].overhead < 1.35 < outcomes["dtr"].overhead < 1.6


@pytest.mark.agreement
@pytest.mark.slow
def test_compiled_and_interpreted_replays_agree() -> None:
    assert interpreted("test_remat", "t.fingerprints()") == fingerprints()


def fingerprints() -> list[Any]:
    logs = [made_up(Random(seed), 60) for seed in range(4)]
    return [list(facts(run(d, h, int(baseline(d).peak_v1 * 0.7), limit=10**4))) for d in logs for h in HEURISTICS]


@njit
def quotient(n: float, a: float, b: float) -> float:
    return choice.quotient(n, a, b)  # type: ignore[no-any-return]


WHOLE = st.integers(1, 2**45)


@pytest.mark.slow
@settings(max_examples=500)
@given(st.integers(-(2**52), 2**52), WHOLE, WHOLE)
def test_a_quotient_is_rounded_once(n: int, a: int, b: int) -> None:
    """As Python divides whole numbers; plain division would round the product as well."""
    assert quotient(float(n), float(a), float(b)) == n / (a * b)


# --- DTR's own logs and results ---------------------------------------------------------------------------------------


@cache
def published(network: str) -> bytes:
    (path,) = Path(LOGS).glob(f"{network}*.log.gz")
    return gzip.open(path).read()


def rows() -> list[dict[str, str]]:
    with (HERE / "data" / "dtr_results.csv").open() as file:
        return list(csv.DictReader(file))


COLUMNS = (
    "total_cost_ns", "model_cost_ns", "remat_cost_ns", "evictions_heuristic", "evictions_eager", "remat_op_runs",
    "bytes_evicted_by_heuristic", "peak_bytes", "final_bytes", "first_time_op_runs",
)  # fmt: skip


@pytest.mark.oracle
@needs_logs
@pytest.mark.parametrize("row", rows(), ids=lambda r: f"{r['network']}-{r['heuristic']}-{r['ratio']}")
def test_the_results_of_its_simulator_are_met(row: dict[str, str]) -> None:
    """Every column, the sequence of victims included.  The rows were made by running simrd @ eff53cc."""
    program = from_log.read(published(row["network"]), row["network"])
    budget, cost = int(peak(program) * float(row["ratio"])), int(program.cost.sum())
    outcome = replay(program, row["heuristic"], budget, limit=int(cost * (float(row["overhead_limit"]) - 1)))
    wanted = (row["status"], *(int(row[c]) for c in COLUMNS), row["eviction_sequence_sha256_16"])
    assert budget == int(row["budget_bytes"]) and facts(outcome) == wanted
    if outcome.status == "ok":
        assert f"{outcome.overhead:.9f}" == row["overhead"]


# Peak, cost, operators, storages: what a run without budget comes to (bytes, ns).
BASELINES = {
    "tv_densenet121": (11020749360, 355299140, 2925, 3041), "inceptionv4": (11245348984, 636429561, 2307, 3118),
    "resnet32": (10061179152, 291905487, 509, 680), "unet": (8415764640, 435278292, 399, 466),
    "treelstm": (170173608, 120490892, 6959, 4872), "lstm": (5595127736, 769458833, 8063, 5376),
    "unroll_gan": (252677418, 125451477, 6820, 5302),
}  # fmt: skip


@pytest.mark.oracle
@needs_logs
@pytest.mark.parametrize("network", BASELINES)
def test_its_baselines_are_met(network: str) -> None:
    program = from_log.read(published(network), network)
    assert (peak(program), int(program.cost.sum()), len(program.cost), len(program.size)) == BASELINES[network]


@pytest.mark.oracle
@needs_logs
@pytest.mark.parametrize(("network", "half", "third"), [
    ("tv_densenet121", 1.18, 1.43), ("resnet32", 1.11, 1.18), ("transformer", 1.06, 1.12), ("inceptionv4", 1.09, 1.24),
])  # fmt: skip
def test_its_published_overheads_are_met(network: str, half: float, third: float) -> None:
    """Of h_DTR^eq with half and with 30 % of the memory, to the two digits that were published."""
    program = from_log.read(published(network), network)
    for ratio, wanted in ((0.5, half), (0.3, third)):
        outcome = replay(program, "dtr_eq", int(peak(program) * ratio), limit=int(program.cost.sum()))
        assert (outcome.status, round(outcome.overhead, 2)) == ("ok", wanted)


# --- bad input --------------------------------------------------------------------------------------------------------


def test_bad_logs_are_refused_with_their_line() -> None:
    def refused(*lines: Any) -> str:
        with pytest.raises(TraceError) as raised:
            from_log.read(log(START, constant("w", 1), *lines), "x.log")
        return str(raised.value)

    assert refused(op("a", ["v"], 1, 1)).startswith("x.log:4: this line uses 'v', which never appeared")
    assert refused(call("a", ["w"], 1, a=(0, 1))).startswith("x.log:6: ALIAS is 1, but the operator has 1 arguments")
    assert refused(call("a", ["w"], 1, a=(0, 0))[:-1]).startswith("x.log:5: here should stand the ALIAS of 'a'")
    assert refused(line("MEMORY", NAME="q", MEMORY="1")).startswith("x.log:4: nothing asks for the MEMORY of 'q'")
    assert refused(line("MUTATE", NAME="m", ARGS=["w"], MUTATE=[1], TIME="1")).startswith("x.log:4: MUTATE is not a list of")


def test_an_unknown_heuristic_is_refused() -> None:
    with pytest.raises(PolicyError, match="there is no heuristic 'dtr_equal'"):
        run(log(START, constant("w", 1)), "dtr_equal", 1)

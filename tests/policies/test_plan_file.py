"""Is a plan in a file carried out to the byte, and is one that cannot be told at its line?"""

import pytest

from gpusim import referee
from gpusim.base.errors import GpusimError
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.policies.plan.file import written
from gpusim.trace.build import make_trace
from gpusim.trace.files import load_trace
from gpusim.trace.trace import ALLOC, FREE, OP
from gpusim.trace.workload import build

KIB = 2**10
HEAD = "operator,action,tensor,tier\n"


@pytest.fixture(scope="module")
def program():
    """A (4 KiB) is used by operators 0 and 4, B (6 KiB) by 1 and 3, C (1 KiB) by 2 and freed before 3."""
    return make_trace(
        "program",
        {
            "size": [4 * KIB, 6 * KIB, KIB], "kind": [ALLOC, ALLOC, OP, OP, ALLOC, OP, FREE, OP, OP],
            "arg": [0, 1, 0, 1, 2, 2, 2, 3, 4], "op": [0] * 5, "duration": [100_000] * 5,
            "read_start": [0, 1, 2, 3, 4, 5], "read_id": [0, 1, 2, 1, 0], "write_start": [0] * 6,
        },
        {"op_names": ("f",)},
    )  # fmt: skip


@pytest.fixture
def run(program, tmp_path):
    def go(text, **more):
        path = tmp_path / "plan.csv"
        path.write_text(HEAD + text)
        return simulate(
            program, catalogue.load("t4"), place="best_fit", log=True,
            **{"plan": f"file(path={path})", "capacity_bytes": 11 * KIB, **more},
        )  # fmt: skip

    return go


def test_does_what_the_file_says_happen_and_nothing_else(program, run):
    result = run("1,evict,0,host\n# A comes back early\n3,prefetch,0,\n")
    assert result.finished
    assert result.spec["oracles"] == ["plan"]
    numbers = result.metrics
    assert (numbers["plan_evictions"], numbers["plan_prefetches"], numbers["plan_skipped"]) == (1, 1, 0)
    assert (numbers["d2h_bytes"], numbers["h2d_bytes"], numbers["stall_swap_in_ns"]) == (4 * KIB, 4 * KIB, 0)
    assert referee.check(result, program).ok


def test_are_rows_carried_out_by_operator_whatever_their_order(run):
    assert run("3,prefetch,0,1\n1,evict,0,1\n").metrics == run("1,evict,0,1\n3,prefetch,0,1\n").metrics


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("1,evict,0,\n2,evict,0,\n", 3, "tensor 0 is not there: it left before operator 1"),
        ("1,evict,0,\n4,evict,0,\n", 3, "tensor 0 is not there"),
        ("1,evict,9,\n", 2, "there is no tensor 9: program has 3"),
        ("1,evict,-1,\n", 2, "there is no tensor -1"),
        ("5,evict,0,\n", 2, "there is no operator 5: program has 5"),
        ("1,evict,0,nvme\n", 2, r"there is no tier 'nvme' in this run \(its tiers: host\)"),
        ("1,drop,0,\n", 2, r"unknown entry 'drop' \(known: evict, prefetch, remote\)"),
        ("1,evict,A,\n", 2, "'A' in column 'tensor' is not a whole number"),
        ("3,remote,0,\n", 2, "'remote' holds for the whole program"),
        ("1,evict,0\n", 2, "the line has 3 values, but there are 4 columns"),
        ("1,prefetch,2,\n", 2, "operator 1 comes to tensor 2 before it is allocated"),
        ("2,prefetch,0,\n4,prefetch,2,\n", 3, "operator 4 comes to tensor 2 after it was freed"),
    ],
)
def test_is_a_row_that_cannot_be_refused_with_its_line(run, text, line, message):
    with pytest.raises(GpusimError, match=message) as caught:
        run(text)
    assert caught.value.where.endswith(f"plan.csv:{line}")


def test_are_prefetches_over_capacity_refused(run):
    """Operator 2 uses C (1 KiB); A and B together are 10 KiB more than fit beside it in 10.5 KiB."""
    text = "2,evict,0,\n2,evict,1,\n2,prefetch,0,\n2,prefetch,1,\n"
    assert run(text, capacity_bytes=11 * KIB).finished
    with pytest.raises(GpusimError, match=r"brought in for later are 11 KiB, more than the 10\.5 KiB of memory") as caught:
        run(text, capacity_bytes=10 * KIB + 512)
    assert caught.value.where.endswith("plan.csv:5")


def test_is_a_used_or_evicted_tensor_no_longer_waited_for(run):
    """B is brought in and used by operator 3, then A fits; or B leaves again."""
    text = "2,evict,0,\n2,evict,1,\n3,prefetch,1,\n4,evict,1,\n4,prefetch,0,\n"
    assert run(text, capacity_bytes=10 * KIB).finished
    assert run("2,evict,0,\n2,evict,1,\n2,prefetch,1,\n2,evict,1,\n2,prefetch,0,\n", capacity_bytes=10 * KIB).finished


def test_is_a_file_that_is_not_there_or_not_named_told(run, tmp_path):
    with pytest.raises(GpusimError, match="needs the name of its file"):
        run("", plan="file")
    with pytest.raises(GpusimError, match="the plan cannot be read: No such file"):
        run("", plan=f"file(path={tmp_path / 'other.csv'})")
    (tmp_path / "other.csv").write_text("\n")
    with pytest.raises(GpusimError, match="the plan is empty") as caught:
        run("", plan=f"file(path={tmp_path / 'other.csv'})")
    assert caught.value.where.endswith("other.csv")
    (tmp_path / "other.csv").write_text("operator,action,tensor,when\n")
    with pytest.raises(GpusimError, match="there is no column 'when'"):
        run("", plan=f"file(path={tmp_path / 'other.csv'})")


def test_does_a_file_say_what_a_policy_planned(run, program, tmp_path):
    text = HEAD + "0,remote,2,\n1,evict,0,host\n3,prefetch,0,\n"
    result = run(text.removeprefix(HEAD))
    assert written(result.schedule, ["host"]) == text
    trace, machine = load_trace("traces/gpt-medium-train.npz"), catalogue.load("t4")
    capacity = int(0.7 * build(trace, trace.duration).live_peak)
    planned = simulate(trace, machine, plan="vdnn", capacity_bytes=capacity)
    assert len(planned.schedule.actions) > 10
    (tmp_path / "again.csv").write_text(written(planned.schedule, ["host"]))
    again = simulate(trace, machine, plan=f"file(path={tmp_path / 'again.csv'})", capacity_bytes=capacity)
    assert again.metrics == planned.metrics

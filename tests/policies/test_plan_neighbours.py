"""Every plan decides otherwise than every other one, on programs small enough to work its decisions out by hand."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import pytest
from hand_worked import BLOCK
from test_plan_policies import DECISIONS, Program, contended, plan, run, small_network
from test_remat_plan import AHEAD, UNIT

from gpusim.base.errors import GpusimError, PolicyError
from gpusim.policies import registry
from gpusim.policies.planning import Schedule, View
from gpusim.trace import workload
from gpusim.trace.trace import Trace

pytestmark = pytest.mark.hand_worked


def network() -> Program:
    """The small network, and one operator of a second step, which makes a block: operator 15."""
    p = small_network()
    p.builder.begin_phase("step1.fwd")
    p.op("fill", "", n=1)
    return p


def again(before: Trace, after: Trace) -> str:
    """What runs once more: "mm<gelu_backward" when it does so right before that operator."""
    names = [before.op_names[i] for i in before.op]
    found, next_ = [], 0
    for name in (after.op_names[i] for i in after.op):
        if next_ < len(names) and name == names[next_]:
            next_ += 1
        else:
            found.append(f"{name}<{names[next_]}" if next_ < len(names) else name)
    assert next_ == len(names)
    return " ".join(found)


def decision(spec: str, p: Program, view: View) -> str:
    """What runs again, what leaves and comes back, what is used in place."""
    policy = registry.get("plan", spec)
    said = []
    if policy.rewrite is not None:
        trace = policy.program(view)
        if trace is not view.work.trace:
            said.append(again(view.work.trace, trace))
            view = View(workload.build(trace, trace.duration), view.capacity, view.tiers)
    if policy.plan is not None:
        made: Schedule = policy.schedule(view)
        names = {number: name for name, number in p.ids.items()}
        said += [p.said(made), *(f"{names[int(t)]} in place" for t in made.remote)]
    return " ".join(filter(None, said))


# Room (blocks) and decision.  Bytes alive at each operator, in blocks: 9 11 12 15 16 17 18 20 17 19 18 15 13 13 13 14.
BY_HAND = {
    "none": (17, ""),
    # Too much is at 6, 7, 9 and 10.  Blocks times operators, less half the copies: v 4 x 2 goes first and empties 6 and 7.  Of
    # the next, v and gv from 9 to 13, 4 x 1, the links carry one.  9 and 10 are left: u 1 x 2, longer away than w and gw; 9
    # is: x.  Early is as early as 16.83 are enough: v, from 12 at 11.
    "g10": (17, "-u@1 -x@1 -v@3 +v@8 -v@10 +x@10 +u@11 +v@11"),
    # 7 last through the program, operator 9 works on 13: nothing is left for the maps, all of them leave.  Beside 13 there is
    # no room for what comes back early.
    "flashneuron": (17, "-x@1 -a@2 -b@3 -c@4 -d@5"),
    # Visits begin at 0, 2, 4, 5, 7, 8, 10, 12.  v and w wait outside; v would be back at once for 2, and w is, in the visit
    # before that at 4.  Away again: u until 10, the visit before 12; v at 3 and 10, w at 5 and 8, back a visit ahead where
    # that is three operators after their last use, w for 7 on demand.
    "flexgen": (17, "-v@0 -w@0 -u@1 +w@2 -v@3 -w@5 +v@7 -w@8 -v@10 +u@10 +w@10 +v@12"),
    # All that the first step leaves behind, when the second begins.
    "periodic": (17, "-x@15 -u@15 -v@15 -w@15 -gw@15 -gv@15 -gu@15"),
    "zero_copy(what=inputs)": (17, "x in place"),
    # Layers 0 and 1 hand on b and d; inside them a and c are made, and needed by the backward of gelu and relu.
    "checkpointing": (17, "mm<gelu_backward convolution<relu_backward"),
    # Both layers hand on d alone: a, b and c are made again where backward comes to the first of them.
    "checkpointing(every=2)": (17, "convolution<gelu_backward relu<gelu_backward mm<gelu_backward"),
    # One too many at 7.  10 us for a, b, c or d each; a and b are the largest of those not in use, a is older.
    "dtr(fill=1)": (19, "convolution<relu_backward"),
    # Two too many at 7, one at 9: a does for both, with one operator.
    "checkmate": (18, "convolution<relu_backward"),
    # What relu and gelu made; at 18 and 19 blocks no checkpoint need leave then.
    "superneurons": (19, "gelu<convolution_backward relu<mm_backward"),
}  # fmt: skip


@pytest.mark.parametrize("spec", BY_HAND)
def test_decisions_by_hand(spec: str) -> None:
    p = network()
    blocks, expected = BY_HAND[spec]
    view = p.view(blocks)
    assert (view.live // BLOCK).tolist() == [9, 11, 12, 15, 16, 17, 18, 20, 17, 19, 18, 15, 13, 13, 13, 14]
    assert decision(spec, p, view) == expected


def test_g10_leaves_what_is_out_of_the_way_in_time() -> None:
    """19 blocks: one too many at operator 7 alone.  v is the most there, 4; sentinel takes what is used least, x, 1."""
    p = network()
    assert decision("g10", p, p.view(19)) == "-v@3 +v@8"
    assert decision("sentinel", p, p.view(19)) == "-x@1 +x@10"


def test_exact_and_greedy_part_where_what_comes_counts() -> None:
    """dtr drops x, the oldest, and then y to have x again; checkmate drops y, and x after its last use."""
    assert [decision(spec, Program(), View(AHEAD, 3 * UNIT, ())) for spec in ("dtr(fill=1)", "checkmate")] == ["x<u y<v", "y<v"]


LISTED = [e.name for e in registry.entries("plan") if e.builtin and e.name != "file"]  # that one is the user's own
SPECS = {"dtr": "dtr(fill=1)", "zero_copy": "zero_copy(what=inputs)", "search": "search(moves=50)"}


@cache
def everywhere(name: str) -> tuple[str, ...]:
    """Its decisions on all programs, with memory for so many blocks; "refused" is one."""
    cases = [(network(), 17), (network(), 19), (contended(), 11)]
    seen = [(p, p.view(blocks)) for p, blocks in cases] + [(Program(), View(AHEAD, 3 * UNIT, ()))]
    made = []
    for p, view in seen:
        try:
            made.append(decision(SPECS.get(name, name), p, view))
        except GpusimError:
            made.append("refused")
    return tuple(made)


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), list(combinations(LISTED, 2)))
def test_no_two_plans_decide_the_same(one: str, other: str) -> None:
    """Where both have an answer: that one refuses is no other decision."""
    pairs = zip(everywhere(one), everywhere(other), strict=True)
    assert any(a != b for a, b in pairs if "refused" not in (a, b))


def test_every_listed_plan_is_worked_out_by_hand() -> None:
    """swapadvisor and search are in test_plan_policies.py, where they differ from capuchin and from each planner."""
    worked = {spec.partition("(")[0] for spec in (*BY_HAND, *DECISIONS)}
    assert set(LISTED) - worked == {"swapadvisor", "search"}


# --- parameters -----------------------------------------------------------------------------------------------------------


def test_scattered_accesses_reach_a_part_of_the_link() -> None:
    """A block at 10 bytes/ns, as wide as the link: 2024 ns, within the kernel's 10 us.  8 of 128 bytes: 1000 + 16 x 1024."""

    def program() -> Program:
        p = Program()
        p.new("input", x=1)
        p.op("kernel", "x")
        return p

    assert plan("zero_copy(what=inputs, access=8)", program().view(2)).access == 8
    for spec, took in (("zero_copy(what=inputs)", 10_000), ("zero_copy(what=inputs, access=8)", 17_384)):
        assert run(program(), spec, 2).metrics["makespan_ns"] == took


@pytest.mark.parametrize(("access", "said"), [(0, "is 0"), (129, "is above 128"), (-1, "is negative")])
def test_accesses_that_are_none(access: int, said: str) -> None:
    with pytest.raises(PolicyError, match=f"'access' of policy 'zero_copy' {said}"):
        plan(f"zero_copy(access={access})", small_network().view(17))


def test_dtr_without_recomputation_leaves_the_program_alone() -> None:
    view = network().view(17)
    assert registry.get("plan", "dtr(limit=0)").program(view) is view.work.trace


def test_dtr_beyond_its_limit_drops_no_more_and_swaps() -> None:
    """15.3 of 17 blocks to fill, 1.6 us to spend.  a, the oldest of the large, is dropped for 4, and d for 6 (b would take a
    with it: 20 us by 2 blocks and 40 us, d 10 by 3 and 20).  gelu, run again for 7, is above the limit: what is dropped comes
    back, and what does not fit leaves for the host."""
    p = network()
    view = p.view(17)
    program = registry.get("plan", "dtr(limit=0.01)").program(view)
    assert again(view.work.trace, program) == "gelu<convolution_backward convolution<relu_backward"
    assert "after that nothing is dropped" in program.meta["warnings"][0]
    assert run(p, "dtr(limit=0.01)", 17).metrics["d2h_bytes"] > 0

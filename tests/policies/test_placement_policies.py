"""Do policies place ranks where their groups have the best links, and is what is no placement refused?

The machine has four GPUs below one socket; NVLinks of 100 GB/s join 0 and 3, and 1 and 2.  A copy past the socket is slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpusim import policy, simulate
from gpusim.base.errors import GpusimError, PolicyError
from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.topology import build
from gpusim.policies import registry
from gpusim.policies.placing import GroupExchange, PlacementView
from gpusim.programs.ranks.layout import RankLayout
from gpusim.programs.ranks.placement import group_exchanges, placed, placement_text
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import COLLECTIVE, Trace

PAIRS = """
name: pairs
summary: made up
sources: {x: made up}
wiring: x
cpu: intel
peers: {pcie: all, source: x}
nodes:
  socket0: {kind: socket}
  nic0: {kind: nic}
  gpu{0..3}: {kind: gpu, profile: a100-sxm4-80gb}
wires:
  nvlink:
    kind: nvlink
    nominal: {value: 100 GB/s, basis: published, source: x}
    rate: {value: 100 GB/s, basis: measured, source: x}
    between: [gpu0 - gpu3, gpu1 - gpu2]
  pcie: {kind: pcie, between: ["gpu{0..3} - socket0"]}
  card:
    kind: pcie
    rate: {value: 25 GB/s, basis: measured, source: x}
    between: [nic0 - socket0]
networks:
  infiniband:
    nominal: {value: 25 GB/s, basis: published, source: x}
    rate: {value: 20 GB/s, basis: measured, source: x}
    latency: {value: 2 us, basis: estimated, source: x}
    rdma: {across_sockets: {value: 50 %, basis: estimated, source: x}}
"""
MIB = 1 << 20


def times(count: int = 1) -> CollectiveTimes:
    one = build.loads(PAIRS)
    return CollectiveTimes(build.cluster(one, count) if count > 1 else one)


def groups(name: str, size: int, *ranks: tuple[int, ...], beside: bool = False) -> list[GroupExchange]:
    """All-reduces of so many bytes."""
    return [GroupExchange(name, "all_reduce", size, each, beside) for each in ranks]


def pairs(gpus: Sequence[str], *ranks: tuple[int, ...]) -> set[frozenset[str]]:
    return {frozenset(gpus[rank] for rank in group) for group in ranks}


LINKED = {frozenset(("gpu0", "gpu3")), frozenset(("gpu1", "gpu2"))}
TENSOR, DATA = ((0, 1), (2, 3)), ((0, 2), (1, 3))


@pytest.mark.hand_worked
def test_packed_and_spread() -> None:
    assert placed(times(), 3) == placed(times(), 3, "spread") == ("gpu0", "gpu1", "gpu2")
    assert placed(times(2), 4, "spread") == ("n0.gpu0", "n1.gpu0", "n0.gpu1", "n1.gpu1")
    assert placed(times(2), 4, "packed") == ("n0.gpu0", "n0.gpu1", "n0.gpu2", "n0.gpu3")


@pytest.mark.hand_worked
@pytest.mark.parametrize(("tensor", "data", "linked"), [(64 * MIB, MIB, TENSOR), (MIB, 64 * MIB, DATA)])
def test_the_groups_that_exchange_most_are_linked(tensor: int, data: int, linked: tuple[tuple[int, ...], ...]) -> None:
    """Packed, neither tensor pairs nor data pairs have links; of either, all can."""
    found = placed(times(), 4, "by_topology", groups("tensor", tensor, *TENSOR) + groups("data", data, *DATA))
    assert pairs(found, *linked) == LINKED


@pytest.mark.hand_worked
def test_exchanges_for_which_kernels_wait_go_before_those_beside_them() -> None:
    """The data pairs exchange twice as much, beside kernels that take longer."""
    exchanges = groups("tensor", 8 * MIB, *TENSOR) + groups("data", 16 * MIB, *DATA, beside=True)
    assert pairs(placed(times(), 4, "by_topology", exchanges, kernels=1e9), *TENSOR) == LINKED
    assert pairs(placed(times(), 4, "by_topology", exchanges, kernels=0.0), *DATA) == LINKED


@pytest.mark.hand_worked
def test_the_stages_of_a_pipeline_follow_the_links() -> None:
    """Of two ranks on four GPUs, the second has a GPU that is linked to the first's."""
    found = placed(times(), 2, "by_topology", [GroupExchange("pipeline+1", "send", 64 * MIB, (0, 1))])
    assert frozenset(found) in LINKED


@pytest.mark.hand_worked
def test_groups_that_exchange_most_stay_within_a_node() -> None:
    """Ranks of even and of odd number exchange much; packed, half of each are on the other node."""
    much = groups("data", 64 * MIB, (0, 2, 4, 6), (1, 3, 5, 7))
    found = placed(times(2), 8, "by_topology", much + groups("tensor", MIB, *((i, i + 1) for i in (0, 2, 4, 6))))
    assert [{gpu.partition(".")[0] for gpu in found[first::2]} for first in (0, 1)] in ([{"n0"}, {"n1"}], [{"n1"}, {"n0"}])


def test_what_nothing_makes_better_stays_packed() -> None:
    assert placed(times(), 4, "by_topology") == placed(times(), 4)
    even = CollectiveTimes(build.load("hgx-h100"))
    assert placed(even, 8, "by_topology", groups("tensor", MIB, (0, 1, 2, 3), (4, 5, 6, 7))) == placed(even, 8)


@pytest.mark.hand_worked
def test_the_estimate_adds_up_what_groups_wait_for() -> None:
    """Two pairs on links of their own take as long as one; kernels go on beside what has a stream of its own."""
    view = PlacementView(build.loads(PAIRS), 4, tuple(groups("tensor", 64 * MIB, *TENSOR)), 1e6, times())
    gpus = ("gpu0", "gpu3", "gpu1", "gpu2")
    one = view.times.of("all_reduce", ("gpu0", "gpu3"), 64 * MIB).ns
    assert view.estimate(gpus) == pytest.approx((1e6 + one, 2 * one, 0.0))
    beside = replace(view, exchanges=tuple(groups("data", 64 * MIB, *TENSOR, beside=True)))
    assert beside.estimate(gpus) == pytest.approx((max(1e6, one), 0.0, 2 * one))
    assert view.traffic()[0].tolist() == [0, 64 * MIB, 0, 0]
    assert view.rate("gpu0", "gpu3") == 100 > view.rate("gpu0", "gpu1")


def program(*texts: str) -> Trace:
    build_ = TraceBuilder("calls")
    build_.op("kernel", (), (), duration=1000)
    for i, text in enumerate(texts):
        build_.op("call", (), (), activity=COLLECTIVE, exchange=text, stream=i % 2)
    return build_.finish()


@pytest.mark.hand_worked
def test_what_ranks_exchange_is_read_from_their_programs() -> None:
    layout = RankLayout(tensor=2, pipeline=2)
    first, last = program("all_reduce tensor 8", "send pipeline+1 16"), program("all_reduce tensor 8", "receive pipeline-1 16")
    assert group_exchanges([first, first, last, last], layout.members) == [
        GroupExchange("tensor", "all_reduce", 8, (0, 1)), GroupExchange("pipeline+1", "send", 16, (0, 2), beside=True),
        GroupExchange("pipeline+1", "send", 16, (1, 3), beside=True), GroupExchange("tensor", "all_reduce", 8, (2, 3)),
    ]  # fmt: skip


# --- one's own ------------------------------------------------------------------------------------------------------------


@policy.placement
def backwards(view, skip=0):  # type: ignore[no-untyped-def]
    """From the last GPU on."""
    return list(view.gpus[::-1][skip : skip + view.ranks])


@policy.placement
def wrong(view):  # type: ignore[no-untyped-def]
    """The same GPU for all."""
    return [view.gpus[0]] * view.ranks


@policy.placement
def raising(view):  # type: ignore[no-untyped-def]
    """Nothing."""
    return view.nothing


def test_a_policy_of_ones_own_places_ranks() -> None:
    own = registry.of(backwards)
    assert placed(times(), 2, "backwards(skip=1)", own=own) == ("gpu2", "gpu1")
    result = simulate("gpt2-small-train", on="hgx-h100", parallel="data=2", placement=backwards, bounds=False)
    assert [rank.spec["gpu"] for rank in result.ranks] == ["gpu7", "gpu6"] and result.spec["placement"] == "backwards"


def test_what_is_no_placement_is_refused() -> None:
    own = registry.of(wrong, raising)
    with pytest.raises(PolicyError, match="'wrong' places ranks wrongly: ranks 0 and 1 are both on 'gpu0'") as error:
        placed(times(), 2, "wrong", own=own)
    assert Path(__file__).name in str(error.value.where)
    with pytest.raises(PolicyError, match="policy 'raising' raised AttributeError"):
        placed(times(), 2, "raising", own=own)
    with pytest.raises(PolicyError, match="there is no placement policy 'paced'"):
        placed(times(), 2, "paced")
    for given, said in (
        ("gpu0 gpu0", "ranks 0 and 1 are both on 'gpu0'"), ("gpu0 gpu9", "has no GPU 'gpu9'"),
        ("gpu0 gpu1 gpu2", "3 GPUs are named for 2 ranks"),
    ):  # fmt: skip
        with pytest.raises(GpusimError, match=said):
            placed(times(), 2, given)


def test_gpus_are_given_in_the_order_of_ranks() -> None:
    assert placed(times(), 2, "gpu3  gpu1") == placed(times(), 2, ["gpu3", "gpu1"]) == ("gpu3", "gpu1")
    assert placement_text(["gpu3", "gpu1"]) == "gpu3 gpu1"
    assert placement_text("by_topology( tries = 5 )") == "by_topology(tries=5)"

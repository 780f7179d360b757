"""Are graphs of collectives those that the links hold, and times those that their flows give?

Hand-worked machines have links of round rates, of which collectives reach all, and NCCL's own latencies.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hand_worked import Steps, machine

from gpusim.base.errors import GpusimError
from gpusim.engine import state
from gpusim.engine.run.coupled import Connections, Coupled, Meeting
from gpusim.engine.run.simulate import prepared
from gpusim.machine.collectives import passes
from gpusim.machine.collectives.fabrics import CollectiveFabric, shipped
from gpusim.machine.collectives.nccl import Channels
from gpusim.machine.collectives.passes import branches
from gpusim.machine.collectives.search import SearchedNode, search
from gpusim.machine.collectives.times import KINDS, CollectiveTimes
from gpusim.machine.topology import build, sharing, transfers
from gpusim.machine.topology.topology import Topology
from gpusim.results import log
from gpusim.trace.trace import COLLECTIVE, COPY_IN

pytestmark = pytest.mark.fast
PLAIN = {name: CollectiveFabric(share=1.0, quick=1.0, wait=1.0) for name in shipped()}
GIB = 1 << 30

HEAD = """
name: small
summary: made up
sources: {x: made up}
wiring: x
cpu: intel
peers: {pcie: all, source: x}
"""
SWITCHED = (
    HEAD
    + """
nodes:
  socket0: {kind: socket}
  gpu{0..3}: {kind: gpu, profile: %s}
  nvswitch: {kind: nvswitch}
wires:
  nvlink:
    kind: nvlink
    nominal: {value: 300 GB/s, basis: published, source: x}
    rate: {value: 100 GB/s, basis: measured, source: x}
    between: ["gpu{0..3} - nvswitch"]
  pcie: {kind: pcie, between: ["gpu{0..3} - socket0"]}
"""
)
PCIE = (
    HEAD
    + """
nodes:
  socket0: {kind: socket}
  switch{0..1}: {kind: switch}
  gpu{0..1}: {kind: gpu, profile: a100-pcie-40gb}
wires:
  all:
    kind: pcie
    nominal: {value: 15.75 GB/s, basis: published, source: x}
    rate: {value: 10 GB/s, basis: measured, source: x}
    between: ["gpu{0..1} - switch{0..1}", "switch{0..1} - socket0"]
"""
)
CARDS = """
  cards: {kind: pcie, rate: {value: 50 GB/s, basis: measured, source: x}, between: ["nic{0..3} - socket0"]}
networks:
  fabric:
    nominal: {value: 25 GB/s, basis: published, source: x}
    rate: {value: 20 GB/s, basis: measured, source: x}
    latency: {value: 1 us, basis: measured, source: x}
    rdma: {across_sockets: {value: 50 %, basis: measured, source: x}}
"""


def switched(profile: str = "a100-sxm4-80gb") -> Topology:
    """Four GPUs at a switch, 100 bytes/ns each."""
    return build.loads(SWITCHED % profile)


def cluster(nodes: int, profile: str = "a100-sxm4-80gb") -> Topology:
    """Such machines, a card for each GPU, 20 bytes/ns each."""
    text = SWITCHED % profile + CARDS
    return build.cluster(build.loads(text.replace("  nvswitch: {kind", "  nic{0..3}: {kind: nic}\n  nvswitch: {kind")), nodes)


@pytest.mark.hand_worked
@pytest.mark.parametrize(
    "kind, bytes_on_a_port, steps",
    [("all_reduce", 1.5, 6), ("all_gather", 0.75, 3), ("reduce_scatter", 0.75, 3)],
)
def test_a_ring_passes_each_port_with_its_part_of_the_message(kind, bytes_on_a_port, steps):
    """8.4 us of start and 3.4 us a step (protocol Simple, NVLink), and (n-1)/n of 1 GiB at 100 bytes/ns, twice to reduce."""
    made = switched()
    time = CollectiveTimes(made, PLAIN).of(kind, made.gpus, GIB)
    assert (time.algorithm, time.protocol) == ("Ring", "Simple")
    assert time.flow.size == bytes_on_a_port * GIB and time.flow.rate == 100
    assert Counter(time.flow.links) == {link.name: 1 for link in made.links.values() if link.kind == "nvlink"}
    assert time.ns == pytest.approx(8400 + 3400 * steps + bytes_on_a_port * GIB / 100, abs=1)


@pytest.mark.hand_worked
def test_a_small_message_has_flags_beside_its_bytes():
    """LL: 6.6 us and 0.6 us a step; 1 KiB, of which 1.5 times pass each port, twice with flags."""
    time = CollectiveTimes(switched(), PLAIN).of("all_reduce", switched().gpus, 1024)
    assert (time.algorithm, time.protocol) == ("Ring", "LL")
    assert time.ns == pytest.approx(6600 + 6 * 600 + 2 * 1.5 * 1024 / 100, abs=1)


@pytest.mark.hand_worked
def test_a_broadcast_goes_from_gpu_to_gpu():
    """One step and 1 GiB at 100 bytes/ns; what a GPU has before it goes on is late at the third and at the fourth."""
    made = switched()
    time = CollectiveTimes(made, PLAIN).of("broadcast", made.gpus, GIB)
    assert time.ns == pytest.approx(8400 + 3400 + GIB / 100, abs=1)
    assert "nvswitch>gpu0" not in time.flow.links and "gpu3>nvswitch" not in time.flow.links
    relayed = {**PLAIN, "nvlink3": CollectiveFabric(share=1.0, quick=1.0, wait=1.0, relay=1e6)}
    assert CollectiveTimes(made, relayed).of("reduce", made.gpus, GIB).ns == pytest.approx(time.ns + 2e4, abs=1)


@pytest.mark.hand_worked
def test_switches_that_reduce_take_each_message_once_and_the_own_part_again():
    """8 H100: 9/8 of 1 GiB on each port (25 us of a step), where a ring has 14/8."""
    made = build.load("hgx-h100")
    port = made.links["gpu0", "nvswitch"].rate / 1e9
    time = CollectiveTimes(made, PLAIN).of("all_reduce", made.gpus, GIB)
    assert time.algorithm == "NVLS" and time.blocks == 16
    assert time.ns == pytest.approx(25_000 + 1.125 * GIB / port, abs=1)
    first = {**PLAIN, "nvlink4": CollectiveFabric(share=1.0, quick=1.0, wait=1.0, chunk=1e7)}
    chunked = CollectiveTimes(made, first).of("all_reduce", made.gpus, GIB)
    assert chunked.ns == pytest.approx(25_000 + 1.125 * (GIB + 1e7) / port, abs=1)


@pytest.mark.hand_worked
def test_an_all_to_all_and_a_send_go_straight():
    """Three parts of four leave and reach each GPU, all at once; a send takes one step as well and passes two ports."""
    made = switched()
    times = CollectiveTimes(made, PLAIN)
    assert times.of("all_to_all", made.gpus, GIB).ns == pytest.approx(8400 + 3400 + 0.75 * GIB / 100, abs=1)
    send = times.of("send", ("gpu2", "gpu0"), GIB)
    assert send.flow.links == ("gpu2>nvswitch", "nvswitch>gpu0") and send.estimate is None
    assert send.ns == pytest.approx(8400 + 3400 + GIB / 100, abs=1)
    assert times.of("barrier", made.gpus, 0).ns == times.of("all_reduce", made.gpus, 4).ns


@pytest.mark.hand_worked
@pytest.mark.parametrize(
    ("kind", "gpus", "size", "crossings"),
    [("all_reduce", 16, 8, 2), ("all_reduce", 16, 8 << 20, 4), ("broadcast", 16, GIB, 2), ("all_gather", 16, GIB, 2),
     ("send", 2, 8, 1), ("all_reduce", 2, 8, 2)],
)  # fmt: skip
def test_each_crossing_takes_longer_over_a_farther_network(kind, gpus, size, crossings):
    """RoCE takes 2130 ns more than InfiniBand; a tree goes up and down; Simple waits twice, as NCCL counts a card's latency."""
    near, far = (CollectiveTimes(build.load(f"2 x hgx-h100 over {name}")) for name in ("infiniband", "roce"))
    chosen = near.machine.gpus if gpus == 16 else near.machine.gpus[::8]
    a, b = (each.of(kind, chosen, size) for each in (near, far))
    assert (b.flow.latency - a.flow.latency, b.ns - a.ns) == (pytest.approx(crossings * 2130), pytest.approx(crossings * 2130))
    assert (a.algorithm, a.protocol, a.estimate) == (b.algorithm, b.protocol, b.estimate), "NCCL does not know the latency"
    assert near.of(kind, near.machine.gpus[:2], 8).ns == far.of(kind, far.machine.gpus[:2], 8).ns


@pytest.mark.hand_worked
def test_a_ring_over_two_nodes_is_as_fast_as_their_cards():
    """Four cards carry a quarter of the ring's bytes each: 2 x 7/8 of 1 GiB at 80 bytes/ns; 12 steps within and 2 between."""
    made = cluster(2)
    time = CollectiveTimes(made, PLAIN).of("all_reduce", made.gpus, GIB)
    assert (time.algorithm, time.protocol) == ("Ring", "Simple")
    assert time.ns == pytest.approx(8400 + 12 * 3400 + 2 * 14_000 + 1.75 * GIB / 80, abs=1)


@pytest.mark.hand_worked
def test_two_trees_share_the_cards_of_four_nodes():
    """A node inside one tree has three of its edges and one of the other's, each with half of the bytes: twice the message."""
    graph = search(cluster(4), cluster(4).gpus)
    found = passes.tree(graph, GIB)
    sent = Counter()
    for (a, b), times in found.hops.items():
        if a[:2] != b[:2]:
            sent[a] += times * found.unit / (GIB / graph.tree.count)
    assert sorted(sent.values()) == [1] * 8 + [2] * 8


@pytest.mark.hand_worked
def test_one_gpu_of_each_of_two_nodes_has_one_card():
    made = cluster(2)
    time = CollectiveTimes(made, PLAIN).of("all_gather", ("n0.gpu1", "n1.gpu1"), GIB)
    assert time.ns == pytest.approx(time.flow.latency + GIB / 2 / 20, abs=1)
    assert {name for name in time.flow.links if name.endswith("network")} == {"n0.nic1>network", "n1.nic1>network"}


def test_what_a_fabric_does_not_reach_is_missing_in_the_rate():
    made = switched()
    slow = {**PLAIN, "nvlink3": CollectiveFabric(share=0.5, quick=2.0, wait=3.0)}
    found = CollectiveTimes(made, slow).of("all_reduce", made.gpus, GIB)
    assert found.ns == pytest.approx(3 * (8400 + 3400 * 6) + 1.5 * GIB / 50, abs=1)


CHANNELS = [  # machine, GPUs, rings, trees, NVLS
    ("dgx-a100", 8, (12, 20), (12, 20), None), ("hgx-h100", 8, (12, 30), (12, 30), (8, 40)),
    ("hgx-b200", 8, (16, 45), (16, 45), (8, 80)),
    ("dgx-1-v100", 8, (6, 20), (6, 20), None),
    ("dgx-2", 16, (6, 20), (6, 20), None),
    *(("dgx-1-p100", n, f, f, None) for n, f in ((2, (1, 18)), (3, (2, 18)), (4, (6, 9)), (6, (2, 18)), (8, (4, 18)))),
    ("2 x dgx-a100", 16, (8, 24), (8, 30), None), ("2 x hgx-h100", 16, (8, 48), (8, 48), (8, 40)),
    ("8x-rtx-4090", 8, (2, 12), (2, 12), None), ("4x-a100-pcie-pairs", 4, (2, 12), (2, 12), None),
]  # fmt: skip


@pytest.mark.parametrize("word, count, ring, tree, nvls", CHANNELS)
def test_do_links_hold_the_channels_that_were_found(word, count, ring, tree, nvls):
    made = build.load(word)
    graph = search(made, made.gpus[:count])
    assert (graph.ring.count, graph.ring.rate) == ring and (graph.tree.count, graph.tree.rate) == tree
    assert (graph.nvls and (graph.nvls.count, graph.nvls.rate)) == nvls
    rates = {link.name: link.nominal or link.rate for link in made.links.values()}
    node = SearchedNode(made, graph.nodes[0], len(graph.nodes) > 1, graph.nvlink, {})
    used = sum((node.ring(order) for order in graph.orders), Counter())
    for name, times in used.items():
        assert times * ring[1] * 1e9 <= rates[name] * 1.0001, name
    for order in graph.orders:
        assert sorted(order) == list(range(len(graph.nodes[0])))


def test_rings_of_a_hybrid_cube_mesh_use_links_between_gpus_only():
    """All but those of five GPUs, of which no ring can pass the fifth: those go past the hosts."""
    made = build.load("dgx-1-p100")
    for count in (3, 4, 6, 7, 8):
        graph = search(made, made.gpus[:count])
        for path in (graph.path(i)[0] for i in range(graph.ring.count)):
            assert all((a, b) in made.links for a, b in zip(path, [*path[1:], path[0]], strict=True))
    assert not search(made, made.gpus[:5]).nvlink


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8, 13])
def test_two_trees_reach_all_nodes_and_share_no_inner_one(count):
    inner = []
    for second in (0, 1):
        parent = dict(branches(count, second))
        assert len(parent) == count - 1
        for child in parent:
            seen = []
            while child in parent:
                assert child not in seen
                seen.append(child)
                child = parent[child]
        inner.append(set(parent.values()))
    assert len(inner[0] & inner[1]) <= 1


def test_a_small_message_takes_fewer_multiprocessors():
    graph = search(build.load("dgx-a100"), build.load("dgx-a100").gpus)
    assert [graph.blocks("Ring", "Simple", size) for size in (1024, 1 << 18, 1 << 30)] == [1, 8, 24]
    assert graph.blocks("Ring", "LL", 1 << 18) == 8 and graph.blocks("Tree", "LL128", 1 << 30) == 24


@pytest.mark.parametrize(
    "gpus, said",
    [
        (("n0.gpu0",), "at least two GPUs"), (("n0.gpu0", "n0.gpu9"), "has no GPU 'n0.gpu9'"),
        (("n0.gpu0", "n0.gpu0"), "in the collective twice"),
        (("n0.gpu0", "n0.gpu1", "n1.gpu0"), "equally many GPUs on each node, not 2, 1"),
    ],
)  # fmt: skip
def test_collectives_that_cannot_be_are_refused(gpus, said):
    with pytest.raises(GpusimError, match=said):
        CollectiveTimes(cluster(2)).of("all_reduce", gpus, 1024)


def test_what_is_no_collective_is_refused():
    times = CollectiveTimes(switched())
    with pytest.raises(GpusimError, match="'all_reduced' is no collective"):
        times.of("all_reduced", ("gpu0", "gpu1"), 1)
    with pytest.raises(GpusimError, match="two ends, not 3"):
        times.of("send", ("gpu0", "gpu1", "gpu2"), 1)
    with pytest.raises(GpusimError, match="does not exist"):
        times.of("broadcast", ("gpu0", "gpu1"), -1)
    pool = build.load("cxl-pool-2x-h100")
    with pytest.raises(GpusimError, match="no network of machine"):
        CollectiveTimes(pool).of("all_reduce", pool.gpus, 1024)


SEVERAL = ("hgx-h100", "2 x hgx-b200", "8x-rtx-4090", "4 x gh200-x4 over tcp", "dgx-1-v100", "gb200-nvl72")


@pytest.mark.parametrize("word", SEVERAL)
def test_times_grow_with_the_message_and_no_link_is_faster_than_it_is(word):
    made = build.load(word)
    times, rates = CollectiveTimes(made), transfers.rates(made)
    for kind in KINDS[:-1]:
        gpus = made.gpus[:2] if kind == "send" else made.gpus
        found = [times.of(kind, gpus, size) for size in (0, 1 << 12, 1 << 22, 1 << 32)]
        assert [time.ns for time in found] == sorted(time.ns for time in found) and found[0].ns > 0
        for time in found[1:]:
            for name, count in Counter(time.flow.links).items():
                assert time.flow.size * count / (time.ns - time.flow.latency) <= rates[name] * 1.0001


@pytest.mark.oracle
def test_messages_take_as_much_longer_over_roce_as_was_measured():
    """AllReduces of 8 to 32 MiB of 2 x 8 B200 (us, pages of Lambda's and Google's users): 9.2 us longer in the mean."""
    infiniband, roce = {8: 141.39, 16: 186.86, 32: 255.79}, {8: 156.9, 16: 196.3, 32: 258.5}
    measured = sum(roce[mib] - infiniband[mib] for mib in roce) / 3
    near, far = (CollectiveTimes(build.load(f"2 x hgx-b200 over {name}")) for name in ("infiniband", "roce"))
    for mib in roce:
        times = [each.of("all_reduce", each.machine.gpus, mib << 20).ns / 1e3 for each in (near, far)]
        assert times[1] - times[0] == pytest.approx(measured, rel=0.1)


SAMPLE = [  # machine, GPUs of a node, kind, bytes, us: of machines that the fit did not see, but for the third and fourth
    ("2 x hgx-b200 over roce", 8, "all_reduce", 1 << 26, 369.4), ("2 x hgx-b200 over roce", 8, "all_reduce", 1 << 33, 23563.0),
    ("hgx-h100", 8, "all_reduce", 1 << 26, 326.6), ("2 x hgx-h100 over infiniband", 8, "all_reduce", 1 << 33, 34448.4),
    ("2 x dgx-a100-40gb over roce", 8, "all_reduce", 1 << 30, 10887.4), ("hgx-h100", 8, "all_reduce", 1 << 25, 196.0),
    ("4x-h100-nvl-pairs", 4, "all_reduce", 1 << 25, 1055.0),
]  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("word, each, kind, size, us", SAMPLE)
def test_are_times_those_that_were_measured(word, each, kind, size, us):
    """nccl-tests on pages of GCP, AWS, Nebius and OCI users, and profiles of github.com/microsoft/vidur (MIT)."""
    made = build.load(word)
    gpus = [gpu for gpu in made.gpus if int(gpu.rpartition("gpu")[2]) < each]
    assert CollectiveTimes(made).of(kind, gpus, size).ns / 1e3 == pytest.approx(us, rel=0.1)


@pytest.mark.oracle
def test_which_row_is_worse_since_networks_have_latencies():
    """32 MiB over RoCE: 12 % too slow (measured 258.5 us), 8.5 % before messages took longer than over InfiniBand."""
    made = build.load("2 x hgx-b200 over roce")
    assert CollectiveTimes(made).of("all_reduce", made.gpus, 1 << 25).ns / 258.5e3 == pytest.approx(1.118, abs=0.005)


def collective_and_swap(begin: int, blocks: float) -> list[dict[int, tuple[int, int]]]:
    """Of two GPUs below two switches, (start, end) of activities; the first also reads so many blocks from `begin` ns on."""
    made = build.loads(PCIE)
    links = sharing.shared(made, made.gpus)
    flow = CollectiveTimes(made, PLAIN).of("all_reduce", made.gpus, 10_240_000).flow
    met = Meeting(((0, 0), (1, 0)), round(flow.latency), flow.size, flow.rate, links.route(flow.links))
    first, second = Steps(), Steps()
    for each in (first, second):
        each.carry(COLLECTIVE, 0, 1000)
    if blocks:
        first.kernel(begin, stream=1)
        first.carry(COPY_IN, 1, blocks)
    profile = machine({"link.d2h": 10e9, "link.both": 20e9})
    runs = [prepared(each.trace(), profile, place="device", log=True) for each in (first, second)]
    Coupled([run.simulation for run in runs], Connections(links.rates, links.beyond, [met])).advance(state.NEVER)
    found = []
    for run in runs:
        kept = run.result().log
        ends = {int(row["a"]): int(row["t"]) for row in kept if row["kind"] == log.END}
        found.append({int(row["a"]): (int(row["t"]), ends[int(row["a"])]) for row in kept if row["kind"] == log.START})
    return found


@pytest.mark.hand_worked
def test_a_swap_that_starts_half_way_slows_a_collective_and_is_slowed():
    """10,240,000 bytes are reduced at 10 bytes/ns after 19.8 us; from the middle on 2,560,000 come in, each at 5 bytes/ns."""
    alone = collective_and_swap(0, 0)
    start, middle = 19_800, 19_800 + 512_000
    assert [list(each.values()) for each in alone] == [[(0, start + 1_024_000)]] * 2
    both = collective_and_swap(middle - 1000, 250)
    end = middle + 512_000 + 256_000
    assert sorted(both[0].values()) == [(0, middle - 1000), (0, end), (middle - 1000, middle + 512_000)]
    assert list(both[1].values()) == [(0, end)]


def test_graphs_of_the_search_are_inputs_of_the_estimate():
    comm = search(build.load("2 x hgx-h100"), build.load("2 x hgx-h100").gpus).communicator
    assert (comm.nodes, comm.ranks_per_node, comm.capability, comm.cpu) == (2, 8, 90, "intel")
    assert comm.nvlink and comm.ll128
    assert comm.nvls == Channels(8, 40, between=48) and not comm.same_rings

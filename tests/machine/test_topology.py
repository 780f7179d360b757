"""Are whole machines read strictly, and do bytes go the way that drivers send them?"""

from __future__ import annotations

import re

import pytest

from gpusim.base.errors import ConfigError, GpusimError, ProfileError
from gpusim.base.yaml import find
from gpusim.machine import catalogue
from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.topology import build, routes, sharing, transfers

pytestmark = pytest.mark.fast
NAMES = build.names()

SMALL = """\
name: small
summary: two sockets, three GPUs, a card
sources: {here: "made up"}
wiring: here
cpu: intel
nodes:
  socket{0..1}: {kind: socket, bandwidth: {value: 100 GB/s, basis: estimated, source: here}}
  switch0: {kind: switch}
  gpu{0..2}: {kind: gpu, profile: h100-sxm-80gb}
  nic0: {kind: nic}
wires:
  pcie: {kind: pcie, between: [gpu0 - switch0, gpu1 - switch0, gpu2 - socket1]}
  bridge: {kind: nvlink, rate: {value: 25 GB/s, basis: estimated, source: here}, between: [2 x gpu1 - gpu2]}
  rest:
    kind: pcie
    rate: {value: 40 GB/s, basis: estimated, source: here}
    between: [switch0 - socket0, nic0 - socket0]
  sockets: {kind: socket, rate: {value: 20 GB/s, basis: estimated, source: here}, between: [socket0 - socket1]}
peers: {pcie: switch, source: here}
networks:
  infiniband:
    rate: {value: 30 GB/s, basis: estimated, source: here}
    latency: {value: 2 us, basis: estimated, source: here}
    rdma: {across_sockets: {value: 50 %, basis: estimated, source: here}}
  tcp:
    rate: {value: 1 GB/s, basis: estimated, source: here}
    latency: {value: 30 us, basis: estimated, source: here}
"""


def passed(route: routes.TransferRoute) -> list[str]:
    return [route.ends[0], *(link.b for link in route.links)]


def test_are_the_machines_there_that_people_ask_for():
    wanted = (
        *("dgx-1-p100", "dgx-1-v100", "dgx-2", "dgx-a100", "hgx-h100", "hgx-h200", "hgx-b200", "gh200-x4", "gb200-nvl72"),
        *("8x-rtx-4090", "4x-a10", "2x-rtx-3090-nvlink", "jetson-agx-orin", "cxl-pool-2x-h100", "optical-16x-b200"),
    )
    assert set(wanted) <= set(NAMES)
    assert not set(NAMES) & set(catalogue.names()), "a name is a profile or a machine"


@pytest.mark.parametrize("name", NAMES)
def test_is_every_machine_whole(name):
    made = build.load(name)
    assert made.name == name
    text = find.find("machine", name).read_text()
    assert text.startswith("# yaml-language-server: $schema=../../gpusim/cli/schema/machine.schema.json\n")
    for key in made.file.sources:
        assert re.search(rf"(source|wiring): \"?{re.escape(key)}\"?[,}}\n]", text), f"{name}: nothing comes from '{key}'"
    for a in made.gpus:
        for b in made.gpus[:2]:
            if len({made.host[a], made.host[b]}) == 1 or name != "cxl-pool-2x-h100":
                assert routes.between(made, a, b).rate > 0
    assert made.file.estimate == (name in ("cxl-pool-2x-h100", "optical-16x-b200"))


def test_what_do_machines_consist_of():
    counts = {name: (len(m.gpus), m.hosts) for name in NAMES if (m := build.load(name))}
    assert counts["dgx-2"] == (16, 1) and counts["gb200-nvl72"] == (72, 18) and counts["cxl-pool-2x-h100"] == (4, 2)
    cube = build.load("dgx-1-v100")
    for gpu in cube.gpus:  # six links each, to four neighbours
        wires = [link.count for link in cube.neighbours[gpu] if link.kind == "nvlink"]
        assert (sum(wires), len(wires)) == (6, 4)
    assert sum(link.count for link in build.load("dgx-1-p100").neighbours["gpu3"] if link.kind == "nvlink") == 4


def test_a_gpu_is_reached_over_its_own_links_only():
    made = build.loads(SMALL)
    direct = routes.between(made, "gpu1", "gpu2")
    assert passed(direct) == ["gpu1", "gpu2"] and direct.rate == 50e9 and "2 nvlink wires" in direct.reason
    far = routes.between(made, "gpu0", "gpu2")  # not over gpu1
    assert passed(far) == ["gpu0", "switch0", "socket0", "socket1", "gpu2"] and far.staged
    assert "nothing is forwarded over a third GPU" in far.reason and "'socket0'" in far.reason


def test_peers_meet_below_the_least_common_switch():
    made = build.loads(SMALL)
    near = routes.between(made, "gpu0", "gpu1")
    assert passed(near) == ["gpu0", "switch0", "gpu1"] and near.staged is None and "one switch" in near.reason
    off = routes.between(made, "gpu0", "gpu1", direct=False)
    assert passed(off) == ["gpu0", "switch0", "socket0", "switch0", "gpu1"] and off.staged
    everywhere = build.loads(SMALL.replace("pcie: switch", "pcie: all"))
    route = routes.between(everywhere, "gpu0", "gpu2")
    assert route.staged is None and route.rate == 20e9 and route.narrowest == "socket0>socket1"


def test_a_copy_to_the_host_ends_in_the_memory_of_a_socket():
    made = build.loads(SMALL)
    near, far = routes.between(made, "gpu0", "socket0"), routes.between(made, "gpu0", "socket1")
    assert passed(near) == ["gpu0", "switch0", "socket0"] and near.rate == 40e9
    assert passed(far)[-2:] == ["socket0", "socket1"] and far.rate == 20e9


def test_a_copy_to_the_same_gpu_passes_no_link():
    made = build.loads(SMALL)
    route = routes.between(made, "gpu0", "gpu0")
    assert route.links == () and transfers.time_alone(made, route, 1 << 20) == pytest.approx((1 << 20) / route.rate * 1e9)


def test_rdma_across_sockets_is_halved():
    pair = build.cluster(build.loads(SMALL), 2)
    near = routes.between(pair, "n0.gpu0", "n1.gpu1")
    assert passed(near)[1:5] == ["n0.switch0", "n0.socket0", "n0.nic0", "network"] and near.rate == 30e9
    assert "RDMA" in near.reason and near.latency == 2000
    far = routes.between(pair, "n0.gpu2", "n1.gpu1")
    assert far.rate == 10e9 and "50 %" in far.reason  # half of the 20 GB/s between the sockets


def test_without_rdma_hosts_copy_through_their_memory():
    pair = build.cluster(build.loads(SMALL), 2, "tcp")
    route = routes.between(pair, "n0.gpu0", "n1.gpu0")
    assert route.staged and route.rate == 1e9 and "n1.socket0" in passed(route)
    assert len(route.legs) == 3 and "no RDMA (tcp)" in route.reason
    parts = transfers.flows(pair, route, 8 << 20)
    assert [part.size for part in parts] == [1 << 20, 7 << 20, 1 << 20]


def test_what_a_word_means():
    assert build.load("4 x hgx-h100").name == "4 x hgx-h100 over infiniband"
    assert len(build.load("2 x hgx-h100 over roce").gpus) == 16
    alone = build.load("a100-pcie-80gb")
    assert alone.gpus == ("gpu0",) and routes.between(alone, "gpu0", "socket0").rate == alone.profile("gpu0").link.d2h.value
    with pytest.raises(ProfileError, match=r"no machine 'h100-sxm'.*'h100-sxm-80gb'"):
        build.load("h100-sxm")
    with pytest.raises(ProfileError, match=r"no machine 'hgx-h10'.*hgx-h100"):
        build.load("hgx-h10")
    with pytest.raises(GpusimError, match=r"no network 'infinband'.*infiniband"):
        build.load("2 x hgx-h100 over infinband")
    with pytest.raises(GpusimError, match=r"is one machine.*\(write 2 x hgx-h100 over roce\)"):
        build.load("hgx-h100 over roce")
    with pytest.raises(GpusimError, match="no network to which"):
        build.load("2 x 4x-a10")
    with pytest.raises(GpusimError, match=r"has no node 'gpu9'.*gpu3"):
        routes.between(build.load("4x-a10"), "gpu0", "gpu9")
    with pytest.raises(GpusimError, match="which no network of machine 'cxl-pool-2x-h100' joins"):
        routes.between(build.load("cxl-pool-2x-h100"), "gpu0", "gpu3")


def test_machines_of_two_kinds_share_a_network_at_their_own_rates() -> None:
    made = build.load("hgx-h100 + dgx-a100")
    assert made.name == "hgx-h100 + dgx-a100 over infiniband" and len(made.gpus) == 16 and made.hosts == 2
    assert [made.profile(made.gpus[i]).name for i in (0, 8)] == ["h100-sxm-80gb", "a100-sxm4-80gb"]
    assert made.links["n0.nic0", "network"].rate == 47.7e9 and made.links["n1.nic0", "network"].rate == 23.85e9
    assert routes.between(made, "n0.gpu0", "n1.gpu3").rate == 23.85e9
    for word, told in (
        ("hgx-h100 + 4x-a10", "no network to which"), ("hgx-h100 + dgx-a100 over tpc", "no network 'tpc'"),
        ("hgx-h100 + nothing", "no machine 'nothing'"), ("0 x hgx-h100 + dgx-1-v100", "a cluster of 0 machines"),
    ):  # fmt: skip
        with pytest.raises(GpusimError, match=told):
            build.load(word)
    with pytest.raises(GpusimError, match="several kinds of machines"):
        build.file_of("hgx-h100 + dgx-a100")


@pytest.mark.agreement
@pytest.mark.parametrize("other", ["dgx-a100", "dgx-1-v100", "dgx-2"])
def test_gpus_of_one_kind_reach_each_other_as_on_their_own_machine(other: str) -> None:
    """Routes, staging and collectives by the rules of the host, whatever stands first."""
    alone = build.load(other)
    for word, host in ((f"hgx-h100 + {other}", "n1."), (f"{other} + hgx-h100", "n0.")):
        made = build.load(word)
        for a, b in (("gpu0", "gpu1"), ("gpu0", "gpu5"), ("gpu3", "gpu4")):
            route, own = routes.between(made, host + a, host + b), routes.between(alone, a, b)
            assert (route.rate, route.latency, route.staged) == (own.rate, own.latency, own.staged)
            assert [link.b.removeprefix(host) for link in route.links] == [link.b for link in own.links]
        times = [CollectiveTimes(machine).of("all_reduce", [at + gpu for gpu in alone.gpus[:4]], size).ns
                 for size in (4096, 1 << 20, 1 << 26) for machine, at in ((made, host), (alone, ""))]  # fmt: skip
        assert times[::2] == times[1::2]



@pytest.mark.parametrize(
    ("old", "new", "where", "said"),
    [
        ("profile: h100-sxm-80gb", "profile: h100-sxm", "9:35", "no profile 'h100-sxm'"),
        ("kind: gpu, profile: h100-sxm-80gb", "kind: gpu", "9:3", "'gpu{0..2}' is a gpu without a profile"),
        ("switch0: {kind: switch}", "switch0: {kind: swich}", "8:19", "cannot be 'swich'"),
        ("gpu2 - socket1]", "gpu2 - gpu2]", "12:64", "wires 'gpu2' to itself"),
        ("gpu2 - socket1]", "gpu2 - socket7]", "12:64", "no node 'socket7'"),
        ("gpu2 - socket1]", "gpu2 socket1]", "12:64", "is no pair of nodes"),
        ("gpu0 - switch0, gpu1", '"gpu{0..2} - socket{0..1}", gpu1', "12:32", "neither is a multiple"),
        ("[2 x gpu1 - gpu2]", "[2 x gpu1 - gpu2, gpu2 - gpu1]", "", "wired twice"),
        ("nic0: {kind: nic}", "nic{0..1}: {kind: nic}", "10:3", "the machine falls apart"),
        (", gpu2 - socket1]", "]", "9:3", "'gpu2' has no wire to a host"),
        ("rate: {value: 25 GB/s, basis: estimated, source: here}, ", "", "13:45", ""),
        ("wiring: here", "wiring: there", "4:9", "'there' is not in the table 'sources'"),
        ("20 GB/s, basis: estimated, source: here", "20 GB/s, basis: estimated, source: her", "", "not in the table"),
        ("cpu: intel", "cpu: intel\nnuma: {rows: [[10]], source: here}", "6:8", "NUMA distances of 2 sockets"),
        ("cpu: intel", "cpu: intel\ncolour: red", "6:1", "unknown key 'colour'"),
    ],
)  # fmt: skip
def test_is_a_mistake_told_at_its_place(old, new, where, said):
    assert old in SMALL
    text = SMALL.replace(old, new, 1)
    if not said:  # the GPUs' profile has links of its own: then no rate is needed
        assert build.loads(text, "mine.yaml").links["gpu1", "gpu2"].rate == catalogue.load("h100-sxm-80gb").peer.rate.value
        return
    with pytest.raises(ConfigError) as caught:
        build.loads(text, "mine.yaml")
    (problem, *_) = caught.value.problems
    assert said in problem.message, problem
    assert not where or str(problem).startswith(f"mine.yaml:{where}: "), problem


def test_what_do_programs_on_its_devices_share():
    made = build.loads(SMALL)
    found = sharing.shared(made, ["gpu1", "gpu0"])
    assert found.rates["switch0>socket0"] == 40.0 and found.rates["socket0"] == 100.0
    assert not {"gpu0>switch0", "switch0>gpu1", "gpu1=switch0"} & set(found.rates), "their own links are their profiles'"
    assert found.beyond[1]["h2d"] == ("socket0>switch0", "socket0")
    assert found.beyond[1]["d2h"] == ("switch0>socket0", "socket0")
    assert found.beyond[0]["peer"] == ("gpu1>gpu2",) and "peer" not in found.beyond[1]
    flows = transfers.flows(made, routes.between(made, "gpu0", "gpu1"), 1000)
    assert found.route(flows[0].links) == ((1, "d2h"), (1, "both"), (0, "h2d"), (0, "both"))
    for wrong, said in ((["gpu7"], "no GPU 'gpu7'"), (["gpu0", "gpu0"], "each for itself")):
        with pytest.raises(GpusimError, match=said):
            sharing.shared(made, wrong)


def test_several_gpus_of_a_profile_are_linked_as_their_boards_are() -> None:
    """SXM boards on an NVSwitch, as those of the whole machine; cards past the host's socket."""
    eight, whole = build.load("8 x h100-sxm-80gb"), build.load("hgx-h100")
    size, gpus = 64 * 2**20, tuple(f"gpu{i}" for i in range(8))
    times = [CollectiveTimes(machine).of("all_reduce", gpus, size).ns for machine in (eight, whole)]
    assert times[0] == times[1]
    assert ("gpu0", "nvswitch") in eight.links and ("gpu0", "nvswitch") not in build.load("h100-sxm-80gb").links
    assert set(build.load("2 x l40s").nodes) == {"gpu0", "gpu1", "socket0"}

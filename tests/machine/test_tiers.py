"""What is a tier of a machine, to the number, and is what no machine has told in a sentence?"""

import copy

import pytest

from gpusim.base.errors import ProfileError
from gpusim.machine import catalogue
from gpusim.machine.profile import changed
from gpusim.machine.tiers import TierLink, nvme_rate, parse

GIB = 2**30


@pytest.fixture(scope="module")
def h100():
    return catalogue.load("h100-sxm-80gb")


def test_what_is_host_memory_to_a_copy(h100):
    (tier,) = parse("host", h100)
    assert (tier.name, tier.kind, tier.capacity, tier.queue, tier.waits) == ("host", "host", 1024 * GIB, "copy", False)
    assert (tier.read, tier.write, tier.read_latency, tier.write_latency) == (55.36, 55.2, 2041, 2041)
    assert tier.way_in == (TierLink("h2d", 55.36), TierLink("both", 102.0))
    assert tier.way_out == (TierLink("d2h", 55.2), TierLink("both", 102.0))
    (staged,) = parse("host(pageable=1)", h100)
    assert (staged.read, staged.write, staged.read_latency, staged.waits) == (10.0, 10.8, 10_130, True)
    assert staged.way_in == tier.way_in
    (far,) = parse("host(numa=remote)", h100)
    assert far.read == pytest.approx(55.36 * 0.999)


@pytest.mark.slow
def test_is_a_measured_curve_by_size_kept():
    profile = next(p for p in map(catalogue.load, catalogue.names()) if p.link.size_curve)
    (tier,) = parse("host", profile)
    size, rate = profile.link.size_curve[0]
    assert tier.curve[0] == (size, rate / 1e9)
    assert parse("host(pageable=1)", profile)[0].curve == ()


def test_what_do_several_gpus_leave_each_other(h100):
    """All 8 together reach 200 bytes/ns to them and 320 in both directions: 25 and 40 for each."""
    node = h100
    for part, path, value in (("host", "all_h2d", 200e9), ("host", "all_both", 320e9), ("link", "kernel_read", 57e9)):
        node, inner = copy.copy(node), copy.copy(getattr(node, part))
        object.__setattr__(inner, path, changed(h100, "link.h2d", value).link.h2d)
        object.__setattr__(node, part, inner)
    (tier,) = parse("host(gpus=8)", node)
    assert (tier.read, tier.write) == (25.0, 40.0)
    links = (("h2d", 57.0), ("both", 102.0), ("all_h2d", 25.0), ("all_both", 40.0))
    assert tier.way_in == tuple(TierLink(*link) for link in links)
    assert tier.way_out == (TierLink("d2h", 55.2), TierLink("both", 102.0), TierLink("all_both", 40.0))
    assert (tier.kernel_read, tier.kernel_write) == (57.0, 0.0), "kernels may use more of the link than copies do"
    with pytest.raises(ProfileError, match="h100-sxm-80gb does not say what several GPUs have together"):
        parse("host(gpus=8)", h100)


def test_does_a_chain_keep_its_order_and_number_what_is_there_twice(h100):
    tiers = parse("peer > host > host(numa=remote) > nvme(direct=1)", h100)
    assert [t.name for t in tiers] == ["peer", "host", "host2", "nvme"]
    assert [t.capacity for t in tiers[1:3]] == [512 * GIB, 512 * GIB], "one memory, which both share"
    tiers = parse("host(capacity=24 GiB) > host(numa=remote)", h100)
    assert [t.capacity for t in tiers] == [24 * GIB, 1000 * GIB]


def test_what_does_a_disk_reach_by_depth_and_size_of_requests(h100):
    # One request of 4 KiB at 2.048 bytes/ns takes 100 us + 2 us: 4096 B in 102,000 ns; eight of them eight times as much.
    assert nvme_rate(2.048, 100_000, 1, 4096) == pytest.approx(4096 / 102_000)
    assert nvme_rate(2.048, 100_000, 8, 4096) == pytest.approx(8 * 4096 / 102_000)
    assert nvme_rate(2.048, 100_000, 51, 4096) == 2.048, "51 x 4096 B / 102 us is exactly the disk's rate"
    (slow,) = parse("nvme(direct=1, read=2.048 GB/s, write=1.024 GB/s, queue_depth=8, request=4 KiB)", h100)
    assert slow.read == pytest.approx(8 * 4096 / 102_000)
    assert slow.write == pytest.approx(8 * 4096 / 104_000), "writing is slower than reading"
    assert [link.rate for link in (slow.way_in[0], slow.way_out[0])] == [2.048, 1.024], "others may use the rest"


def test_what_does_the_way_through_the_host_add_to_a_disks(h100):
    through, direct = (parse(text, h100)[0] for text in ("nvme(request=1 MiB)", "nvme(request=1 MiB, direct=1)"))
    assert direct.read_latency == 100_000
    assert through.read_latency == 100_000 + 2_041 + round(2**20 / 55.36), "the last request crosses the link when it is read"
    assert through.write_latency == 100_000 + round(2_041 + 2**20 / 55.2)
    assert through.read == direct.read == pytest.approx(2.896166912)
    assert [link.name for link in through.way_in] == ["nvme_read", "h2d", "both"] == [link.name for link in direct.way_in]
    assert [link.name for link in through.way_out] == ["nvme_write", "d2h", "both"]


def test_do_gpus_meet_over_their_own_links_or_over_the_hosts(h100):
    (near,) = parse("peer", h100)
    assert (near.capacity, near.read, near.queue) == (round(79.11 * GIB) - 300_000_000, 376.27, "peer")
    assert (near.way_in, near.way_out) == ((TierLink("peer_in", 376.27),), (TierLink("peer_out", 376.27),))
    t4 = catalogue.load("t4")
    (far,) = parse("peer", t4)
    assert far.read == far.write == min(t4.link.h2d.value, t4.link.d2h.value) / 1e9
    assert [link.name for link in far.way_in] == ["h2d", "both"]


def test_what_do_cxl_and_a_network_come_to(h100):
    (cxl,) = parse("cxl", h100)
    assert (cxl.capacity, cxl.read, cxl.read_latency) == (512 * GIB, 23.7, 2_341)
    assert [link.name for link in cxl.way_out] == ["cxl_write", "d2h", "both"]
    (remote,) = parse("remote(capacity=2 TiB)", h100)
    assert (remote.capacity, remote.read, remote.queue) == (2048 * GIB, 47.7, "network")
    assert (remote.read_latency, remote.write_latency) == (3_660, 1_830), "a read is asked for first"


def test_has_a_machine_with_one_memory_no_tier_below_it_by_default():
    jetson = catalogue.load("jetson-thor")
    assert parse("host", jetson) == ()
    assert [t.kind for t in parse("nvme", jetson)] == ["nvme"]
    with pytest.raises(ProfileError, match="share one memory: there is no host tier"):
        parse("host > nvme", jetson)
    with pytest.raises(ProfileError, match="jetson-thor is one chip with one memory: there is no other GPU's"):
        parse("peer", jetson)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nvm", r"there is no tier 'nvm' \(did you mean 'nvme'\?\)"),
        ("host > ", "empty place between its tiers"),
        ("host > host", "'host' stands twice"),
        ("host(numa=local) > host", "stands twice"),
        ("host(direct=1)", "tier 'host' has no parameter 'direct'"),
        ("host(capacity=2 TiB)", "a tier 'host' of 2 TiB is more than the 1 TiB of host memory of h100-sxm-80gb"),
        ("host(capacity=600 GiB) > host(numa=remote, capacity=600 GiB)", "the host tiers together are more than the 1 TiB"),
        ("peer(capacity=100 GiB)", "is more than the 78.8 GiB of memory that another GPU has"),
        ("host(capacity=8)", "'8' has no unit"),
        ("host(numa=far)", r"'far' is none of local, remote, interleave, first_touch"),
        ("host(numa=remot)", r"parameter 'numa' of tier 'host': .*did you mean 'remote'"),
        ("host(pool=frsh)", r"'frsh' is none of ready, grow, fresh \(did you mean 'fresh'\?\)"),
        ("host(gpus=0)", "'0' is not a whole number from 1 to 1024"),
        ("nvme(read=-1 GB/s)", "'-1 GB/s' is negative"),
        ("nvme(write=0 GB/s)", "parameter 'write' of tier 'nvme' is 0"),
        ("nvme(queue_depth=0)", "is not a whole number from 1"),
        ("nvme(direct=yes)", "neither 0 nor 1"),
    ],
)
def test_is_what_cannot_be_told_in_a_sentence(h100, text, message):
    with pytest.raises(ProfileError, match=message):
        parse(text, h100)


def test_is_memory_spread_over_nodes_that_are_known(h100):
    with pytest.raises(ProfileError, match=r"l4 does not say how many NUMA nodes its host has \(write host.numa_nodes in its"):
        parse("host(numa=interleave)", catalogue.load("l4"))
    (tier,) = parse("host(numa=interleave)", h100)
    assert tier.read == pytest.approx(55.36 * 2 / (1 + 1 / 0.999))


def test_is_a_tier_refused_that_a_machine_has_no_way_to(h100):
    t4 = catalogue.load("t4")
    with pytest.raises(ProfileError, match="t4 has no CXL memory"):
        parse("host > cxl", t4)
    with pytest.raises(ProfileError, match="t4 has no network to another host"):
        parse("remote", t4)


def test_may_only_a_part_of_host_memory_be_pinned(h100):
    windows = copy.copy(h100)
    host = copy.copy(h100.host)
    object.__setattr__(host, "pinned", changed(h100, "host.numa_remote", 0.5).host.numa_remote)
    object.__setattr__(windows, "host", host)
    assert parse("host", windows)[0].capacity == 512 * GIB
    assert parse("host(pageable=1)", windows)[0].capacity == 1024 * GIB
    with pytest.raises(ProfileError, match="more than the 512 GiB of host memory of h100-sxm-80gb that may be pinned"):
        parse("host(capacity=600 GiB)", windows)

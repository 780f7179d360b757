"""Which memories does a machine lend, over which of its links, and what is refused?"""

from __future__ import annotations

import pytest

from gpusim.base.errors import ProfileError
from gpusim.machine.topology import build
from gpusim.machine.topology.lenders import Below, below, check
from gpusim.machine.topology.routes import between
from gpusim.machine.topology.transfers import time_alone


def made(name: str, chain: str, ranks: int = 1) -> Below:
    machine = build.load(name)
    gpus = machine.gpus[:ranks]
    found = below(machine, gpus, [machine.profile(gpu) for gpu in gpus], chain)
    assert found is not None
    return found


def test_all_other_gpus_of_a_box_are_peers() -> None:
    found = made("hgx-h100", "peer(any) > host > nvme", ranks=2)
    assert [tier.name for tier in found.tiers[1]] == ["peer gpu0", *(f"peer gpu{i}" for i in range(2, 8)), "host", "nvme"]
    assert [found.lenders[f"gpu{i}"].program for i in range(8)] == [0, 1, -1, -1, -1, -1, -1, -1]
    assert [tier.place for tier in found.tiers[0]] == [1] * 7 + [2, 3]
    assert found.beyond[0]["peer_out gpu3"] == ("gpu0>nvswitch", "nvswitch>gpu3")
    assert found.beyond[0]["peer_in gpu3"] == ("gpu3>nvswitch", "nvswitch>gpu0")


def test_what_a_lender_evicts_passes_its_own_link_to_the_host() -> None:
    found = made("hgx-h100", "peer(any) > host > nvme", ranks=2)
    gpu1, *_ = found.tiers[0]
    assert [(fall.to, fall.rate) for fall in gpu1.falls] == [("host", 55.2), ("nvme", found.tiers[0][-1].write)]
    assert found.beyond[0]["from gpu1 to host"][:2] == ((1, "d2h"), (1, "both"))
    assert found.beyond[0]["from gpu1 to nvme"][-1] == (0, "nvme_write")
    assert found.beyond[0]["from gpu5 to host"][0] == "gpu5>switch2", "an idle GPU has no program whose link it is"


def test_a_pair_without_a_link_copies_through_the_host() -> None:
    """gpu0 and gpu5 of a DGX-1 have none: the copy is staged, and takes what the route takes alone."""
    machine = build.load("dgx-1-v100")
    found = made("dgx-1-v100", "peer(any) > host")
    near, far = (next(t for t in found.tiers[0] if t.lender == name) for name in ("gpu3", "gpu5"))
    assert near.curve == () and near.write > 2 * far.write
    route, size = between(machine, "gpu0", "gpu5"), 1 << 26
    assert dict(far.curve_out)[size] == pytest.approx(size / time_alone(machine, route, size))
    assert not any("gpu" in str(link) and "gpu0" not in str(link) and "gpu5" not in str(link)
                   for link in found.beyond[0]["peer_out gpu5"]), "nothing is forwarded over a third GPU"  # fmt: skip


def test_gpus_without_peer_access_meet_in_the_host() -> None:
    found = made("8x-rtx-4090", "peer(any) > host")
    peer, host = found.tiers[0][0], found.tiers[0][-1]
    assert peer.write < host.write and peer.curve


def test_memory_of_another_host_is_what_its_ranks_leave() -> None:
    found = made("2 x hgx-h100 over infiniband", "remote(rdma, capacity=100 GiB) > host")
    assert set(found.lenders) == {"n1.socket0", "n1.socket1"}
    assert {lender.lends for lender in found.lenders.values()} == {100 << 30}
    assert all(tier.far for tier in found.tiers[0][:2])
    busy = made("2 x hgx-h100 over infiniband", "remote(rdma) > host", ranks=16)
    assert {lender.lends for lender in busy.lenders.values()} == {0}
    assert len(made("2 x hgx-h100 over infiniband", "remote(gpus) > host").tiers[0]) == 9


def test_where_only_the_borrower_is_linked_to_the_lender_bytes_pass_it() -> None:
    found = made("gb200-nvl72", "peer(any) > host")
    away = next(tier for tier in found.tiers[0] if tier.far)
    way = found.beyond[0][f"from {away.lender} to host"]
    assert way[:2] == (f"{away.lender}>nvswitch", "nvswitch>gpu0") and (0, "d2h") in way


def test_a_machine_of_programs_with_memory_of_their_own_lends_nothing() -> None:
    machine = build.load("hgx-h100")
    assert below(machine, machine.gpus[:1], [machine.profile("gpu0")], "host > nvme") is None


@pytest.mark.parametrize(("chain", "said"), [
    ("peer > host", "tier 'peer' is an exclusive memory, and ranks share their machine"),
    ("remote > host", r"write remote\(rdma\) or remote\(gpus\)"),
    ("host > peer(any)", r"no tier of its own stands behind peer\(any\)"),
    ("peer(any)", r"write peer\(any\) > host"),
    ("peer(any) > host(pageable=1)", "its memory is pinned beforehand"),
    ("peer(all) > host", "tier 'peer' has no parameter 'all'"),
])  # fmt: skip
def test_chains_that_no_machine_can_have_are_refused(chain: str, said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        check(chain)


@pytest.mark.parametrize(("machine", "chain", "said"), [
    ("jetson-agx-orin", "peer(any) > host", "names no memory: no other GPU is in its host or linked to it"),
    ("hgx-h100", "remote(rdma) > host", "there is no other host"),
    ("2 x hgx-h100 over tcp", "remote(gpus) > host", "has tcp, without RDMA"),
])  # fmt: skip
def test_memories_that_a_machine_does_not_have_are_refused(machine: str, chain: str, said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        made(machine, chain)

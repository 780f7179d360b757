"""Tiers of keys and values in words: ways over a machine's links, codecs, remote memory, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpusim.api.serving import serve
from gpusim.base.errors import GpusimError
from gpusim.results.activities.rows import STEP
from gpusim.show.values.requests_in_time import requests_in_time
from gpusim.studies.serving.setup import ServiceSpec, prepare
from gpusim.studies.serving.tier_words import TierWord, tiers_of

TWO: dict[str, Any] = {
    "model": "llama-8b", "machine": "hgx-h100", "replicas": 2, "routing": "round_robin", "rate": 1.0,
    "requests": "drawn(prompt=8193, output=1, requests=2, spread=0, prefix=8192)",
}  # fmt: skip
"""Two replicas, each of which gets a prompt of the same 8,192 tokens of 131,072 bytes, a second apart."""
SIZE = 8192 * 131_072


def ways(tiers: str, machine: str = "hgx-h100", tensor: int = 1) -> Any:
    service = prepare(ServiceSpec(model="llama-8b", machine=machine, tiers=tiers, tensor=tensor))
    return service._tiers().chain(service.groups[0])


def test_words_and_back() -> None:
    text = "host(64 GiB, s3fifo(small=0.2), fp8) > nvme(1 TB, lru) > remote(4 TB, lfu, tcp, private, rate=50 GB/s)"
    found = tiers_of(text)
    assert found[0] == TierWord("host", 64 << 30, "s3fifo(small=0.2)", "fp8")
    assert found[2] == TierWord("remote", 4 * 10**12, "lfu", "", "tcp", "private", 50e9)
    assert tiers_of(" > ".join(tier.text() for tier in found)) == found
    assert tiers_of("remote(1 TB)") == [TierWord("remote", 10**12, "lru", "", "rdma", "shared")]


@pytest.mark.hand_worked
def test_the_ways_to_remote_memory() -> None:
    """One way is 1.83 us over InfiniBand and 13.2 us over TCP; a read is asked for first; TCP is staged in 14 us."""
    rdma, tcp = ways("remote(1 TB)")[0], ways("remote(1 TB, tcp)")[0]
    assert (rdma.into.latency, rdma.out_of.latency, rdma.into.rate) == (1830, 3660, 47.7)
    assert (tcp.into.latency, tcp.out_of.latency, tcp.into.rate) == (13_200 + 14_000, 26_400 + 14_000, 1.5)
    assert rdma.pool == "remote" and not ways("remote(1 TB, private)")[0].pool
    below = ways("host(100 GB) > remote(1 TB, rate=10 GB/s)")[1]
    host_to_card = ("socket0>switch0", "socket0=switch0", "switch0>nic0", "socket0")
    assert below.into.links == (*host_to_card, "nic0>network", "remote, write")
    assert below.out_of.links[-2:] == ("remote, read", "memory of gpu0") and below.out_of.rate == 10


@pytest.mark.hand_worked
@pytest.mark.parametrize(
    ("tiers", "took"),
    [
        ("remote(1 TB)", 3660 + SIZE / 47.7),
        ("remote(1 TB, rate=10 GB/s)", 3660 + SIZE / 10),
        ("remote(1 TB, tcp)", 26_400 + 14_000 + SIZE / 1.5),
        ("remote(1 TB, fp8)", 3660 + SIZE / 2 / 47.7),
        ("remote(1 TB, int4)", 3660 + SIZE * 4.5 / 16 / 47.7),
        ("remote(1 TB, codec(ratio=4, encode=20 GB/s, decode=40 GB/s))", 3660 + SIZE / 40),
    ],
)
def test_what_one_replica_has_stored_another_loads(tiers: str, took: float) -> None:
    """To 1 ns: the way there, and the bytes at the rate of the card, of the node, or of the codec."""
    served = serve(tiers=tiers, **TWO).served
    assert served.sent_for.tolist() == [0, 8192]
    assert served.admitted[1] - served.arrival[1] == pytest.approx(took, abs=1)


@pytest.mark.hand_worked
def test_what_is_handed_over_in_eight_bits_takes_half_the_copy() -> None:
    words = {**TWO, "prefill": 1, "routing": "least_busy", "requests": "drawn(prompt=4000, output=1, requests=1, spread=0)"}
    plain, half = (serve(handed=codec, **words).served.ttft_ns()[0] for codec in ("", "fp8"))
    service = prepare(ServiceSpec(model="llama-8b", machine="hgx-h100", replicas=2, prefill=1))
    rate = service._tiers().hand(*service.groups, "").rate
    assert plain - half == pytest.approx(4000 * 131_072 / rate / 2, abs=2)


def test_gpus_of_a_replica_divide_what_all_of_them_pass() -> None:
    """Two GPUs of HGX H100 are below one PCIe switch, whose way to the host has 55.2 GB/s."""
    assert ways("host(100 GB)")[0].into.rate > 50 and ways("host(100 GB)", tensor=8)[0].into.rate == pytest.approx(27.6)
    assert ways("remote(1 TB)", tensor=8)[0].into.rate == 47.7  # each has its own card


def test_what_is_encoded_takes_less_room() -> None:
    for codec, ratio in (("fp8", 2), ("int8", 16 / (8 + 16 / 128)), ("int4", 16 / 4.5), ("zstd(cores=8)", 1.563)):
        assert ways(f"host(100 GB, {codec})")[0].ratio == pytest.approx(ratio)
    nvme = ways("host(100 GB, fp8) > nvme(100 GB)")[1]
    assert nvme.ratio == 2 and nvme.into.wire == 0.5  # what is encoded stays so
    cpu = ways("host(100 GB, zstd(cores=8))")[0]
    assert cpu.into.wire == 1 and cpu.into.rate == pytest.approx(8 * 0.35) and cpu.out_of.rate == pytest.approx(8 * 1.253)


def test_collectives_over_pcie_and_copies_slow_each_other() -> None:
    """Four A10 over PCIe: all-reduces of prompts take 23 of 25 GB/s of the links that write-through uses as well."""
    chats = "chats(users=30, turns=2, prompt=4000, output=16, think=5, seconds=5)"
    words: dict[str, Any] = {"requests": chats, "tensor": 4, "tiers": "host(64 GiB)"}
    pcie, nvlink = (serve("llama-8b", machine, **words).metrics()["slowed_share"] for machine in ("4x-a10", "dgx-a100"))
    assert pcie > 0.002 > 10 * nvlink


@pytest.mark.slow
def test_a_timeline_shows_slowed_steps_to_their_ends() -> None:
    chats = "chats(users=30, turns=2, prompt=4000, output=16, think=5, seconds=5)"
    found = serve("llama-8b", "4x-a10", chats, tensor=4, tiers="host(64 GiB)", log=True)
    rows, _ = requests_in_time(found)
    steps = rows.rows[rows.rows["kind"] == STEP]
    assert int((steps["end"] - steps["start"]).sum()) == sum(engine.busy_ns for engine in found.served.engines)
    assert found.served.engines[0].slowed_ns > 0


@pytest.mark.slow
def test_a_scheduler_of_ones_own_waits_for_tiers_as_vllm_does(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from gpusim import policy\n\n@policy.schedule\ndef as_they_came(view):\n    return view.requests\n", encoding="utf-8"
    )
    words: dict[str, Any] = {
        "requests": "chats(users=200, turns=5, prompt=300, output=150, think=30, seconds=100)", "memory": 0.7,
        "tiers": "host(8 GiB) > nvme(100 GB)",
    }  # fmt: skip
    own = serve("llama-8b", "a100-pcie-40gb", engine="as_they_came", use=(str(mine),), **words)
    usual = serve("llama-8b", "a100-pcie-40gb", engine="vllm@0.33(async_scheduling=0)", **words)
    assert own.metrics() == usual.metrics() and own.metrics()["tier_share"] > 0.1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tiers": "remote(1 TB)", "machine": "l40s"}, "says nothing of a card for RDMA"),
        ({"tiers": "remote(1 TB, tcp)"}, "says nothing of TCP"),
        ({"tiers": "host(1 GB, rdma)"}, "'rdma' is said of remote memory, not of host"),
        ({"tiers": "remote(1 TB, rdma, tcp)"}, "are two of one kind"),
        ({"tiers": "host(1 GB, rate=3 GB/s)"}, "said of remote memory"),
        ({"tiers": "host(1 GB, size=3)"}, "a tier has no parameter 'size'"),
        ({"tiers": "host(1 GB, fp6)"}, "fp6"),
        ({"tiers": "host(0 GiB)"}, "no room for a chunk of 16 tokens (give it 2 MiB at least)"),
        ({"when": "sometimes"}, "not written 'sometimes'"),
        ({"tiers": "host(1 GB, fp8)", "cache": "fp8"}, "are no larger than in fp8"),
        ({"tiers": "host(1 GB, zstd)", "cache": "fp8"}, "was not measured"),
        ({"tiers": "host(1 GB, zstd(level=3))"}, "no parameter 'level'"),
        ({"tiers": "host(1 GB, codec(ratio=2))"}, "does not say its encode"),
        ({"tiers": "host(1 GB, fp8) > nvme(1 TB, int8)"}, "is in fp8 already"),
        ({"tiers": "host(1 GB) > nvme(1 TB, fp8)"}, "name it at host"),
        ({"tiers": "remote(1 TB, zstd)"}, "is not modelled"),
        ({"tiers": "host(1 GB)", "engine": "sglang@0.5"}, "HiCache"),
        ({"handed": "fp8"}, "no prompts are handed over"),
        ({"handed": "zstd", "prefill": 1, "machine": "hgx-h100"}, "works on the CPU"),
    ],
)
def test_what_cannot_be_a_tier_is_told(given: dict[str, Any], told: str) -> None:
    words = {"model": "llama-8b", "machine": "h100-sxm-80gb", "requests": "drawn(prompt=32, output=2, requests=3)"} | given
    with pytest.raises(GpusimError) as error:
        serve(**words)
    assert told in f"{error.value} {error.value.hint}"

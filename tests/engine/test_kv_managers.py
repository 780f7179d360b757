"""Engines' own managers of keys and values in host memory, at work in a service: by hand, and chunk by chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpusim.api.serving import serve as served_by
from gpusim.base.errors import GpusimError
from gpusim.engine.serving import tables as t
from gpusim.engine.serving.costs import linear_cost
from gpusim.engine.serving.run import Engine, ServiceRun
from gpusim.engine.serving.tiering import CopyWay, KvStore, KvTier, chunked, dense
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.managers import MANAGERS, manager_of
from gpusim.policies.schedule.parts.running import EngineLimits, request_table

pytestmark = pytest.mark.hand_worked

SMALL = EngineLimits(blocks=10, block_size=16, max_seqs=8, max_tokens=512, max_len=160)
VLLM = [name for name in MANAGERS if name.startswith("vllm")]


def prompts(*each: tuple[int, list[int]]) -> Any:
    """Requests of (arrival, identities of 32 tokens) and one token more, of which one is made."""
    start = np.cumsum([0, *(len(ids) for _, ids in each)])
    lengths = np.array([32 * len(ids) + 1 for _, ids in each])
    identity = [i for _, ids in each for i in ids]
    arrival = [at for at, _ in each]
    return dense(request_table(arrival, lengths, 1, known=lengths - 1, start=start, identity=identity, piece=32))


def serve(requests: Any, manager: str, room: int, rate: float = 0.5) -> ServiceRun:
    """A host of so many bytes, one a token, behind a link; steps of 100 ns."""
    way = CopyWay(10, rate, ("link",))
    store = KvStore(((KvTier("host", room, manager_of(manager), way, way),),), 1.0, rates={"link": rate})
    engine = Engine("e", get("schedule", "vllm@0.33").start(requests, SMALL), linear_cost(100.0))
    run = ServiceRun(requests, [engine], store=store)
    assert run.advance() == t.FINISHED
    return run


def counted(run: ServiceRun) -> list[int]:
    return [int(run.below.tier[0][name]) for name in ("stored", "loaded", "evicted", "declined")]


@pytest.mark.parametrize("manager", [f"{name}(chunk=32)" for name in MANAGERS])
def test_what_the_device_has_given_up_comes_back(manager: str) -> None:
    """As any host with room: 128 bytes at 0.5 bytes/ns behind a latency of 10 ns."""
    run = serve(prompts((0, [1, 2, 3, 4]), (10_000, [5, 6, 7, 8]), (20_000, [1, 2, 3, 4])), manager, 1000)
    assert run.result().admitted[2] == 20_000 + 10 + 256
    assert counted(run) == [8, 4, 0, 0]


@pytest.mark.parametrize("manager", VLLM)
def test_vllm_stores_all_that_is_new_of_a_request_or_nothing(manager: str) -> None:
    run = serve(prompts((0, [1, 2, 3, 4]), (10_000, [5, 6])), f"{manager}(chunk=32)", 3 * 32)
    assert counted(run) == [2, 0, 0, 4]


def test_lmcache_stores_what_it_has_room_for() -> None:
    """Three of four chunks; the fourth cannot displace those that are being written. Two more then displace the oldest two."""
    run = serve(prompts((0, [1, 2, 3, 4]), (10_000, [5, 6])), "lmcache_lru(chunk=32)", 3 * 32)
    assert counted(run) == [5, 0, 2, 1]


def test_vllm_keeps_heads_longer_than_tails_and_lmcache_does_not() -> None:
    """Room for six chunks: two of the first prompt leave, its last ones in vLLM, its first ones in LMCache."""
    requests = prompts((0, [1, 2, 3, 4]), (10_000, [5, 6, 7, 8]), (20_000, [1, 2, 3, 4]))
    for manager in VLLM:
        assert serve(requests, f"{manager}(chunk=32)", 6 * 32).result().sent_for.tolist() == [0, 0, 64]
    assert serve(requests, "lmcache_lru(chunk=32)", 6 * 32).result().sent_for.tolist() == [0, 0, 0]


def test_a_chunk_that_is_being_written_is_not_found() -> None:
    """The copy of the first prompt goes on until 100 + 10 + 12,800; the device has given it up before the third comes."""
    requests = prompts((0, [1, 2, 3, 4]), (1000, [5, 6, 7, 8]), (2000, [1, 2, 3, 4]))
    assert serve(requests, "vllm_lru@0.33(chunk=32)", 1000, rate=0.01).result().sent_for.tolist() == [0, 0, 0]


def test_chunks_of_other_sizes_are_made_of_known_pieces() -> None:
    requests = prompts((0, [1, 2, 3]), (0, [1, 2, 9]))
    small, large = chunked(requests, 16), chunked(requests, 64)
    assert np.diff(small.start).tolist() == [6, 6] and np.diff(large.start).tolist() == [1, 1]
    assert small.identity[:4].tolist() == small.identity[6:10].tolist() and small.identity[4] != small.identity[10]
    assert large.identity[0] == large.identity[1] and large.known.tolist() == [64, 64]
    with pytest.raises(GpusimError, match="pieces of 32 tokens, which chunks of 48 do not divide"):
        chunked(requests, 48)


@pytest.mark.slow
@pytest.mark.parametrize("manager", ["vllm_lru@0.33", "lmcache_lru", "vllm_lru@0.33(chunk=64)"])
def test_a_manager_in_words(manager: str) -> None:
    """With room for all, each finds what the project's own tier finds, but for the ends of prompts that fill no chunk."""
    words: dict[str, Any] = {"requests": "chats(users=200, turns=5, prompt=300, output=150, think=30, seconds=100)"}
    words |= {"model": "llama-8b", "machine": "a100-pcie-40gb", "memory": 0.7}
    own, theirs = (served_by(tiers=f"host(200 GiB, {policy})", **words).metrics() for policy in ("lru", manager))
    assert 0.7 * own["tier_share"] < theirs["tier_share"] < 1.02 * own["tier_share"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tiers": "host(4 GB, vllm_lru)"}, "there is no manager 'vllm_lru'"),
        ({"tiers": "host(4 GB, vllm_lru@0.11(threshold=2))"}, "has no parameter 'threshold'"),
        ({"tiers": "host(4 GB, lmcache_lru) > nvme(1 TB)"}, "has one memory of its own"),
        ({"tiers": "remote(4 GB, lmcache_lru)"}, "has one memory of its own"),
        ({"tiers": "host(4 GB, lmcache_lru)", "when": "write_back"}, "stores what is computed"),
        ({"tiers": "host(4 GB, lmcache_lru(chunk=100))"}, "do not divide"),
    ],
)
def test_what_a_manager_cannot_is_told(given: dict[str, Any], told: str) -> None:
    with pytest.raises(GpusimError) as error:
        served_by("llama-8b", "h100-sxm-80gb", "drawn(prompt=512, output=2, requests=3, prefix=256)", **given)
    assert told in f"{error.value} {error.value.hint}"

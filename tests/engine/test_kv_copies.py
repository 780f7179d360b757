"""Keys and values by hand: a pool that engines share, a codec on the way, and copies and steps that slow each other down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpusim.engine.serving import tables as t
from gpusim.engine.serving.costs import linear_cost
from gpusim.engine.serving.run import Engine, ServiceRun
from gpusim.engine.serving.tiering import CopyWay, KvStore, KvTier, dense
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.running import EngineLimits, request_table

pytestmark = pytest.mark.hand_worked

SMALL = EngineLimits(blocks=10, block_size=16, max_seqs=8, max_tokens=512, max_len=160)


def prompts(*each: tuple[int, list[int]], output: int = 1) -> Any:
    """Requests of (arrival, identities of 32 tokens) and one token more."""
    start = np.cumsum([0, *(len(ids) for _, ids in each)])
    lengths = np.array([32 * len(ids) + 1 for _, ids in each])
    return dense(request_table(
        [at for at, _ in each], lengths, output, known=lengths - 1, start=start, identity=[i for _, ids in each for i in ids],
        piece=32,
    ))  # fmt: skip


def serve(requests: Any, store: KvStore, *, engines: int = 1, need: float = 0.0, log: bool = False) -> ServiceRun:
    """Engines whose steps take 100 ns and need so much of memory, served in turn."""
    cost = linear_cost(100.0, need=need)
    made = [Engine(f"e{i}", get("schedule", "vllm@0.33").start(requests, SMALL), cost) for i in range(engines)]
    run = ServiceRun(requests, made, store=store, routing="round_robin", log=log)
    assert run.advance() == t.FINISHED
    return run


def remote(pool: str, read: int = 30, rate: float = 0.5) -> KvStore:
    """Two engines, each with a card of 1 byte/ns, before a node that reads and writes at `rate`."""
    chains = []
    for e in range(2):
        into = CopyWay(10, 1.0, (f"card {e}, out", "node, write"))
        out_of = CopyWay(read, 1.0, ("node, read", f"card {e}, in"))
        chains.append((KvTier(f"remote {e}" if not pool else "remote", 1000, get("evict", "lru"), into, out_of, pool=pool),))
    cards = {f"card {e}, {way}": 1.0 for e in range(2) for way in ("in", "out")}
    return KvStore(tuple(chains), 1.0, rates=cards | {"node, read": rate, "node, write": rate})


def test_what_one_engine_stores_in_a_pool_another_loads() -> None:
    """The second engine sends for 128 bytes at 10,000: 30 ns, and 256 at the node's rate; then computes one token."""
    requests = prompts((0, [1, 2, 3, 4]), (10_000, [1, 2, 3, 4]))
    run = serve(requests, remote("pool"), engines=2)
    served = run.result()
    assert served.engine.tolist() == [0, 1] and served.sent_for.tolist() == [0, 128]
    assert served.admitted[1] == 10_000 + 30 + 256 and served.first[1] == 10_386
    assert [tier.name for tier in run.tiers] == ["remote"] and run.below.tier[0]["stored"] == 4
    apart = serve(requests, remote(""), engines=2)
    assert apart.result().sent_for.tolist() == [0, 0] and len(apart.tiers) == 2


def test_what_is_written_to_all_tiers_can_be_loaded_from_the_last() -> None:
    """The prompt is in the host at 100 + 10 + 256, its four chunks follow at 10 + 32 ns each; another engine loads them.

    A tier below the host has none of them when they are written through, as the host had room.
    """
    requests = prompts((0, [1, 2, 3, 4]), (10_000, [1, 2, 3, 4]))
    link, card = CopyWay(10, 0.5, ("link",)), CopyWay(10, 1.0, ("card",))
    pool = KvTier("pool", 1000, get("evict", "lru"), card, card, pool="pool")
    hosts = [KvTier(f"host {e}", 1000, get("evict", "lru"), link, link) for e in range(2)]
    for when, found in (("write_all", 128), ("write_through", 0)):
        store = KvStore(tuple((host, pool) for host in hosts), 1.0, when, {"link": 0.5, "card": 1.0})
        run = serve(requests, store, engines=2)
        assert run.result().sent_for.tolist() == [0, found]
    run = serve(prompts((0, [1, 2, 3, 4])), KvStore(((hosts[0], pool),), 1.0, "write_all", {"link": 0.5, "card": 1.0}))
    assert run.now == 100 + 10 + 256 + 4 * (10 + 32)


def test_engines_share_the_rate_of_a_remote_node() -> None:
    """Both send for the prompt at once: each has half of the node's rate, 512 ns for 128 bytes; alone it would be 256."""
    requests = prompts((0, [1, 2, 3, 4]), (10_000, [5, 6, 7, 8]), (20_000, [5, 6, 7, 8]), (20_000, [1, 2, 3, 4]))
    served = serve(requests, remote("pool"), engines=2).result()
    assert served.engine.tolist() == [0, 1, 0, 1] and served.sent_for.tolist() == [0, 0, 128, 128]
    assert served.admitted[2:].tolist() == [20_000 + 30 + 512] * 2


def test_more_copies_than_a_byte_counts_hold_a_chunk() -> None:
    """300 engines read one prompt from the pool at the same time; when all have it, nothing is held."""
    requests = prompts((0, [1]), *[(10_000, [1])] * 300)
    tier = KvTier("pool", 1000, get("evict", "lru"), CopyWay(10, 1.0, ("a",)), CopyWay(10, 1.0, ("b",)), pool="pool")
    made = [Engine(str(i), get("schedule", "vllm@0.33").start(requests, SMALL), linear_cost(100.0)) for i in range(301)]
    run = ServiceRun(requests, made, store=KvStore(((tier,),) * 301, 1.0, rates={"a": 1.0, "b": 1.0}), routing="round_robin")
    run.advance(10_100)
    assert run.below.copies[0, 0] == 300 and run.below.held[0, 0] == 1
    run.advance()
    assert run.below.copies[0, 0] == 0 and run.below.held[0, 0] == 0 and run.result().finished.all()


def test_what_is_encoded_takes_fewer_bytes_and_the_codec_has_a_rate() -> None:
    """A codec makes half of them: 64 bytes cross a link of 0.5 bytes/ns, but it decodes no more than 0.25 of these."""
    into = CopyWay(10, 0.5, ("link",), wire=0.5)
    for decode, took in ((1.0, 128), (0.25, 256)):
        out_of = CopyWay(10, min(decode, 0.5), ("link", "decode"), wire=0.5)
        tier = KvTier("host", 4 * 32, get("evict", "lru"), into, out_of, ratio=2.0)
        requests = prompts((0, [1, 2, 3, 4]), (10_000, [5, 6, 7, 8]), (20_000, [1, 2, 3, 4]))
        run = serve(requests, KvStore(((tier,),), 1.0, rates={"link": 0.5, "decode": decode}))
        assert run.result().admitted[2] == 20_000 + 10 + took
        assert run.below.tier[0]["capacity"] == 8 and run.below.tier[0]["evicted"] == 0


def shared(memory: float, times: int = 1, link: float = 0.5) -> KvStore:
    """A host behind a link, whose copies pass the device's memory so often, and steps do once."""
    way = CopyWay(10, link, ("link", *["memory"] * times))
    tier = KvTier("host", 1000, get("evict", "lru"), way, way)
    return KvStore(((tier,),), 1.0, rates={"link": link, "memory": memory}, passed={(0, "memory"): (1, 0, 0, 0)})


def test_a_copy_slows_steps_that_need_the_memory() -> None:
    """Of 1 byte/ns a step needs 0.8 and the copy of the prompt takes 0.5 from 110 on, 256 ns long: steps go on at 0.5 / 0.8.

    The second step has 90 ns left at 110 and ends at 110 + 144; the third has done 70 at 366, and ends at 366 + 30.
    """
    run = serve(prompts((0, [1, 2, 3, 4]), output=5), shared(1.0), need=0.8)
    served = run.result()
    assert (served.first[0], served.last[0]) == (100, 396 + 200)
    assert served.engines[0].slowed_ns == 96 == served.engines[0].busy_ns - 500
    assert served.summary()["slowed_share"] == pytest.approx(96 / 596)


def test_a_log_says_which_steps_took_longer() -> None:
    """The second until 254 instead of 200, the third until 396 instead of 354."""
    run = serve(prompts((0, [1, 2, 3, 4]), output=5), shared(1.0), need=0.8, log=True)
    later = [(int(x["t"]), int(x["value"])) for x in run.records() if x["kind"] == t.LATER]
    assert later == [(254, 54), (396, 42)]


@pytest.mark.parametrize(("need", "memory"), [(0.4, 1.0), (0.5, 1.0), (0.8, 1.3), (0.0, 0.5)])
def test_steps_that_have_what_they_need_are_as_fast_as_without_copies(need: float, memory: float) -> None:
    served = serve(prompts((0, [1, 2, 3, 4]), output=5), shared(memory), need=need).result()
    assert served.last[0] == 500 and served.engines[0].slowed_ns == 0


def test_steps_slow_copies_down_too() -> None:
    """Of 0.8 bytes/ns step and copy want 0.8 and 0.5: each has 0.4. The copy of 128 bytes takes 320 ns from 110 on.

    Steps go on at half speed: 100-290, 290-(430: 70 done)-460, 560, 660.
    """
    run = serve(prompts((0, [1, 2, 3, 4]), output=5), shared(0.8), need=0.8)
    assert run.result().last[0] == 660
    assert run.below.way["busy"].sum() == 10 + 320


def test_a_copy_that_a_kernel_encodes_passes_the_memory_more_often() -> None:
    """It passes twice: three sharers of 0.9 bytes/ns. The step has 0.3 of the 0.8 that it needs, the copy 0.3: 427 ns.

    While it flows, from 110 to 537 (536.67), steps go on at 3 / 8: 100-350, 350-(537: 70 done)-567, 667, 767.
    """
    run = serve(prompts((0, [1, 2, 3, 4]), output=5), shared(0.9, times=2), need=0.8)
    assert run.result().last[0] == 767


def test_two_requests_that_never_meet_a_copy_are_not_touched() -> None:
    """A second engine's steps go on while copies of the first flow."""
    requests = prompts((0, [1, 2, 3, 4]), (0, [5, 6, 7, 8]), output=5)
    store = shared(1.0)
    store = KvStore((store.chains[0], ()), 1.0, rates=store.rates, passed=store.passed)
    served = serve(requests, store, engines=2, need=0.8).result()
    assert served.last.tolist() == [596, 500]

"""Prompts that another engine computes: steps of different length, the copy of keys and values, tiers beside it, to 1 ns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpusim.engine.serving.costs import linear_cost
from gpusim.engine.serving.run import Engine, ServiceRun
from gpusim.engine.serving.tiering import CopyWay, KvStore, KvTier, dense
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.running import EngineLimits, request_table

pytestmark = pytest.mark.hand_worked
LIMITS = EngineLimits(blocks=1000, block_size=16, max_seqs=8, max_tokens=512, max_len=1024)
FEW = EngineLimits(blocks=10, block_size=16, max_seqs=8, max_tokens=512, max_len=160)


def handed(requests: Any, ways: dict[tuple[int, int], CopyWay], *, prefill: int = 1, chains: Any = None, rates: Any = None,
           limits: EngineLimits = LIMITS, when: str = "write_through") -> ServiceRun:  # fmt: skip
    """Engines for prompts take 100 ns and 10 of each token, the others 300 and 30; 1 byte a token."""
    requests, count = dense(requests), 1 + max(k for _, k in ways)
    prompts = requests._replace(output=np.ones_like(requests.output))
    engines = [
        Engine(f"e{i}", get("schedule", "vllm@0.33").start(prompts if i < prefill else requests, limits),
               linear_cost(100.0, 10.0, 10.0) if i < prefill else linear_cost(300.0, 30.0, 30.0),
               role="prefill" if i < prefill else "decode")
        for i in range(count)
    ]  # fmt: skip
    store = KvStore(chains or ((),) * count, 1.0, when, rates or {"link": 0.5}, ways)
    run = ServiceRun(requests, engines, store=store)
    run.advance()
    return run


def prompts(*each: tuple[int, list[int]], output: int = 1) -> Any:
    """Requests of (arrival, identities of 32 tokens) and one token more."""
    start = np.cumsum([0, *(len(ids) for _, ids in each)])
    lengths = np.array([32 * len(ids) + 1 for _, ids in each])
    identity = [i for _, ids in each for i in ids]
    return request_table(
        [at for at, _ in each], lengths, output, known=lengths - 1, start=start, identity=identity, piece=32
    )


def test_each_engine_has_steps_of_its_own() -> None:
    """A prompt of 40 is computed by 500; 40 bytes at 0.5 bytes/ns behind 7 ns come by 587; tokens at 917 and 1,247."""
    served = handed(request_table([0], 40, 2), {(0, 1): CopyWay(7, 0.5, ("link",))}).result()
    assert (served.first[0], served.last[0]) == (500 + 7 + 80 + 330, 917 + 330)
    assert (served.handed[0], served.sent_for[0], served.waited[0]) == (40, 0, 87)
    assert [e.busy_ns for e in served.engines] == [500, 660]


def test_copies_of_two_pairs_share_the_network() -> None:
    """Both prompts are computed by 500 and flow from 500 on, through one link: each has half of it, 40 bytes in 160 ns."""
    ways = {(i, k): CopyWay(0, 0.5, ("link",)) for i in (0, 1) for k in (2, 3)}
    served = handed(request_table([0, 0], 40, 1), ways, prefill=2).result()
    assert served.first.tolist() == [500 + 160 + 330] * 2 and sorted(served.engine.tolist()) == [2, 3]


def test_copies_of_one_pair_follow_each_other() -> None:
    """Both prompts are one step of 100 + 800 ns; the second copy begins when the first has ended, and waits for its latency."""
    served = handed(request_table([0, 0], 40, 1), {(0, 1): CopyWay(10, 0.5, ("link",))}).result()
    assert served.waited.tolist() == [90, 180] and served.first[0] == 900 + 90 + 330


def test_tiers_keep_prompts_below_the_engine_that_computes_them() -> None:
    """Two prompts of four chunks and a token fill the device by turns, and both go to the host.  The third, the first again,
    comes from there, 10 ns and 128 bytes at 0.5; its last token is computed by 110, and 129 bytes go on, at 0.25."""
    chain = (KvTier("host", 1000, get("evict", "lru"), CopyWay(10, 0.5, ("host",)), CopyWay(10, 0.5, ("host",))),)
    requests = prompts((0, [1, 2, 3, 4]), (10_000, [5, 6, 7, 8]), (20_000, [1, 2, 3, 4]))
    run = handed(
        requests, {(0, 1): CopyWay(0, 0.25, ("net",))}, chains=(chain, ()), rates={"host": 0.5, "net": 0.25}, limits=FEW
    )
    served = run.result()
    assert served.sent_for.tolist() == [0, 0, 128] and served.handed.tolist() == [129, 129, 129]
    assert served.waited.tolist() == [516, 516, 266 + 516]
    assert served.first[2] == 20_000 + 266 + 110 + 516 + 330
    assert int(run.below.tier[0]["stored"]) == 8 and served.summary()["handed_share"] == 1.0


@pytest.mark.parametrize("when", ["write_through", "selective", "write_back"])
def test_an_engine_without_tiers_keeps_nothing_below(when: str) -> None:
    """Prompts with identities, and no tier: nothing is written anywhere."""
    requests = prompts((0, [1, 2, 3, 4]), (10_000, [5, 6, 7, 8]), (20_000, [1, 2, 3, 4]), output=10)
    run = handed(requests, {(0, 1): CopyWay(0, 0.25, ("link",))}, limits=FEW, when=when)
    assert run.below.tier["declined"].tolist() == [0] and run.below.uses.tolist() == [0]
    assert run.result().finished.all()

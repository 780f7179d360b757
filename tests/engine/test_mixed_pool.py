"""Routing by tokens owed, and SplitwiseSim's mixed pool: who computes what, and what keys and values take between engines."""

from __future__ import annotations

from typing import Any

import pytest

from gpusim.base.errors import GpusimError
from gpusim.engine.serving import tables as t
from gpusim.engine.serving.costs import linear_cost
from gpusim.engine.serving.pool import MIXED, PROMPTS, TOKENS, MixedPool
from gpusim.engine.serving.run import Engine, ServiceRun
from gpusim.engine.serving.tiering import CopyWay
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.running import EngineLimits, request_table
from gpusim.policies.schedule.parts.tables import FREE, NEVER

pytestmark = pytest.mark.hand_worked


def start(requests: Any, roles: str = "pd", blocks: tuple[int, ...] = (), **given: Any) -> ServiceRun:
    """Engines p (for prompts) and d; steps take 100 ns, and 10 a token; keys and values 7 ns, and 2 a token."""
    rooms = blocks or (1000,) * len(roles)
    limits = [EngineLimits(room, 1, 8, 300, 900) for room in rooms]
    engines = [
        Engine(f"{role}{i}", get("schedule", "splitwise").start(requests, limits[i]), linear_cost(100.0, 10.0, 10.0),
               role={"p": "prefill", "d": "decode"}[role])
        for i, role in enumerate(roles)
    ]  # fmt: skip
    pairs = [(a, b) for a in range(len(roles)) for b in range(len(roles)) if a != b]
    pool = MixedPool(20.0, {pair: CopyWay(7, 10.0, ()) for pair in pairs}, **({"long": 100, "retry": 1000} | given))
    return ServiceRun(requests, engines, routing="mixed_pool", pool=pool, log=True)


def kinds(run: ServiceRun) -> list[int]:
    return run.pool.member["kind"].tolist()


def test_the_engine_that_owes_the_fewest_tokens_takes_the_next() -> None:
    """Engine 0 owes 61 tokens, engine 1 11 and then 22: two short prompts are less than a long one."""
    requests = request_table([0, 10, 20, 30], [60, 10, 10, 10], 2)
    limits = EngineLimits(1000, 16, 8, 64, 1024)
    engines = [Engine(str(i), get("schedule", "vllm@0.33").start(requests, limits), linear_cost(100.0, 10.0)) for i in (0, 1)]
    run = ServiceRun(requests, engines, routing="least_tokens")
    run.advance()
    assert run.result().engine.tolist() == [0, 1, 1, 1]
    assert run.tables.engine["owes"].tolist() == [0, 0]


def test_a_prompt_is_handed_over_by_hand() -> None:
    """The prompt: 100 + 200 ns, its first token with it.  20 tokens on their way: 47 ns.  Two tokens: 110 ns each."""
    run = start(request_table([50], 20, 3))
    assert run.advance() == t.FINISHED
    found = run.result()
    assert (found.first[0], found.ended[0], found.made[0], found.engine[0]) == (350, 350 + 47 + 220, 3, 1)
    assert run.tables.outcome["prefilled"].tolist() == [0] and found.handed.tolist() == [20]
    assert kinds(run) == [PROMPTS, TOKENS] and run.pool.member["promised"].tolist() == [0, 0]
    assert run.tables.engine["owes"].tolist() == [0, 0] and run.tables.engine["under_way"].tolist() == [0, 0]
    records = [(int(x["t"]), int(x["kind"])) for x in run.records() if x["kind"] != t.STEP]
    assert records == [(50, t.ARRIVED), (50, t.ADMITTED), (350, t.FIRST_TOKEN), (350, t.SENT_FOR), (397, t.HAS_COME),
                       (617, t.ENDED)]  # fmt: skip


def test_prompts_on_their_way_do_not_hinder_each_other() -> None:
    """Requests 1 and 2 have their prompts in one step, which ends at 200 + 500; both keys and values take 57 ns."""
    run = start(request_table([0, 1, 2], [10, 25, 25], 2), long=10**6)
    run.advance()
    come = [(int(x["t"]), int(x["request"])) for x in run.records() if x["kind"] == t.HAS_COME]
    assert come == [(227, 0), (857, 1), (857, 2)]


def test_an_output_of_one_token_is_not_handed_over() -> None:
    run = start(request_table([0], 20, 1))
    run.advance()
    assert run.result().ended.tolist() == [300] and run.pool.member["promised"].tolist() == [0, 0]
    assert run.tables.engine["owes"].tolist() == [0, 0]


def test_an_engine_for_tokens_joins_the_mixed_ones_while_queues_are_long_and_goes_home() -> None:
    """Request 0 runs and 1 waits: for request 2 engine 0 would owe more than 100 tokens, so engine 1 computes it, alone."""
    run = start(request_table([0, 1, 2], [60, 30, 30], 2))
    run.advance(3)
    assert kinds(run) == [PROMPTS, MIXED]
    run.advance()
    found = run.result()
    assert found.engine.tolist() == [1, 1, 1] and run.tables.outcome["prefilled"].tolist() == [0, 0, -1]
    assert found.first.tolist() == [700, 1100, 402] and kinds(run) == [PROMPTS, TOKENS]


def test_an_engine_for_prompts_joins_the_mixed_ones_where_memory_is_promised_away() -> None:
    """52 + 52 tokens are more than the 100 of engine 1: the second request stays where its prompt is."""
    run = start(request_table([0, 1], [50, 50], 2), blocks=(1000, 100), long=10**6)
    run.advance(2)
    assert kinds(run) == [MIXED, TOKENS]
    run.advance()
    assert run.result().engine.tolist() == [1, 0] and kinds(run) == [PROMPTS, TOKENS]


def test_keys_and_values_without_room_try_again() -> None:
    """Engine 1 has room for 100 tokens, and holds 88 of request 0 from 683 on, until its 39 tokens of 110 ns are made at 4973.

    The prompt of request 1 is there at 1180, and needs room for 49: it tries again at 2180, 3180, 4180 and 5180, takes 103 ns
    and makes a token.
    """
    run = start(request_table([0, 600], 48, [40, 2]), blocks=(1000, 100))
    run.pool.member["room"][:] = 1000  # what is promised is not looked at
    run.advance()
    assert run.result().ended.tolist() == [4973, 5180 + 103 + 110]


def test_a_request_that_has_no_room_anywhere_is_refused() -> None:
    run = start(request_table([0, 1], [50, 500], 2), blocks=(100, 100))
    run.advance()
    assert run.result().refused.tolist() == [0, 4] and run.pool.member["promised"].tolist() == [0, 0]


@pytest.mark.parametrize("leaves", [100, 320, 400, 10_000])
def test_a_client_goes_away_at_any_time(leaves: int) -> None:
    """During the prompt (to 300), on the way (to 347), while tokens are made, or not at all: nothing is held in the end."""
    run = start(request_table([0, 5000], 20, [3, 3], leaves=[leaves, NEVER]))
    run.advance()
    assert run.result().finished.tolist() == [leaves == 10_000, True]
    assert run.pool.member["promised"].tolist() == [0, 0] and run.tables.engine["owes"].tolist() == [0, 0]
    assert run.tables.engine["under_way"].tolist() == [0, 0]
    assert [engine.scheduler.step.word[FREE] for engine in run.engines] == [1000, 1000]


def test_tokens_that_never_find_room_are_told() -> None:
    """Two prompts hold 92 of 100 tokens, and each needs 9 for its others."""
    run = start(request_table([0, 1, 2, 3], [5, 45, 45, 45], [1, 10, 10, 2]), blocks=(1000, 100), long=10**6)
    run.pool.member["room"][:] = 1000
    with pytest.raises(GpusimError, match="requests wait for ever"):
        run.advance()


def test_clients_that_wait_for_answers_that_never_come_are_told() -> None:
    """Three clients, all of whose requests are stuck; a fourth request would come when one has its answer."""
    requests = request_table([0] * 4, [45] * 4, [10] * 4)
    run = start(requests, blocks=(1000, 100), long=10**6)
    run.tables.course["at_once"] = 3
    run.pool.member["room"][:] = 1000
    with pytest.raises(GpusimError, match="requests wait for ever"):
        run.advance()


def test_a_request_that_the_engine_of_its_tokens_cannot_hold_is_refused_after_its_prompt() -> None:
    run = start(request_table([0, 0], [50, 10], [60, 3]), blocks=(1000, 100), long=10**6)
    run.pool.member["room"][:] = 1000
    run.advance()
    assert run.result().refused.tolist() == [4, 0] and run.result().finished.tolist() == [False, True]
    assert run.pool.member["promised"].tolist() == [0, 0] and run.tables.engine["owes"].tolist() == [0, 0]
    assert run.tables.engine["under_way"].tolist() == [0, 0]


def test_a_mixed_pool_is_named_and_given() -> None:
    run = start(request_table([0], 20, 3))
    with pytest.raises(GpusimError, match="a mixed pool is a routing and its ways"):
        ServiceRun(run.requests, run.engines, routing="mixed_pool")

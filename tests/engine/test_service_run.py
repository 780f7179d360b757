"""A service by hand: when steps begin and end, who waits, what copies from tiers take; and hit rates against exact counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import GpusimError, PolicyError
from gpusim.engine.serving import tables as t
from gpusim.engine.serving.costs import linear_cost
from gpusim.engine.serving.hit_rates import hit_rate
from gpusim.engine.serving.run import BlockSwap, Engine, ServiceRun
from gpusim.engine.serving.tiering import CopyWay, KvStore, KvTier, dense
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.running import EngineLimits, request_table
from gpusim.policies.schedule.parts.tables import NEVER
from gpusim.results.served import Objective, Served

SYNC = "vllm@0.33(async_scheduling=0)"
"""Steps that are composed when the one before is over."""
LIMITS = EngineLimits(blocks=1000, block_size=16, max_seqs=8, max_tokens=64, max_len=1024)


def serve(requests: Any, *, engines: int = 1, scheduler: str = SYNC, limits: EngineLimits = LIMITS, cost: Any = None,
          **given: Any) -> ServiceRun:  # fmt: skip
    made = [
        Engine(f"e{i}", get("schedule", scheduler).start(requests, limits), cost or linear_cost(100.0, 10.0, 1.0))
        for i in range(engines)
    ]
    run = ServiceRun(requests, made, **given)
    assert run.advance() == t.FINISHED
    return run


def columns(served: Served, *names: str) -> list[list[int]]:
    return [getattr(served, name).tolist() for name in names]


def test_one_request_by_hand() -> None:
    """A prompt of 40 tokens: 100 + 400 ns; then two steps of one token: 101 ns each."""
    served = serve(request_table([1000], 40, 3)).result()
    assert columns(served, "admitted", "first", "last", "ended", "made") == [[1000], [1500], [1702], [1702], [3]]
    assert served.ttft_ns()[0] == 500 and served.tpot_ns()[0] == 101 and served.latency_ns()[0] == 702
    account = served.engines[0]
    assert (account.steps, account.busy_ns, account.prompt_tokens, account.output_tokens) == (3, 702, 40, 3)


def test_a_request_that_comes_during_a_step_waits_for_its_end() -> None:
    """At 0 a prompt of 10 runs until 200; one that comes at 50 starts then, beside a token of the first: 100 + 1 + 200."""
    served = serve(request_table([0, 50], [10, 20], 2)).result()
    assert columns(served, "admitted", "first", "last") == [[0, 200], [200, 501], [501, 602]]
    assert served.queued_ns().tolist() == [0, 150]


def test_a_scheduler_that_works_ahead_is_a_step_early() -> None:
    """At 0 the prompt of 10 begins, and its next token's step is composed, which runs from 200 to 301; what comes at 50 is
    in the step that is composed at 200, and that takes 300 from 301 on."""
    served = serve(request_table([0, 50], [10, 20], 2), scheduler="vllm@0.33").result()
    assert columns(served, "admitted", "first", "last") == [[0, 200], [200, 601], [301, 702]]
    assert served.engines[0].busy_ns == 702 and served.engines[0].steps == 4


def test_an_end_that_is_not_foreseen_is_seen_a_step_late() -> None:
    """Its last token comes at 301, when a step for one more has been composed, from 301 to 402. Beside that nothing could be
    composed at 301, so the prompt that comes at 350 waits for its end."""
    requests = request_table([0, 350], [10, 20], [2, 1])
    served = serve(requests, scheduler="vllm@0.33(ignore_eos=0)").result()
    assert columns(served, "admitted", "first", "ended") == [[0, 402], [200, 702], [301, 702]]
    assert served.engines[0].steps == 5 and served.engines[0].output_tokens == 3  # each of both wastes one


def test_a_step_that_nothing_is_left_for_is_not_composed_again_before_the_one_under_way_is_over() -> None:
    """An output of one token ends with its prompt, so nothing can be composed beside it; what comes at 50 waits for 200."""
    served = serve(request_table([0, 50], [10, 20], 1), scheduler="vllm@0.33").result()
    assert columns(served, "admitted", "first") == [[0, 200], [200, 500]]


def test_a_prompt_is_cut_where_a_step_is_full() -> None:
    """100 tokens in steps of 64: 100 + 640, then 100 + 360."""
    served = serve(request_table([0], 100, 1)).result()
    assert columns(served, "first") == [[740 + 460]]


def test_arrivals_at_the_end_of_a_step_are_in_the_next() -> None:
    served = serve(request_table([0, 200], [10, 10], 1)).result()
    assert columns(served, "admitted") == [[0, 200]]


def test_a_client_that_goes_away_gets_no_more_tokens() -> None:
    """Its second token would have come at 702; it leaves at 650, during that step."""
    requests = request_table([0, 0], [20, 20], [5, 2], leaves=[650, NEVER])
    served = serve(requests).result()
    assert columns(served, "ended", "made") == [[650, 602], [2, 2]]
    assert served.finished.tolist() == [False, True]


def test_two_engines_take_the_requests_in_turn() -> None:
    served = serve(request_table([0, 0, 0, 0], 10, 1), engines=2, routing="round_robin").result()
    assert served.engine.tolist() == [0, 1, 0, 1]
    assert columns(served, "first") == [[300, 300, 300, 300]]


def test_the_least_busy_engine_takes_the_next() -> None:
    served = serve(request_table([0, 10, 20], [60, 10, 10], 1), engines=2).result()
    assert served.engine.tolist() == [0, 1, 0]


def test_clients_send_again_when_they_are_answered() -> None:
    served = serve(request_table([0, 0, 0], 10, 1), at_once=1).result()
    assert columns(served, "arrival", "first") == [[0, 200, 400], [200, 400, 600]]


def test_what_is_refused_is_counted_with_its_reason() -> None:
    served = serve(request_table([0, 0], [10, 5000], 1)).result()
    assert served.refused.tolist() == [0, 2] and served.summary()["rejected"] == 1
    assert "longest" in served.reasons[2]


def test_times_between_tokens_are_kept_to_a_percent() -> None:
    served = serve(request_table([0], 40, 50)).result()
    assert served.gaps.sum() == 49
    assert served.gap_quantile_ns(0.5) == pytest.approx(101, rel=0.01)


def test_objectives() -> None:
    served = serve(request_table([0, 50], [10, 20], 2)).result()  # ttft 200 and 451, tpot 301 and 101
    assert served.meets(Objective(300, 400)).tolist() == [True, False]
    assert served.meets(Objective(500, 200)).tolist() == [False, True]
    assert served.summary(Objective(300, 400))["attainment"] == 0.5


def test_samples_are_means_over_time() -> None:
    """The one request has three blocks (40 + 1 tokens) from 0 to 702."""
    served = serve(request_table([0], 40, 3)).result()
    assert served.samples["running"][0, 0] == pytest.approx(1.0)
    assert served.samples["blocks"][0, 0] == pytest.approx(3.0)
    assert served.samples["output_tokens"].sum() == 3


def test_a_log_says_what_happened() -> None:
    run = serve(request_table([0, 50], [10, 20], 2), log=True)
    kinds = [(int(x["t"]), int(x["kind"]), int(x["request"])) for x in run.records() if x["kind"] not in (t.STEP,)]
    assert kinds == [
        (0, t.ARRIVED, 0), (0, t.ADMITTED, 0), (50, t.ARRIVED, 1), (200, t.FIRST_TOKEN, 0), (200, t.ADMITTED, 1),
        (501, t.FIRST_TOKEN, 1), (501, t.ENDED, 0), (602, t.ENDED, 1),
    ]  # fmt: skip


# Tiers: chunks of 32 tokens, 1 byte a token.

SMALL = EngineLimits(blocks=10, block_size=16, max_seqs=8, max_tokens=512, max_len=160)


def store(capacity: int, latency: int = 10, rate: float = 0.5, *, policy: str = "lru", when: str = "write_through",
          below: int = 0) -> KvStore:  # fmt: skip
    way = CopyWay(latency, rate, ("link",))
    chain = [KvTier("host", capacity, get("evict", policy), way, way)]
    if below:
        into, out_of = CopyWay(0, 0.25, ("disk",)), CopyWay(0, 0.25, ("disk", "link"))
        chain.append(KvTier("nvme", below, get("evict", policy), into, out_of))
    return KvStore((tuple(chain),), 1.0, when, {"link": rate, "disk": 0.25})


def prompts(*each: tuple[int, list[int]], output: int = 1) -> Any:
    """Requests of (arrival, identities of 32 tokens) and one token more."""
    start = np.cumsum([0, *(len(ids) for _, ids in each)])
    lengths = np.array([32 * len(ids) + 1 for _, ids in each])
    return dense(request_table(
        [at for at, _ in each], lengths, output, known=lengths - 1, start=start, identity=[i for _, ids in each for i in ids],
        piece=32,
    ))  # fmt: skip


def test_what_the_device_has_given_up_comes_back_from_the_host() -> None:
    """Two prompts of four chunks fill the device by turns; the first is then loaded: 10 ns and 128 bytes at 0.5 bytes/ns."""
    requests = prompts((0, [1, 2, 3, 4]), (10_000, [5, 6, 7, 8]), (20_000, [1, 2, 3, 4]))
    run = serve(requests, limits=SMALL, store=store(1000))
    served = run.result()
    assert served.sent_for.tolist() == [0, 0, 128]
    assert served.admitted[2] == 20_000 + 10 + 256  # no step is under way
    assert served.first[2] == served.admitted[2] + 101  # the last token alone is computed
    assert [int(n) for n in run.below.tier[0][["stored", "loaded", "evicted"]].tolist()] == [8, 4, 0]


def test_a_host_that_is_full_keeps_heads_longer_than_tails() -> None:
    """Room for six chunks: of the first prompt the last two leave, and 64 tokens of it come back."""
    requests = prompts((0, [1, 2, 3, 4]), (10_000, [5, 6, 7, 8]), (20_000, [1, 2, 3, 4]))
    assert serve(requests, limits=SMALL, store=store(6 * 32)).result().sent_for.tolist() == [0, 0, 64]


def test_what_leaves_the_host_goes_to_the_disk() -> None:
    """The host keeps four chunks; the first prompt comes from the disk at its rate: 128 bytes at 0.25, no latency."""
    requests = prompts((0, [1, 2, 3, 4]), (10_000, [5, 6, 7, 8]), (20_000, [1, 2, 3, 4]))
    run = serve(requests, limits=SMALL, store=store(4 * 32, below=1000))
    served = run.result()
    assert served.sent_for.tolist() == [0, 0, 128]
    assert served.admitted[2] == 20_000 + 512
    assert run.below.tier[1]["stored"] == 8 and run.below.tier[1]["loaded"] == 4  # what came through the host pushed others out


def test_selective_keeps_what_was_computed_twice() -> None:
    requests = prompts((0, [1, 2]), (10_000, [3, 4, 5, 6]), (20_000, [1, 2]), (30_000, [3, 4, 5, 6]), (40_000, [1, 2]))
    small = EngineLimits(blocks=10, block_size=16, max_seqs=8, max_tokens=512, max_len=144)
    served = serve(requests, limits=small, store=store(1000, when="selective")).result()
    assert served.sent_for.tolist() == [0, 0, 0, 0, 64]


def test_write_back_stores_what_the_device_gives_up() -> None:
    requests = prompts((0, [1, 2, 3, 4]), (10_000, [5, 6, 7, 8]), (20_000, [1, 2, 3, 4]))
    run = serve(requests, limits=SMALL, store=store(1000, when="write_back"))
    assert run.result().sent_for.tolist() == [0, 0, 128]
    fewer = serve(prompts((0, [1, 2, 3, 4]), (10_000, [5, 6, 7, 8])), limits=SMALL, store=store(1000, when="write_back"))
    assert fewer.below.tier[0]["stored"] == 4  # the second prompt is on the device alone


def test_a_policy_that_reads_the_clock_cannot_keep_chunks() -> None:
    with pytest.raises(GpusimError, match="needs the timed engine"):
        serve(prompts((0, [1])), limits=SMALL, store=store(100, policy="cost_aware"))


@pytest.mark.parametrize(("capacity", "policy", "found"), [(3, "lru", 4), (3, "belady", 5), (100, "lru", 6)])
def test_hit_rates_by_hand(capacity: int, policy: str, found: int) -> None:
    """1 2 3, 4 5, 1 2 3, 1 2 3: without limit six of eleven are found; LRU with room for three keeps 1, then all three."""
    requests = prompts((0, [1, 2, 3]), (0, [4, 5]), (0, [1, 2, 3]), (0, [1, 2, 3]))
    rate = hit_rate(requests, capacity, get("evict", policy))
    assert (rate.chunks, rate.found) == (11, found)


def swapping(host: int, swap: BlockSwap | None) -> ServiceRun:
    """Two requests of 8 tokens that make 5 each, in 23 slots: when both have made 4, one of them has to go."""
    requests = request_table([0, 0], 8, 5)
    limits = EngineLimits(blocks=22, block_size=1, max_seqs=8, max_tokens=64, max_len=32)
    scheduler = get("schedule", f"vllm@0.9(preemption_mode=swap,num_cpu_blocks={host},watermark=0)").start(requests, limits)
    return ServiceRun(requests, [Engine("one", scheduler, linear_cost(100.0), swap)])


def test_swaps_are_part_of_the_step_that_they_come_before() -> None:
    """Prompts until 100; 3 steps of both, the last slots of 22; out with 11 blocks, 5 + 11 * 2, and the other's last token:
    until 100 + 300 + 127; in with them, 5 + 11 * 3, and a last token.
    """
    run = swapping(100, BlockSwap(5, 2.0, 3.0))
    run.advance()
    assert run.result().ended.tolist() == [527, 527 + 138]
    assert run.result().preemptions.tolist() == [0, 1]


def test_a_service_ends_where_the_real_engine_would() -> None:
    with pytest.raises(PolicyError, match="finds no room in the host's memory"):
        swapping(4, BlockSwap(5, 2.0, 3.0)).advance()
    with pytest.raises(GpusimError, match="how long the swaps of one take is not given"):
        swapping(100, None)


def test_dynamic_batching_is_woken_when_a_request_has_waited() -> None:
    """The first comes at 0 and waits 10 us for others; one comes at 4 us: both start at 10 us."""
    served = serve(
        request_table([0, 4000], 8, 1), scheduler="dynamic_batching(preferred_batch_size=4,max_queue_delay_us=10)",
        cost=linear_cost(100.0),
    ).result()  # fmt: skip
    assert columns(served, "admitted", "ended") == [[10_000, 10_000], [10_100, 10_100]]


def test_sglang_gives_a_request_up_that_has_no_room_alone_and_goes_on() -> None:
    """Of 20 pages one is kept for the next token: the first request, which makes more than there is room for, is cut before."""
    served = serve(
        request_table([0, 1], [8, 8], [30, 4]), scheduler="sglang@0.5", cost=linear_cost(100.0),
        limits=EngineLimits(blocks=20, block_size=1, max_seqs=8, max_tokens=64, max_len=100),
    ).result()  # fmt: skip
    assert served.made.tolist() == [10, 4]


def sglang(options: str, arrival: list[int], output: list[int]) -> Any:
    """Of an engine with steps of 100 ns, and prompts of 8 tokens."""
    return serve(
        request_table(arrival, 8, output), scheduler=f"sglang@0.5({options})", cost=linear_cost(100.0),
        limits=EngineLimits(blocks=400, block_size=1, max_seqs=8, max_tokens=64, max_len=100),
    ).result()  # fmt: skip


@pytest.mark.hand_worked
def test_sglang_composes_a_step_while_the_one_before_is_computed() -> None:
    """The second request comes at 50, when a step of the first has been composed for 100: its prompt is computed from 200 on,
    not from 100 on, then both make their last tokens."""
    ahead = sglang("", [0, 50], [3, 2])
    assert columns(ahead, "first", "ended") == [[100, 300], [400, 400]]
    alone = sglang("disable_overlap_schedule=1", [0, 50], [3, 2])
    assert columns(alone, "first", "ended") == [[100, 200], [400, 300]]


@pytest.mark.hand_worked
def test_sglang_wastes_a_row_on_an_output_that_a_token_ends() -> None:
    """By length the last step is not composed: prompt and one token more are two steps. Of 20 tokens asked for it is."""
    foreseen, unforeseen = sglang("", [0], [2]), sglang("max_new_tokens=20", [0], [2])
    assert [each.engines[0].steps for each in (foreseen, unforeseen)] == [2, 3]
    assert columns(unforeseen, "ended") == [[200]] and unforeseen.makespan_ns == 300

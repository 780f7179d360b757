"""Many models on few GPUs by hand: waits for loads, what leaves, where models go; and caches against plain models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import PolicyError
from gpusim.engine.serving.costs import linear_cost
from gpusim.engine.serving.many_models import DISK, HOST, HostedModel, ModelCluster, ModelServer, ModelsRun, anywhere, soonest
from gpusim.engine.serving.model_pool import ModelPool, next_uses
from gpusim.engine.serving.run import Engine, ServiceRun
from gpusim.machine.serving.loading import LoadTimes
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.running import EngineLimits, request_table
from gpusim.policies.schedule.parts.tables import NEVER, RequestTable

pytestmark = pytest.mark.fast
LIMITS = EngineLimits(blocks=1000, block_size=16, max_seqs=8, max_tokens=64, max_len=1024)
TIMES = LoadTimes(read=1000, loaded=1100, copied=300)
STEP = 10
"""ns of each step: a request of one token takes one."""


def engine(requests: RequestTable) -> ServiceRun:
    made = Engine("e", get("schedule", "vllm@0.33").start(requests, LIMITS), linear_cost(STEP))
    return ServiceRun(requests, [made])


def hosted(count: int, gpus: int = 1, size: int = 10) -> list[HostedModel]:
    return [HostedModel(f"m{i}", size, gpus, TIMES, engine) for i in range(count)]


def ran(
    arrivals: list[tuple[int, int]], models: list[HostedModel], *, gpus: tuple[int, ...] = (1,), pool: int = 100,
    evict: str = "lru", output: Any = 1, **given: Any,
) -> ModelsRun:  # fmt: skip
    """Requests (ns, model) of 20 tokens."""
    requests = request_table([time for time, _ in arrivals], 20, output)
    sizes = [m.size for m in models]
    servers = [
        ModelServer(n, ModelPool(pool, sizes, [float(m.times.loaded) for m in models], get("evict", evict))) for n in gpus
    ]
    wanted = np.array([m for _, m in arrivals], np.int64)
    return ModelCluster(servers, models, requests, wanted, **given).run()


@pytest.mark.hand_worked
def test_a_request_waits_for_its_model_and_the_next_finds_it() -> None:
    """Loaded at 1,100; the first is over at 1,110.  One that comes during the load is in the same step."""
    run = ran([(0, 0), (500, 0), (2000, 0)], hosted(1))
    assert run.first.tolist() == [1110, 1110, 2010] and run.cold.tolist() == [True, True, False]
    assert run.loads.tolist() == [[0, 0, DISK, 0, 1100]]
    assert run.stays.tolist() == [[1, 0, 2010]]


@pytest.mark.hand_worked
def test_an_idle_model_makes_room_at_once() -> None:
    """Model 0 is there from 1,100 on and idle from 1,110; then model 1, wanted at 500, is read."""
    run = ran([(0, 0), (500, 1)], hosted(2))
    assert run.loads.tolist() == [[0, 0, DISK, 0, 1100], [1, 0, DISK, 1110, 2210]]
    assert run.first.tolist() == [1110, 2220]


@pytest.mark.hand_worked
def test_what_was_loaded_before_comes_from_host_memory() -> None:
    """Model 0 again at 3,000: model 1 has left at once, and the copy takes 300."""
    run = ran([(0, 0), (500, 1), (3000, 0)], hosted(2))
    assert run.loads[2].tolist() == [0, 0, HOST, 3000, 3300] and run.first[2] == 3310


@pytest.mark.hand_worked
def test_a_busy_model_is_not_asked_to_leave() -> None:
    """Its 50 tokens take 500 ns: until 1,600."""
    run = ran([(0, 0), (500, 1)], hosted(2), output=[50, 1])
    assert run.loads[1].tolist() == [1, 0, DISK, 1600, 2700]


@pytest.mark.hand_worked
def test_models_wait_for_the_disk_in_order() -> None:
    """Two GPUs: both are wanted at 0, and the second is read from 1,000 to 2,000."""
    run = ran([(0, 0), (0, 1)], hosted(2), gpus=(2,))
    assert run.loads[:, 3:].tolist() == [[0, 1100], [0, 2100]]


@pytest.mark.hand_worked
def test_an_idle_model_leaves_when_it_has_been_kept_long_enough() -> None:
    """Idle from 1,110 on, kept for 500: a request at 1,610 still finds it, one at 2,200 does not."""
    run = ran([(0, 0), (1610, 0), (2200, 0)], hosted(1), keep=500)
    assert run.cold.tolist() == [True, False, True]
    assert run.stays.tolist() == [[1, 0, 2120], [1, 2200, 3010]]
    assert run.loads[1].tolist() == [0, 0, HOST, 2200, 2500]


@pytest.mark.hand_worked
def test_host_memory_of_one_model_keeps_the_last() -> None:
    run = ran([(0, 0), (500, 1), (3000, 0), (5000, 0)], hosted(2), pool=10)
    assert run.loads[:, 2].tolist() == [DISK, DISK, DISK] and run.evicted == 2


@pytest.mark.hand_worked
def test_a_read_waits_until_host_memory_may_be_freed() -> None:
    """Room for one model, two GPUs: model 0 may leave host memory when it is loaded, at 1,100."""
    run = ran([(0, 0), (0, 1)], hosted(2), gpus=(2,), pool=10)
    assert run.loads[1].tolist() == [1, 0, DISK, 0, 2200]


@pytest.mark.hand_worked
def test_a_model_on_two_gpus_takes_both() -> None:
    """Model 0 has one of two GPUs and is idle at 1,110; then the large one has both, and model 0 comes back behind it."""
    models = [*hosted(1), *hosted(1, gpus=2)]
    run = ran([(0, 0), (200, 1), (1500, 0)], models, gpus=(2,))
    assert run.loads.tolist() == [[0, 0, DISK, 0, 1100], [1, 0, DISK, 1110, 2210], [0, 0, HOST, 2220, 2520]]
    assert run.stays.tolist() == [[1, 0, 1110], [2, 1110, 2220], [1, 2220, 2530]]


@pytest.mark.hand_worked
def test_soonest_goes_where_the_model_lies() -> None:
    """Model 0 was on server 0, and model 1 on server 1, whose disk was free; each goes back to its own."""
    run = ran([(0, 0), (0, 1), (5000, 2), (5000, 3), (9000, 1), (9000, 0)], hosted(4), gpus=(1, 1), placement=soonest)
    assert run.loads[:, :3].tolist() == [[0, 0, DISK], [1, 1, DISK], [2, 0, DISK], [3, 1, DISK], [1, 1, HOST], [0, 0, HOST]]


def test_random_placement_reads_more() -> None:
    rng = np.random.default_rng(5)
    arrivals = [(int(t), int(m)) for t, m in zip(np.cumsum(rng.exponential(2000, 400)), rng.integers(0, 6, 400), strict=True)]
    read = {}
    for placement in (soonest, anywhere):
        run = ran(arrivals, hosted(6), gpus=(1, 1, 1), placement=placement)
        assert (run.ended < NEVER).all()
        read[placement] = int((run.loads[:, 2] == DISK).sum())
    assert read[soonest] < read[anywhere]


def test_engines_that_run_ahead_give_what_one_run_gives() -> None:
    """One model that never leaves is a service whose requests arrive no earlier than it is loaded."""
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.exponential(60, 300)).astype(int)
    output = rng.integers(1, 30, 300)
    run = ran([(int(t), 0) for t in times], hosted(1), output=output)
    alone = engine(request_table(np.maximum(times, int(times[0]) + 1100), 20, output))
    alone.advance()
    assert run.first.tolist() == alone.result().first.tolist() and run.ended.tolist() == alone.result().ended.tolist()


@pytest.mark.parametrize("evict", ["lru", "lfu", "fifo", "arc", "s3fifo", "sieve", "belady", "largest"])
def test_all_requests_are_served_under_any_policy(evict: str) -> None:
    rng = np.random.default_rng(3)
    arrivals = [(int(t), int(m)) for t, m in zip(np.cumsum(rng.exponential(900, 500)), rng.zipf(1.5, 500) % 8, strict=True)]
    models = [HostedModel(f"m{i}", 5 + i, 1, TIMES, engine) for i in range(8)]
    run = ran(arrivals, models, gpus=(2, 1), pool=30, evict=evict)
    assert (run.ended < NEVER).all() and (run.made == 1).all()
    taken = run.loads[:, 4] - run.loads[:, 3]
    assert (taken[run.loads[:, 2] == HOST] == TIMES.copied).all() and (taken[run.loads[:, 2] == DISK] >= TIMES.loaded).all()
    busy = sorted((t, n) for gpus, a, b in run.stays.tolist() for t, n in ((a, gpus), (b, -gpus)))
    assert max(np.cumsum([n for _, n in busy])) <= 3


def test_belady_reads_least_where_one_gpu_takes_models_in_turn() -> None:
    """Against a textbook count: a load of each request whose model is not the one before, host memory of three models."""
    rng = np.random.default_rng(7)
    wanted = rng.integers(0, 5, 200).tolist()
    arrivals = [(5000 * i, m) for i, m in enumerate(wanted)]
    reads = {}
    for evict in ("belady", "lru"):
        run = ran(arrivals, hosted(5), pool=30, evict=evict)
        reads[evict] = int((run.loads[:, 2] == DISK).sum())
    loads = [m for i, m in enumerate(wanted) if not i or wanted[i - 1] != m]
    lru: list[int] = []
    misses = 0
    for m in loads:
        misses += m not in lru
        lru = [*(x for x in lru if x != m), m][-3:]
    assert reads["lru"] == misses and reads["belady"] < misses


@pytest.mark.parametrize(("evict", "said"), [("none", "nothing leaves under it"), ("cost_aware", "needs the timed engine")])
def test_policies_that_cannot_manage_models(evict: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        ran([(0, 0)], hosted(1), evict=evict)


def test_next_requests_of_a_model() -> None:
    assert next_uses([0, 5, 9], [1, 0, 1], 2) == [9, np.inf, np.inf]

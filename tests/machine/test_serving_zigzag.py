"""FlexGen's plan: which tensors lie where, what it takes, and steps worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpusim.base.errors import GpusimError
from gpusim.machine import words
from gpusim.machine.serving import zigzag as z
from gpusim.machine.serving.zigzag_plan import BITS, ZigzagMachine, ZigzagModel, ZigzagPlan, placed, tensors
from gpusim.programs.zoo.served import served

H = 7168  # of OPT 30B
T4 = words.load("t4")
MACHINE = ZigzagMachine(T4, (15.2e9, 208e9, 1.5e12), 10.0, 8.0, 80.0)
PUBLISHED = ZigzagPlan(48, 3, (20, 80), (0, 100), (0, 100), on_cpu=True)


def model(name: str = "opt-30b", machine: ZigzagMachine = MACHINE) -> ZigzagModel:
    return ZigzagModel(served(name), machine)


def test_whole_tensors_go_where_their_middles_fall() -> None:
    """20/80: of attention's four matrices the last one's middle is at 87.5 %, above 80; those of the MLP are at 25 and 75 %."""
    _, attention, mlp, _ = tensors(served("opt-30b"))
    square = 2 * H * H
    on_gpu = [placed(part, (20, 80), False)[z.ON_GPU] for part in (attention, mlp)]
    assert on_gpu == [square + 2 * 3 * H, 2 * 3 * H]  # biases and norms behind the last matrix lie there, too
    assert placed(mlp, (20, 80), False)[z.ON_HOST] == 2 * 4 * square + 2 * 4 * H
    assert placed(attention, (10, 90), False)[z.ON_GPU] == pytest.approx(0, abs=2 * 3 * H)
    half = placed(attention, (0, 50), False)
    assert [half[place] // square for place in (z.ON_GPU, z.ON_HOST, z.ON_DISK)] == [0, 2, 2]
    assert placed(mlp, (0, 100), True)[z.ON_HOST] == 8 * H * H * BITS / 8 + 2 * 7 * H


def test_the_published_plan_fits_and_what_it_takes() -> None:
    """OPT 30B, 3 x 48 requests of 512 + 32: 107 GB of keys and values and 53 GB of weights on the host, and activations."""
    found = model()
    held = found.held(PUBLISHED, 512, 32)
    cached, hidden = 2 * 48 * H * 144 * 543 * 2, 2 * H * 144 * 512
    weights = 48 * (11 * 2 * H * H + 2 * 10 * H) + 2 * 2 * 50272 * H + 2 * 2 * H
    assert held[z.ON_HOST] == pytest.approx(weights + cached + hidden + 8 * H * 48 * 543, rel=1e-4)
    assert held[z.ON_DISK] == 0 and held[z.ON_GPU] < 15.2e9 and found.fits(PUBLISHED, 512, 32)
    assert not found.fits(replace(PUBLISHED, weights=(40, 60)), 512, 32)
    assert found.room_for(PUBLISHED, 512) == pytest.approx((208e9 - held[z.ON_HOST] + cached) / (2 * 48 * H * 2), rel=1e-3)


def by_hand(plan: ZigzagPlan, **numbers: float) -> z.F64:
    """The numbers of a plan of two layers of width 100 and 4 heads in which every product takes 1 us; all else is round."""
    found = np.zeros(z.GRID + z.KINDS * z.NODES)
    found[: z.BEGINS] = [
        2, plan.rows, 100, 4, plan.overlap, plan.pinned, plan.on_cpu, 1000, 100, 10, 5, 2, 1, 50,
        4.5 if plan.packed_cache else 16, plan.cache[0] / 100, plan.cache[1] / 100, 1 - sum(plan.cache) / 100,
        1 - plan.activations[0] / 100,
    ]  # fmt: skip
    for name, value in numbers.items():
        kind, place = name.split("_")
        at = 3 * ("embedding", "attention", "mlp", "head").index(kind) + ("gpu", "host", "disk").index(place)
        found[z.STORED + at] = value
    found[z.GRID :] = np.log(1000.0)
    return found


def step(numbers: z.F64, before: list[int], tokens: list[int]) -> tuple[float, list[float]]:
    into = np.zeros(6)
    ns = z.step_ns(numbers, np.array(before, np.int64), np.array(tokens, np.int64), len(tokens), into)
    return ns, into[:3].tolist()


def test_weights_come_beside_the_first_batch_by_hand() -> None:
    """Two batches.  Attention's 30 kB take 3 us at 10 bytes/ns, the MLP's 60 kB 6 us, head and embedding 20 kB each 2 us."""
    plan = ZigzagPlan(1, 2, (0, 100))
    numbers = by_hand(plan, attention_host=30e3, mlp_host=60e3, head_host=20e3, embedding_host=20e3)
    ns, parts = step(numbers, [0, 0], [1, 1])
    turned = 6 * 2 * 100 * 1 / 100  # of the one key that each token sees: 12 ns
    # embedding: 3 + 1; attention twice: 6 + 1; MLP: 3 + 1, and 2 + 1 before the head; head: 2 + 1
    assert ns == pytest.approx(4000 + 2 * 7000 + 2 * turned + 4000 + 3000 + 3000)
    assert parts[:2] == pytest.approx([12 * 1000 + 4 * turned, 0]) and sum(parts) == pytest.approx(ns)


def test_without_overlap_all_follow_each_other_by_hand() -> None:
    plan = ZigzagPlan(2, 1, (0, 100), overlap=False)
    numbers = by_hand(plan, attention_host=30e3, mlp_host=60e3)
    ns, _ = step(numbers, [0, 0], [1, 1])
    assert ns == pytest.approx(6 * 1000 + 2 * (3000 + 6000) + 2 * 6 * 2 * 100 * 2 / 100)


def test_weights_that_are_not_pinned_are_staged_by_hand() -> None:
    """30 kB are read and written at 50 bytes/ns, 1.2 us during which nothing is launched; from the disk nothing is staged."""
    plan = ZigzagPlan(2, 1, (0, 100), pinned=False)
    base = step(by_hand(plan), [0], [1])[0]
    assert step(by_hand(plan, attention_host=30e3), [0], [1])[0] == pytest.approx(base + 2 * (1200 + 3000 - 1000))
    on_disk = step(by_hand(plan, attention_disk=30e3), [0], [1])[0]  # 15 us at 2 bytes/ns
    assert on_disk == pytest.approx(base + 2 * (15_000 - 1000))


def test_attention_on_the_cpu_by_hand() -> None:
    """Three requests that see 1,000 tokens each: 9 times 1.2 MB at 50 bytes/ns; the GPU's products come before and after."""
    plan = ZigzagPlan(3, 1, (100, 0), (0, 100), on_cpu=True)
    ns, parts = step(by_hand(plan), [999] * 3, [1] * 3)
    cpu = 9 * 2 * 2 * 100 * 3000 / 50
    sent = 2 * 2 * 100 * 3 / 5  # new keys and values leave meanwhile
    assert parts == pytest.approx([6000, 2 * cpu, 0], abs=1e-6) and sent < cpu
    assert ns == pytest.approx(6000 + 2 * cpu)
    below = replace(plan, cache=(0, 0))  # on disk: read at 2 bytes/ns, which is slower than the CPU
    assert step(by_hand(below), [999] * 3, [1] * 3)[0] == pytest.approx(4 * 1000 + 2 * (2 * 2 * 100 * 3000 / 2))


def test_packed_keys_and_values_are_staged_sent_and_unpacked_by_hand() -> None:
    plan = ZigzagPlan(1, 1, (100, 0), (0, 100), packed_cache=True)
    ns, parts = step(by_hand(plan), [999], [1])
    kept = 2 * 100 * 1000
    size, gpu = kept * 4.5 / 8, 1000 + (15 + 6) * kept / 100 + 25 * 200 / 100
    assert parts[0] == pytest.approx(4000 + 2 * gpu)
    assert ns == pytest.approx(4000 + 2 * (2 * size / 50 + max(gpu, size / 10)))


def test_a_prompt_by_hand() -> None:
    """20 tokens of one request: 400 scores for each of 4 heads; activations of 4,000 bytes go to the host and come back."""
    plan = ZigzagPlan(1, 1, (100, 0), (100, 0), (0, 100))
    ns, parts = step(by_hand(plan), [0], [20])
    attention = 4 * 100 * 400 / 1000 + (12 * 4 * 400 + 12 * 100 * 20) / 100
    assert parts == pytest.approx([6 * 1000 + 2 * attention, 0, 0]) and ns == pytest.approx(sum(parts))
    slow = by_hand(plan)
    slow[z.DOWN] = 1.0  # 4 us
    assert step(slow, [0], [20])[0] == pytest.approx(1000 + 5 * 4000)  # all but the head's send them


def test_products_between_nodes_and_beyond() -> None:
    numbers = by_hand(ZigzagPlan(1, 1))
    at = z.GRID + z.MLP * z.NODES
    numbers[at : at + z.NODES] = np.log(10.0 * np.exp2(np.arange(z.NODES) / z.AN_OCTAVE))  # 10 ns a token
    for tokens in (1, 3, 100, 3_000_000):
        base = step(by_hand(ZigzagPlan(1, 1)), [0], [tokens])[0]
        assert step(numbers, [0], [tokens])[0] == pytest.approx(base + 2 * (10 * tokens - 1000), rel=1e-9)


def test_the_search_finds_what_flexgens_authors_chose() -> None:
    """bench_suite.py: OPT 30B, 3 x 48 requests, weights 20/80, cache 0/100, attention on the CPU."""
    found = model(machine=replace(MACHINE, room=(15.16e9, 208 * 2**30, 1.5e12), up=12.3, down=13.2, memory=90.9))
    chosen = found.fastest(ZigzagPlan(48, 3), 512, 32, on_cpu=True)
    assert (chosen.weights, chosen.cache) == (PUBLISHED.weights, PUBLISHED.cache)
    assert found.ns(chosen, 512, 32) <= found.ns(PUBLISHED, 512, 32) <= 1.01 * found.ns(chosen, 512, 32)
    with pytest.raises(GpusimError, match="no shares of memory hold 1440 requests of 512 \\+ 32 tokens of opt-30b"):
        model(machine=replace(MACHINE, room=(15e9, 208e9, 1e9))).fastest(ZigzagPlan(48, 30), 512, 32)


def test_a_small_space_is_searched_through() -> None:
    """OPT 6.7B in a GPU of 6 GB: the chosen plan is the fastest of all multiples of 10 % whose memory fits."""
    found = model("opt-6.7b", replace(MACHINE, room=(6e9, 30e9, 1e12)))
    plan = ZigzagPlan(8, 2)
    chosen = found.fastest(plan, 128, 16)
    shares = [(a, b) for a in range(0, 101, 10) for b in range(0, 101 - a, 10)]
    every = [
        replace(plan, weights=w, cache=c, activations=a) for w in shares[::5] for c in shares[::7] for a in ((100, 0), (0, 100))
    ]
    fits = [one for one in every if found.fits(one, 128, 16)]
    assert 10 < len(fits) < len(every) and found.fits(chosen, 128, 16)
    assert found.ns(chosen, 128, 16) <= min(found.ns(one, 128, 16) for one in fits)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"weights": (60, 50)}, "60 and 50 per cent of weights are no shares"), ({"activations": (50, 50)}, "all activations"),
        ({"cache": (50, 50), "packed_cache": True}, "in one place"), ({"cache": (100, 0), "on_cpu": True}, "not on the GPU"),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_is_told(words: dict[str, object], told: str) -> None:
    with pytest.raises(GpusimError, match=told):
        ZigzagPlan(1, 1, **words)  # type: ignore[arg-type]


def test_another_model_is_refused() -> None:
    with pytest.raises(GpusimError, match="modelled of OPT in 16 bits"):
        model("llama-8b")

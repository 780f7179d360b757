"""Caches of experts by hand: when copies begin and end, what waits, what stays; and hits against plain models of policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import GpusimError, PolicyError
from gpusim.engine.serving import experts as x
from gpusim.engine.serving.expert_guesses import Guesses, by_gate, by_history, recorded
from gpusim.engine.serving.expert_passes import Passes, passes_of
from gpusim.engine.serving.expert_run import ExpertCache, caches, turn_tables
from gpusim.policies import decorators as policy
from gpusim.policies.registry import get, of
from gpusim.programs.serving.routing import ExpertRouting, drawn

pytestmark = pytest.mark.fast
COPY = 100
NONE = np.zeros(0, np.int64)


def turns(*uses: tuple[int, dict[int, int]], experts: int = 4) -> Passes:
    """One pass of turns (layer, {expert: tokens})."""
    layers = np.array([layer for layer, _ in uses])
    unit = np.array([layer * experts + e for layer, chosen in uses for e in sorted(chosen)])
    m = np.array([chosen[e] for _, chosen in uses for e in sorted(chosen)])
    use = np.concatenate([[0], np.cumsum([len(chosen) for _, chosen in uses])])
    one, none = np.ones(1), np.zeros(len(uses), np.int64)
    return Passes(
        none[:1], one, one, one, one, np.array([0, len(uses)]), layers, none, use, unit, m, (), np.ones(1, np.int64),
        np.ones(1, np.bool_), 1,
    )  # fmt: skip


def ran(
    passes: Passes, *, slots: int = 4, evict: Any = "lru", gpu: int = 10, cpu: int = 0, before: float = 5.0, after: float = 0.0,
    guesses: Guesses | None = None, layers: int = 2, experts: int = 4, plain: int = 0, **more: Any,
) -> tuple[int, dict[str, int]]:  # fmt: skip
    """(ns, counts) where an expert takes `gpu` ns a token on the GPU and `cpu` on the CPU."""
    cache = ExpertCache(slots, get("evict", evict) if isinstance(evict, str) else evict, cpu=float(cpu > 0), **more)
    sizes = np.arange(int(passes.m.max()) + 1)
    made = turn_tables(
        passes, np.full(len(passes.layer), before), np.full(len(passes.part), after), (gpu * sizes, cpu * sizes), cache, COPY,
        (layers, experts), guesses,
    )  # fmt: skip
    made.turn["plain"][:-1] = plain
    ns = int(x.replay(caches(cache, passes, layers, experts, 7, COPY), made))
    return ns, dict(zip(x.NAMES, made.count.tolist(), strict=True))


def guess(*rows: tuple[int, int, int]) -> Guesses:
    return Guesses(*(np.array(column) for column in zip(*rows, strict=True)))


@pytest.mark.hand_worked
def test_experts_that_are_there_are_computed_one_after_the_other() -> None:
    """Gate at 5, then 10 ns and 20 ns; behind them 3."""
    ns, count = ran(turns((0, {0: 1, 1: 2})), slots=8, after=3.0)
    assert ns == 5 + 10 + 20 + 3
    assert (count["here"], count["copies"], count["gpu_ns"], count["link_wait_ns"]) == (2, 0, 38, 0)


@pytest.mark.hand_worked
def test_copies_go_on_while_the_gpu_computes() -> None:
    """Copies 5..105 and 105..205; computed 105..255 and 255..405.  One after the other: 5..105..255..355..505."""
    asked = turns((0, {0: 1, 1: 1}))
    assert ran(asked, gpu=150, start="empty")[0] == 405
    assert ran(asked, gpu=150, start="empty", overlap=False)[0] == 505


@pytest.mark.hand_worked
def test_what_has_no_room_takes_turns_in_two_buffers() -> None:
    """The third copy waits for the buffer of the first, which is computed until 255: 255..355; the GPU is free at 405."""
    ns, count = ran(turns((0, {0: 1, 1: 1, 2: 1})), slots=0, gpu=150, start="empty")
    assert ns == 405 + 150
    assert (count["no_room"], count["copies"], count["link_wait_ns"]) == (3, 3, 100)


@pytest.mark.hand_worked
def test_an_expert_of_the_layer_at_work_does_not_leave() -> None:
    """One slot a layer: the first stays, the second goes through a buffer; so it is the first that the next turn finds."""
    asked = turns((0, {0: 1, 1: 1}), (0, {0: 1}), (0, {1: 1}))
    ns, count = ran(asked, slots=1, apart=True, start="empty")
    assert (count["here"], count["absent"], count["no_room"]) == (1, 3, 1)
    assert ns == (5 + 200 + 10) + (5 + 10) + (5 + 100 + 10)


@pytest.mark.hand_worked
def test_a_right_guess_begins_a_layer_earlier() -> None:
    """Sent for at 5, there at 105; the second gate is at 5 + 10 + 5 = 20.  Without the guess: copied 20..120."""
    asked = turns((0, {0: 1}), (1, {0: 1}))
    start: dict[str, Any] = {"slots": 1, "apart": False}  # expert 0 of layer 0 is there
    assert ran(asked, **start)[0] == 130
    ns, count = ran(asked, **start | {"slots": 2, "guesses": guess((0, 4, 1))})  # 4: expert 0 of layer 1, which is there, too
    assert (ns, count["guessed"], count["here"]) == (30, 0, 2)
    ns, count = ran(turns((0, {0: 1}), (1, {1: 1})), **start | {"slots": 2, "guesses": guess((0, 5, 1))})
    assert (ns, count["guessed"], count["guessed_right"], count["late"]) == (115, 1, 1, 1)


@pytest.mark.hand_worked
def test_a_wrong_guess_holds_the_link() -> None:
    """It flows 5..105; what is needed at 20 follows 105..205.  The second guess has not begun at 20, and never does."""
    asked = turns((0, {0: 1}), (1, {2: 1}), (0, {0: 1}))
    ns, count = ran(asked, slots=3, guesses=guess((0, 5, 1), (0, 7, 1)))
    assert ns == 215 + 15
    assert (count["guessed"], count["guessed_right"], count["copies"]) == (1, 0, 1)


@pytest.mark.hand_worked
def test_a_guess_that_has_not_begun_is_fetched_like_any_other() -> None:
    """Two right guesses: 5..105 flows at the gate (20), the other is asked for then: 105..205."""
    ns, count = ran(turns((0, {0: 1}), (1, {2: 1, 3: 1})), slots=4, guesses=guess((0, 6, 1), (0, 7, 1)))
    assert (ns, count["late"], count["absent"], count["guessed"]) == (215, 1, 1, 1)


@pytest.mark.hand_worked
def test_what_is_guessed_and_there_is_not_evicted_for_another_guess() -> None:
    """One slot a layer, which has expert 0: both are guessed, 0 stays, and 1 goes through a buffer at 20..120."""
    ns, count = ran(turns((0, {0: 1}), (1, {0: 1, 1: 1})), slots=1, apart=True, guesses=guess((0, 5, 1), (0, 4, 1)))
    assert (ns, count["here"], count["guessed"], count["no_room"]) == (130, 2, 0, 2)


@pytest.mark.hand_worked
def test_needs_go_before_guesses() -> None:
    """At the first gate (5) a copy that is needed goes 5..105, the guess behind it 105..205; the second gate is at 120."""
    ns, _ = ran(turns((0, {3: 1}), (1, {3: 1})), slots=4, guesses=guess((0, 7, 1)))
    assert ns == 215


@pytest.mark.hand_worked
def test_the_cpu_computes_where_it_is_faster() -> None:
    """One token: 30 ns there, 100 + 10 here.  Four: 120 ns there, 100 + 40 here; five 150 each way, which is no less."""
    assert ran(turns((0, {0: 1})), cpu=30, start="empty")[0] == 35
    ns, count = ran(turns((0, {0: 4, 1: 5})), cpu=30, start="empty")
    assert (ns, count["on_cpu"], count["copies"], count["cpu_wait_ns"]) == (155, 1, 1, 0)
    ns, count = ran(turns((0, {0: 1, 1: 1})), cpu=30, slots=1)  # one is here: 5..15; the other 5..35
    assert (ns, count["cpu_wait_ns"], count["cpu_ns"]) == (35, 20, 30)


@pytest.mark.hand_worked
def test_plain_weights_that_are_streamed_come_before_the_work() -> None:
    """0..40 plain, gate at 45, expert 45..145; plain 155..195."""
    ns, count = ran(turns((0, {0: 1}), (1, {0: 1})), slots=0, plain=40)
    assert ns == (40 + 5 + 100 + 10) + (40 + 5 + 100 + 10)
    assert (count["link_ns"], count["link_wait_ns"]) == (280, 280)


def plain_misses(uses: Sequence[int], slots: int, rule: str) -> int:
    """Of one cache, one use after the other, by the textbook."""
    held: list[int] = []
    misses = 0
    for i, unit in enumerate(uses):
        if unit in held:
            held.remove(unit)
        else:
            misses += 1
            if len(held) == slots:
                ahead = list(uses[i + 1 :])
                far = {u: ahead.index(u) if u in ahead else len(uses) for u in held}
                held.remove(held[0] if rule == "lru" else max(held, key=lambda u: (far[u], -held.index(u))))
        held.append(unit)
    return misses


@pytest.mark.oracle
@pytest.mark.parametrize("rule", ["lru", "belady"])
@pytest.mark.parametrize("apart", [False, True])
def test_misses_are_those_of_the_textbook(rule: str, apart: bool) -> None:
    rng = np.random.default_rng(1)
    asked = turns(*((int(layer), {int(rng.integers(0, 6)): 1}) for layer in np.arange(600) % 2), experts=6)
    for slots in (1, 2, 3, 5):
        _, count = ran(asked, slots=slots, evict=rule, apart=apart, start="empty", experts=6)
        parts = [[u for u in asked.unit if u // 6 == layer] for layer in (0, 1)] if apart else [list(asked.unit)]
        assert count["absent"] == sum(plain_misses(part, slots, rule) for part in parts)


def test_policies_of_ones_own_decide_and_what_reads_the_time_is_refused() -> None:
    @policy.evict
    def oldest_number(last_use, uses):  # type: ignore[no-untyped-def]
        """The one used least."""
        return uses + 0.0 * last_use

    asked = turns(*((0, {e: 1}) for e in (0, 0, 1, 2, 0)))
    own = of(oldest_number).get("evict", "oldest_number")
    assert ran(asked, slots=2, evict=own, start="empty")[1]["absent"] == 3  # 1 leaves for 2, as 0 was used twice
    assert ran(asked, slots=2, evict="lru", start="empty")[1]["absent"] == 4
    with pytest.raises(PolicyError, match="needs the timed engine"):
        ran(asked, evict="cost_aware")


def test_none_keeps_what_was_there() -> None:
    asked = turns(*((0, {e: 1}) for e in (3, 0, 3, 0)))
    assert ran(asked, slots=2, evict="none", apart=True)[1]["absent"] == 2  # 0 and 1 are there
    assert ran(asked, slots=2, evict="none", apart=True, start="popular")[1]["absent"] == 0


def routing(choices: Any, sequence: Any, decoded: Any, guesses: Any = None, experts: int = 4) -> ExpertRouting:
    return ExpertRouting(
        experts, (np.array(choices, np.int16),), (np.array(sequence, np.int32),), (np.array(decoded, np.bool_),),
        None if guesses is None else np.array(guesses, np.int16), "by hand", True,
    )  # fmt: skip


def test_passes_of_a_batch() -> None:
    """Two sequences, prompts of two and one token, then one and two tokens; two layers, one expert of four for a token."""
    choices = [[[0], [1]], [[0], [2]], [[3], [3]], [[1], [1]], [[1], [1]], [[2], [0]]]
    made = passes_of(routing(choices, [0, 0, 0, 1, 1, 1], [0, 0, 1, 0, 1, 1]), 2)
    assert made.requests.tolist() == [2, 2, 1] and made.tokens.tolist() == [1.5, 1, 1]
    assert made.context.tolist() == [1.5, 2.5, 3.5] and made.made.tolist() == [2, 2, 1]
    assert made.layer.tolist() == [0, 1] * 3 and made.first.tolist() == [0, 2, 4, 6]
    assert made.unit.tolist() == [0, 1, 5, 6, 1, 3, 5, 7, 2, 4]
    assert made.m.tolist() == [2, 1, 2, 1, 1, 1, 1, 1, 1, 1]
    assert made.use.tolist() == [0, 2, 4, 6, 8, 9, 10] and made.kept == 6
    every = passes_of(routing([[[0]], [[1]]], [0, 0], [0, 1]), 1, every=True)
    assert every.m.tolist() == [1, 0, 0, 0, 0, 1, 0, 0] and every.use.tolist() == [0, 4, 8]


def test_guesses_of_gates() -> None:
    made = passes_of(drawn("drawn(sequences=3, prompt=4, output=50)", (6,), 8, 2), 1)
    exact = by_gate(made, 8, 1.0)
    later = np.repeat(np.arange(len(made.layer)), np.diff(made.use))
    inside = made.layer[later] > 0  # the first layer of a pass has none before it
    assert np.array_equal(exact.unit, made.unit[inside]) and np.array_equal(exact.wanted, later[inside])
    assert np.array_equal(exact.turn, exact.wanted - 1)
    right = np.isin(np.stack([(g := by_gate(made, 8, 0.7)).wanted, g.unit]).T @ [100, 1], later * 100 + made.unit)
    assert 0.7 < right.mean() < 0.8  # a wrong guess may be another one that the layer uses


def test_recorded_guesses_are_the_gates() -> None:
    given = routing([[[0], [1], [2]], [[0], [1], [3]]], [0, 0], [0, 1], guesses=[[[1], [3]], [[1], [3]]])
    made = recorded(passes_of(given, 1), given)
    assert made.turn.tolist() == [0, 1, 3, 4] and made.wanted.tolist() == [1, 2, 4, 5] and made.unit.tolist() == [5, 11, 5, 11]
    with pytest.raises(GpusimError, match="no guesses"):
        recorded(passes_of(given, 1), drawn("drawn()", (3,), 4, 1))


def test_history_guesses_what_the_similar_sequence_used() -> None:
    """Sequences 0 and 1 use other experts; 2 begins as 1 did, and is thought to go on like it."""
    rows = [[[0], [0]], [[0], [0]], [[1], [2]], [[1], [2]], [[1], [3]], [[1], [3]]]
    given = routing(rows, [0, 0, 1, 1, 2, 2], [0, 1] * 3)
    made = by_history(passes_of(given, 1), given, 2)
    found = dict(zip(made.turn.tolist(), made.unit.tolist(), strict=True))
    assert found == {6: 4, 10: 6}  # in 1's second pass 0 is all that is known; in 2's, layer 1 like sequence 1

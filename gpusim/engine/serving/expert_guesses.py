"""Experts that are sent for before their layer's gate has chosen them.

    gate     this layer's gate work is followed by the next one's, on what is known by then: right so often, or as recorded
    exact    the same, always right: a model trained so that a layer's gate chooses for the next (Pre-gated MoE)
    history  the experts that the most similar sequence before had used most, by counts of uses per layer and expert

Sources: Eliseev and Mazur, arXiv:2312.17238 (gate); Hwang et al., Pre-gated MoE, arXiv:2308.12066; Xue et al., MoE-Infinity,
arXiv:2401.14361, and moe_infinity/memory/expert_predictor.py @000f22a (Apache-2.0), in own words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError
from gpusim.engine.serving.expert_passes import Passes
from gpusim.programs.serving.routing import ExpertRouting

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Guesses:
    """(G,) guesses in order: at whose gate each is made, the unit, and the turn that it is for."""

    turn: I64
    unit: I64
    wanted: I64


def no_guesses() -> Guesses:
    """None at all."""
    none = np.zeros(0, np.int64)
    return Guesses(none, none, none)


def _sorted(turn: I64, unit: I64, wanted: I64) -> Guesses:
    order = np.argsort(turn, kind="stable")
    return Guesses(turn[order], unit[order], wanted[order])


def by_gate(passes: Passes, experts: int, hit: float, ahead: int = 1, seed: int = 0) -> Guesses:
    """`ahead` layers ahead each expert that will be used is guessed with probability `hit`, else another one of its layer."""
    turn = np.repeat(np.arange(len(passes.layer)), np.diff(passes.use))
    made = turn - ahead
    same = (made >= 0) & (passes.of_pass[np.maximum(made, 0)] == passes.of_pass[turn])
    rng = np.random.default_rng([seed, 2])
    number = passes.unit % experts
    wrong = rng.random(len(turn)) >= hit
    moved = np.where(wrong, (number + rng.integers(1, max(experts, 2), len(turn))) % experts, number)
    return _sorted(made[same], (passes.unit - number + moved)[same], turn[same])


def recorded(passes: Passes, routing: ExpertRouting) -> Guesses:
    """What the recorder's gates guessed one layer ahead, of all tokens of the pass.  GpusimError where it has no guesses."""
    if routing.guesses is None:
        raise GpusimError(
            f"the routing '{routing.source}' has no guesses of gates", hint="say how often they are right: gate(hit=0.8)"
        )
    layers = np.arange(1, 1 + routing.guesses.shape[1])
    wanted = passes.row_turn[-1][:, None, None] + layers[None, :, None] + np.zeros_like(routing.guesses, np.int64)
    first = passes.layer[passes.row_turn[-1]]
    unit = (first[:, None, None] + layers[None, :, None]) * routing.experts + routing.guesses
    pairs = np.unique(np.stack([wanted.ravel(), unit.ravel()]), axis=1)
    return Guesses(pairs[0] - 1, pairs[1], pairs[0])


def by_history(passes: Passes, routing: ExpertRouting, layers: int, ahead: int = 2, known: int = 100) -> Guesses:
    """At each gate experts of the next `ahead` layers: those that the most similar of the last `known` sequences has used most.

    As many are guessed of a layer as it uses in this pass.  Sequences of a pass add up; similar is the mean over layers of the
    cosine between counts of uses so far.  The first sequences, and a pass before which nothing was seen, have no guesses.
    """
    made: list[Guesses] = []
    library = np.zeros((0, layers, routing.experts))
    at_work: dict[int, F64] = {}
    rows = [_rows_of_passes(passes, p) for p in range(len(routing.choices))]
    for number, part in enumerate(passes.part):
        mine = rows[part](number)
        sequences = np.unique(routing.sequence[part][mine])
        if passes.new_batch[number]:
            library = np.concatenate([library, *(one[None] for one in at_work.values())])[-known:]
            at_work = {int(s): np.zeros((layers, routing.experts)) for s in sequences}
        seen = [at_work.setdefault(int(s), np.zeros((layers, routing.experts))) for s in sequences]
        likely = _likely(library, seen)
        if likely is not None:
            made.append(_ahead(passes, number, likely, ahead))
        first = passes.layer[passes.first[number]]
        for row in mine:
            chosen = routing.choices[part][row]
            at_work[int(routing.sequence[part][row])][first + np.arange(len(chosen))[:, None], chosen] += 1
    if not made:
        return no_guesses()
    return _sorted(*(np.concatenate([getattr(one, name) for one in made]) for name in ("turn", "unit", "wanted")))


def _rows_of_passes(passes: Passes, part: int) -> Callable[[int], I64]:
    number = passes.of_pass[passes.row_turn[part]]
    order = np.argsort(number, kind="stable")
    return lambda p: order[slice(*np.searchsorted(number[order], [p, p + 1]))]


def _likely(library: F64, seen: list[F64]) -> F64 | None:
    """(layers, experts): counts of the most similar of the library, summed over those seen; None where nothing is known."""
    if not len(library) or not any(one.any() for one in seen):
        return None
    length = np.linalg.norm(library, axis=2) + 1e-12
    found = np.zeros(library.shape[1:])
    for one in seen:
        cosine = (library * one).sum(axis=2) / length / (np.linalg.norm(one, axis=1) + 1e-12)
        found += library[int(cosine.mean(axis=1).argmax())]
    return found


def _ahead(passes: Passes, number: int, likely: F64, ahead: int) -> Guesses:
    experts, rows = likely.shape[1], []
    first, end = passes.first[number], passes.first[number + 1]
    for turn in range(first, end - 1):
        # what the gate before has asked for already is not asked for again
        for wanted in range(turn + 1 if turn == first else min(turn + ahead, end), min(turn + ahead, end - 1) + 1):
            row = likely[passes.layer[wanted]]
            best = np.argsort(-row, kind="stable")[: passes.use[wanted + 1] - passes.use[wanted]]
            rows += [(turn, passes.layer[wanted] * experts + e, wanted) for e in best if row[e] > 0]
    made = np.array(rows, np.int64).reshape(-1, 3)
    return Guesses(made[:, 0], made[:, 1], made[:, 2])

"""What a routing makes a model do: passes through its layers, and the experts that each layer uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.programs.serving.routing import ExpertRouting

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Passes:
    """What a routing makes a model do, `batch` sequences at a time: (P,) passes, (T,) turns and (U,) uses of experts.

    part      which stack each pass goes through; requests, tokens (of each), context, prompt: as `ExpertTimes.plain` has them
    first     of each pass its first turn, one more for the end
    layer     of each turn, among all layers with experts; of_pass: its pass
    use       of each turn its first use, one more for the end
    unit, m   of each use the expert, layer * experts + its number, and its tokens
    row_turn  per part (n,) of which turn a token's first layer is
    made      tokens that each pass gives its sequences; new_batch: whether it is the first of other sequences
    kept      tokens of the batch with most of them
    """

    part: I64
    requests: F64
    tokens: F64
    context: F64
    prompt: F64
    first: I64
    layer: I64
    of_pass: I64
    use: I64
    unit: I64
    m: I64
    row_turn: tuple[I64, ...]
    made: I64
    new_batch: npt.NDArray[np.bool_]
    kept: int


def passes_of(routing: ExpertRouting, batch: int, every: bool = False) -> Passes:
    """Sequences run `batch` at a time: a pass with all prompts, then one for each token until the longest is done.

    every  a layer uses all of its experts, also those that no token chose
    """
    parts, last = len(routing.choices), len(routing.choices) - 1
    group = [of // batch for of in routing.sequence]
    steps = [_steps(of, after) for of, after in zip(routing.sequence, routing.decoded, strict=True)]
    columns: dict[str, list[float]] = {name: [] for name in ("part", "requests", "tokens", "context", "prompt", "made", "new")}
    number = [np.zeros(len(of), np.int64) for of in routing.sequence]
    kept = 0
    for g in range(1 + int(group[last].max())):
        mine = [np.flatnonzero(of == g) for of in group]
        prompts = sum(int((~routing.decoded[p][mine[p]]).sum()) for p in range(parts))
        prompt = prompts / len(np.unique(routing.sequence[last][mine[last]]))
        kept = max(kept, prompts + int(routing.decoded[last][mine[last]].sum()))
        new = True
        for p in range(parts):
            for step, rows in _by_step(mine[p], steps[p]):
                number[p][rows] = len(columns["part"])
                requests = len(np.unique(routing.sequence[p][rows]))
                tokens = len(rows) / requests
                seen = tokens if step < 0 else (prompt if parts == 1 else 0.0) + step + 1
                gives = requests if step >= 0 or parts == 1 else 0
                for name, value in zip(columns, (p, requests, tokens, seen, prompt, gives, new), strict=True):
                    columns[name].append(value)
                new = False
    part = np.array(columns["part"], np.int64)
    layers = np.array([c.shape[1] for c in routing.choices])
    first = np.concatenate([[0], np.cumsum(layers[part])])
    offset = np.concatenate([[0], np.cumsum(layers)])[part]
    of_pass = np.repeat(np.arange(len(part)), layers[part])
    layer = np.arange(first[-1]) - first[of_pass] + offset[of_pass]
    keys = []
    for p, choices in enumerate(routing.choices):
        turn = first[number[p]][:, None, None] + np.arange(choices.shape[1])[None, :, None]
        keys.append((turn * routing.experts + choices).ravel())
    used, m = np.unique(np.concatenate(keys), return_counts=True)
    if every:
        m = np.bincount(used, m, minlength=first[-1] * routing.experts).astype(np.int64)
        used = np.arange(first[-1] * routing.experts)
    turns = used // routing.experts
    numbers = {name: np.array(columns[name], np.float64) for name in ("requests", "tokens", "context", "prompt")}
    return Passes(
        part, **numbers, first=first, layer=layer, of_pass=of_pass, use=np.searchsorted(turns, np.arange(first[-1] + 1)),
        unit=layer[turns] * routing.experts + used % routing.experts, m=m, row_turn=tuple(first[of] for of in number),
        made=np.array(columns["made"], np.int64), new_batch=np.array(columns["new"], np.bool_), kept=kept,
    )  # fmt: skip


def _by_step(rows: I64, steps: I64) -> Iterator[tuple[int, I64]]:
    """Rows of equal step, in the order of steps."""
    order = rows[np.argsort(steps[rows], kind="stable")]
    known, first = np.unique(steps[order], return_index=True)
    return zip(known.tolist(), np.split(order, first[1:]), strict=True)


def _steps(sequence: Any, decoded: Any) -> I64:
    """(n,) how many tokens of the same sequence were decoded before each, -1 of a prompt's."""
    count = np.cumsum(decoded)
    before = np.concatenate([[0], count])[np.searchsorted(sequence, sequence)]
    return np.asarray(np.where(decoded, count - before - 1, -1), np.int64)

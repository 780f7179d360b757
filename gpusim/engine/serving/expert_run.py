"""From a routing, a model's times and a cache to the tables of `experts`, and from their counts to an answer's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import direct
from gpusim.base.tables import filled, table
from gpusim.engine.serving import experts as x
from gpusim.engine.serving.tiering import CopyWay, KvStore, KvTier, tier_tables
from gpusim.engine.serving.tiers import TierTables
from gpusim.machine.serving.experts import ExpertTimes
from gpusim.policies.forms import EvictPolicy
from gpusim.policies.schedule.parts.running import request_table
from gpusim.programs.serving.routing import ExpertRouting

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Start = Literal["first", "popular", "empty"]


@dataclass(frozen=True)
class ExpertCache:
    """slots    experts that it holds: of each layer where `apart`, else of all together
    evict    which of them leaves; time is the place among all uses, so it may foresee
    start    what it holds at first: the first experts of each layer, those that the routing uses most, or none
    overlap  copies go on while the GPU computes; else each begins when the GPU has nothing more to do
    cpu      an expert that is not there is computed by the CPU where that takes less than its copy
    """

    slots: int
    evict: EvictPolicy
    apart: bool = False
    start: Start = "first"
    overlap: bool = True
    cpu: bool = False


@dataclass(frozen=True, eq=False)
class Passes:
    """What a routing makes a model do, `batch` sequences at a time: (P,) passes, (T,) turns and (U,) uses of experts.

    part      which stack each pass goes through; requests, tokens (of each), context, prompt: as `ExpertTimes.plain` has them
    first     of each pass its first turn, one more for the end
    layer     of each turn, among all layers with experts; of_pass: its pass
    use       of each turn its first use, one more for the end
    unit, m   of each use the expert, layer * experts + its number, and its tokens
    row_turn  per part (n,) of which turn a token's first layer is
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
    made: I64  # tokens that each pass gives its sequences
    kept: int  # tokens of the batch with most of them


def passes_of(routing: ExpertRouting, batch: int) -> Passes:
    """Sequences run `batch` at a time: a pass with all prompts, then one for each token until the longest is done."""
    parts, last = len(routing.choices), len(routing.choices) - 1
    group = [of // batch for of in routing.sequence]
    steps = [_steps(of, after) for of, after in zip(routing.sequence, routing.decoded, strict=True)]
    columns: dict[str, list[float]] = {name: [] for name in ("part", "requests", "tokens", "context", "prompt", "made")}
    number = [np.zeros(len(of), np.int64) for of in routing.sequence]
    kept = 0
    for g in range(1 + int(group[last].max())):
        mine = [np.flatnonzero(of == g) for of in group]
        prompts = sum(int((~routing.decoded[p][mine[p]]).sum()) for p in range(parts))
        requests = len(np.unique(routing.sequence[last][mine[last]]))
        prompt = prompts / requests
        kept = max(kept, prompts + int(routing.decoded[last][mine[last]].sum()))
        for p in range(parts):
            for step in np.unique(steps[p][mine[p]]):
                rows = mine[p][steps[p][mine[p]] == step]
                number[p][rows] = len(columns["part"])
                here = len(np.unique(routing.sequence[p][rows]))
                new = len(rows) / here
                seen = new if step < 0 else (prompt if parts == 1 else 0.0) + step + 1
                one = here if step >= 0 or parts == 1 else 0
                for name, value in zip(columns, (p, here, new, seen, prompt, one), strict=True):
                    columns[name].append(value)
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
    turns = used // routing.experts
    use = np.searchsorted(turns, np.arange(first[-1] + 1))
    numbers = {name: np.array(columns[name], np.float64) for name in ("requests", "tokens", "context", "prompt")}
    return Passes(
        part, **numbers, first=first, layer=layer, of_pass=of_pass, use=use,
        unit=layer[turns] * routing.experts + used % routing.experts, m=m,
        row_turn=tuple(first[of] for of in number), made=np.array(columns["made"], np.int64), kept=kept,
    )  # fmt: skip


def _steps(sequence: Any, decoded: Any) -> I64:
    """(n,) how many tokens of the same sequence were decoded before each, -1 of a prompt's."""
    count = np.cumsum(decoded)
    begins = np.concatenate([[0], count])[np.searchsorted(sequence, sequence)]
    return np.asarray(np.where(decoded, count - begins - 1, -1), np.int64)


class Guesses:
    """Experts that are sent for ahead: of each turn units, and the turn that they are for."""

    def __init__(self, turn: I64, unit: I64, wanted: I64) -> None:
        order = np.argsort(turn, kind="stable")
        self.turn, self.unit, self.wanted = turn[order], unit[order], wanted[order]


@dataclass(frozen=True, eq=False)
class ExpertRun:
    """What came of it.

    ns      of all passes;  ends: (P,) ns at which each pass ends
    count   by name (`experts.NAMES`): uses of experts and ns
    made    (P,) tokens that each pass gives
    decode  (P,) whether a pass makes one token of each sequence
    sizes   bytes of GPU memory: plain weights, cache, buffers, keys and values, context
    """

    ns: int
    ends: I64
    made: I64
    decode: npt.NDArray[np.bool_]
    count: dict[str, int]
    sizes: dict[str, int]
    copy_bytes: int

    @property
    def pass_ns(self) -> I64:
        """(P,) how long each pass takes."""
        return np.diff(self.ends, prepend=0)

    def metrics(self) -> dict[str, float]:
        """The numbers of an answer; shares of uses, times in ns."""
        uses = self.count["here"] + self.count["late"] + self.count["absent"]
        each = self.pass_ns[self.decode]
        made = int(self.made.sum())
        return {
            "tokens": made, "makespan_ns": self.ns, "tokens_per_s": made / self.ns * 1e9 if self.ns else 0.0,
            "token_ns": float(each.mean()) if each.size else float("nan"),
            "token_p99_ns": float(np.percentile(each, 99)) if each.size else float("nan"),
            "uses": uses, "hit_share": self.count["here"] / max(uses, 1), "late_share": self.count["late"] / max(uses, 1),
            "cpu_share": self.count["on_cpu"] / max(uses, 1), "link_bytes": self.count["copies"] * self.copy_bytes,
            "guessed": self.count["guessed"], "guessed_right": self.count["guessed_right"],
            "gpu_share": self.count["gpu_ns"] / max(self.ns, 1), "link_wait_share": self.count["link_wait_ns"] / max(self.ns, 1),
            "cpu_wait_share": self.count["cpu_wait_ns"] / max(self.ns, 1), "memory_bytes": sum(self.sizes.values()),
        }  # fmt: skip


def run_experts(
    times: ExpertTimes, routing: ExpertRouting, passes: Passes, cache: ExpertCache, copy_ns: int, guesses: Guesses | None = None,
) -> ExpertRun:  # fmt: skip
    """All passes on one GPU.

    copy_ns  of one expert to the GPU where nothing else is on the way
    Raises PolicyError for an evict policy that reads the time or is plain Python.
    """
    model = times.model
    most = int(passes.m.max(initial=1))
    before, after = np.zeros(len(passes.layer)), np.zeros(len(passes.part))
    for p, stack in enumerate(model.stacks):
        mine = passes.part == p
        given = (column[mine] for column in (passes.requests, passes.tokens, passes.context, passes.prompt))
        gate, behind = times.plain(stack, *given)
        before[mine[passes.of_pass]] = np.repeat(gate, stack.sparse)
        after[mine] = behind
    on_cpu = times.on_cpu(most) if cache.cpu else np.zeros(most + 1, np.int64)
    made = turn_tables(passes, before, after, times.experts(most), on_cpu, cache, copy_ns, routing.experts, guesses)
    tiers = caches(cache, passes, model.sparse, routing.experts, model.expert_bytes, copy_ns)
    ns = int(direct(x.replay)(tiers, made))
    slots = cache.slots * (model.sparse if cache.apart else 1)
    sizes = {
        "plain weights": model.plain_bytes, "experts": slots * model.expert_bytes, "buffers": 2 * model.expert_bytes,
        "keys and values": passes.kept * model.token_bytes, "context": int(times.machine.context.value),
    }  # fmt: skip
    count = dict(zip(x.NAMES, made.count.tolist(), strict=True))
    decode = (passes.tokens == 1) & (passes.part == len(model.stacks) - 1) & (passes.made > 0)
    return ExpertRun(ns, made.ends.copy(), passes.made, decode, count, sizes, model.expert_bytes)


def turn_tables(
    passes: Passes, before: F64, after: F64, gpu_ns: I64, cpu_ns: I64, cache: ExpertCache, copy_ns: int, experts: int,
    guesses: Guesses | None = None,
) -> x.ExpertTables:  # fmt: skip
    """Turns with `before` (T,) and passes with `after` (P,) ns of plain work."""
    turns, units = len(passes.layer), experts * (1 + int(passes.layer.max()))
    widest = int(np.diff(passes.use).max(initial=1))
    none = np.zeros(0, np.int64)
    guesses = guesses or Guesses(none, none, none)
    made = filled(
        x.ExpertTables, {"units": units, "passes": len(passes.part), "widest": widest}, turn=table(turns + 1, x.TURN),
        tokens=passes.m.astype(np.int64), guess=guesses.unit.astype(np.int32), wanted=guesses.wanted.astype(np.int64),
        issued=np.zeros(len(guesses.unit), np.int64), gpu_ns=gpu_ns, cpu_ns=cpu_ns,
        word=np.array([experts, copy_ns, cache.overlap, cache.cpu], np.int64),
    )  # fmt: skip
    made.turn["use"], made.turn["layer"][:-1] = passes.use, passes.layer
    made.turn["guess"] = np.searchsorted(guesses.turn, np.arange(turns + 1))
    made.turn["before"][:-1] = np.rint(before)
    end = passes.first[1:] - 1
    made.turn["after"][end], made.turn["ends"][end] = np.rint(after), 1 + np.arange(len(end))
    return made


def caches(cache: ExpertCache, passes: Passes, layers: int, experts: int, size: int, copy_ns: int) -> TierTables:
    """Tiers that stand for the caches, filled as they are at first."""
    units, idle = layers * experts, CopyWay(0, 1.0, ("none",))
    way = CopyWay(copy_ns, 1e12, ("none",))
    tiers = [KvTier(f"layer {i}", cache.slots * size, cache.evict, idle, way) for i in range(layers if cache.apart else 1)]
    chains = tuple((tiers[i if cache.apart else 0],) for i in range(layers))
    places = np.concatenate([np.arange(units), passes.unit])  # a unit's first place stands for all that went before
    requests = request_table([0], 1, 1, start=[0, len(places)], identity=places)
    made, _, _ = tier_tables(requests, KvStore(chains, float(size), rates={"none": 1.0}), layers)
    made.latest[:] = np.arange(units)
    if cache.start != "empty":
        direct(x.fill)(made, _at_first(cache, passes, units, experts), experts)
    return made


def _at_first(cache: ExpertCache, passes: Passes, units: int, experts: int) -> I64:
    """Units in the order in which they are taken in before all begins, as many as there is room for."""
    unit = np.arange(units)
    used = np.bincount(passes.unit, passes.m, minlength=units) if cache.start == "popular" else np.zeros(units)
    order = np.lexsort((unit // experts, unit % experts, -used))
    if not cache.apart:
        return order[: cache.slots]
    rank = np.zeros(units, np.int64)
    for layer in range(units // experts):
        mine = order[order // experts == layer]
        rank[mine] = np.arange(len(mine))
    return order[rank[order] < cache.slots]

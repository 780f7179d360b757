"""From a routing, a model's times and a cache to the tables of `experts`, and from their counts to an answer's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import direct
from gpusim.base.tables import filled, table
from gpusim.engine.serving import experts as x
from gpusim.engine.serving.expert_guesses import Guesses, no_guesses
from gpusim.engine.serving.expert_passes import Passes
from gpusim.engine.serving.tiering import CopyWay, KvStore, KvTier, tier_tables
from gpusim.engine.serving.tiers import TierTables
from gpusim.machine.serving.experts import ExpertTimes
from gpusim.policies.forms import EvictPolicy
from gpusim.policies.schedule.parts.running import request_table

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Start = Literal["first", "layers", "popular", "empty"]


@dataclass(frozen=True)
class ExpertCache:
    """slots    experts that it holds: of each layer where `apart`, else of all together
    evict    which of them leaves; time is the place among all uses, so it may foresee
    start    what it holds at first: the first experts of each layer, all of the first layers, those used most, or none
    overlap  copies go on while the GPU computes; else each begins when the GPU has nothing more to do
    cpu      operations a second of the CPU, which computes an expert that is not there where its copy takes longer; 0: none
    streams  plain weights are copied for each layer, too
    """

    slots: int
    evict: EvictPolicy
    apart: bool = False
    start: Start = "first"
    overlap: bool = True
    cpu: float = 0.0
    streams: bool = False


@dataclass(frozen=True, eq=False)
class ExpertRun:
    """What came of it.

    ns      of all passes;  ends: (P,) ns at which each pass ends
    count   by name (`experts.NAMES`): uses of experts and ns; link_bytes
    made    (P,) tokens that each pass gives
    decode  (P,) whether a pass makes one token of each sequence
    """

    ns: int
    ends: I64
    made: I64
    decode: npt.NDArray[np.bool_]
    count: dict[str, int]

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
            "cpu_share": self.count["on_cpu"] / max(uses, 1), "link_bytes": self.count["link_bytes"],
            "guessed": self.count["guessed"], "guessed_right": self.count["guessed_right"],
            "gpu_share": self.count["gpu_ns"] / max(self.ns, 1),
            "link_wait_share": self.count["link_wait_ns"] / max(self.ns, 1),
            "cpu_wait_share": self.count["cpu_wait_ns"] / max(self.ns, 1),
        }  # fmt: skip


def run_experts(
    times: ExpertTimes, passes: Passes, cache: ExpertCache, way: CopyWay, guesses: Guesses | None = None,
    back: CopyWay | None = None,
) -> ExpertRun:  # fmt: skip
    """All passes on one GPU, to which copies of weights come on this way, one after the other.

    back  the way on which an expert that leaves is copied behind each copy of another; None: it is dropped

    Raises PolicyError for an evict policy that reads the time or is plain Python.
    """
    model = times.model
    most = int(passes.m.max(initial=1))
    copy_ns = copy_time(way, model.expert_bytes) + (copy_time(back, model.expert_bytes) if back is not None else 0)
    before, after, plain = np.zeros(len(passes.layer)), np.zeros(len(passes.part)), np.zeros(len(passes.layer), np.int64)
    for p, stack in enumerate(model.stacks):
        mine = passes.part == p
        given = (column[mine] for column in (passes.requests, passes.tokens, passes.context, passes.prompt))
        gate, behind = times.plain(stack, *given)
        before[mine[passes.of_pass]] = np.repeat(gate, stack.sparse)
        after[mine] = behind
        plain[mine[passes.of_pass]] = model.turn_bytes(stack)
    plain[passes.first[1:][passes.part == len(model.stacks) - 1] - 1] += model.head_bytes
    plain *= cache.streams
    on_cpu = times.on_cpu(most, cache.cpu) if cache.cpu else np.zeros(most + 1, np.int64)
    of_tokens = (times.experts(most), on_cpu)
    made = turn_tables(passes, before, after, of_tokens, cache, copy_ns, (model.sparse, model.experts), guesses)
    plain_bytes = int(plain.sum())
    made.turn["plain"][:-1] = [copy_time(way, int(size)) if size else 0 for size in plain]
    tiers = caches(cache, passes, model.sparse, model.experts, model.expert_bytes, copy_ns)
    ns = int(direct(x.replay)(tiers, made))
    count = dict(zip(x.NAMES, made.count.tolist(), strict=True))
    moved = (count["copies"] + count["guessed"]) * model.expert_bytes
    count["link_bytes"] = moved * (1 if back is None else 2) + plain_bytes
    decode = (passes.tokens == 1) & (passes.part == len(model.stacks) - 1) & (passes.made > 0)
    return ExpertRun(ns, made.ends.copy(), passes.made, decode, count)


def copy_time(way: CopyWay, size: int) -> int:
    """ns of a copy."""
    return way.latency + round(size / way.rate)


def turn_tables(
    passes: Passes, before: F64, after: F64, times: tuple[I64, I64], cache: ExpertCache, copy_ns: int, shape: tuple[int, int],
    guesses: Guesses | None = None,
) -> x.ExpertTables:  # fmt: skip
    """Turns with `before` (T,) and passes with `after` (P,) ns of plain work.

    times  (most + 1,) ns of an expert by its tokens, on the GPU and on the CPU
    shape  layers with experts, and experts of each
    """
    turns, units = len(passes.layer), shape[0] * shape[1]
    widest = int(np.diff(passes.use).max(initial=1))
    guesses = guesses or no_guesses()
    made = filled(
        x.ExpertTables, {"units": units, "passes": len(passes.part), "widest": widest}, turn=table(turns + 1, x.TURN),
        tokens=passes.m.astype(np.int64), guess=guesses.unit.astype(np.int32), wanted=guesses.wanted.astype(np.int64),
        issued=np.zeros(len(guesses.unit), np.int64), gpu_ns=times[0], cpu_ns=times[1],
        word=np.array([shape[1], copy_ns, cache.overlap, cache.cpu > 0], np.int64),
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
    order = np.lexsort((unit // experts, np.zeros(units) if cache.start == "layers" else unit % experts, -used))
    if not cache.apart:
        return order[: cache.slots]
    rank = np.zeros(units, np.int64)
    for layer in range(units // experts):
        mine = order[order // experts == layer]
        rank[mine] = np.arange(len(mine))
    return order[rank[order] < cache.slots]

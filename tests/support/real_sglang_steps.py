"""SGLang's own scheduler (0.5.23, on CPU torch) beside this project's, step by step; in a process of its own.

    python -m real_sglang_steps FIRST_SEED SEEDS    compare in all families; prints the counts
    python -m real_sglang_steps ahead FIRST_SEED SEEDS    the overlap schedule; mixed, mixed_ahead: with mixed chunks
    python -m real_sglang_steps speed FIRST_SEED SEEDS    steps in a CPU second of both sides, output off, both schedules
    python -m real_sglang_steps record FILE         write the recorded sample; record_ahead, record_mixed, record_mixed_ahead

Real are `Scheduler.get_next_batch_to_run` and what it calls, SchedulePolicy, PrefillAdder, ScheduleBatch, Req,
NewTokenRatioTracker, the pools of requests and of tokens (pages of one token) and UnifiedRadixCache.  A forward pass is a token
for each request; the loop is `event_loop_normal`, in which a step is scheduled when the one before is over, or, `ahead`,
`event_loop_overlap`, in which the result of a step is processed when the next one has been scheduled.
"""

from __future__ import annotations

import json
import lzma
import random
import sys
import time
from array import array
from collections import Counter, deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import real_classes
from step_clock import ready

from gpusim.policies.registry import get
from gpusim.policies.schedule.parts import sglang_tables as s
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts.running import EngineLimits, request_table
from gpusim.policies.schedule.parts.waiting import IN_LINE, LISTS

RELEASE = "sglang-0.5.23"
SAMPLE = (61, 62)
FAMILIES = ("ample", "tight", "chunks", "whole prompts", "shared prefixes", "longest prefix", "longest output", "bursts")


@dataclass
class SglangCase:
    """An engine, and requests: (step before which it comes, prompt, output)."""

    tokens: int   # of the pool
    seqs: int
    chunk: int    # tokens of a prefill; 0: prompts are not cut
    prefill: int  # of a prefill without chunks
    longest: int
    order: str
    conservative: float
    ignore_eos: bool
    requests: list[tuple[int, list[int], int]] = field(default_factory=list)
    ahead: bool = False  # the overlap schedule
    mixed: bool = False  # chunks are mixed
    asked: int = 0  # tokens that requests ask for, of which a token may end them before; 0: as many as they make


def case(seed: int, family: str, ahead: bool = False, mixed: bool = False) -> SglangCase:
    """One case of a family; the same for the same seed."""
    draw = random.Random(f"{family} {seed}")
    longest = draw.choice((32, 64, 160))
    tight = family in ("tight", "bursts") or draw.random() < 0.3
    c = SglangCase(
        longest + draw.randrange(1, longest) * (1 if tight else 8), draw.choice((2, 4, 16)),
        0 if family == "whole prompts" else draw.choice((8, 32, 256)) if family == "chunks" else draw.choice((32, 256)),
        draw.choice((longest, 3 * longest)), longest,
        {"longest prefix": "lpm", "longest output": "lof"}.get(family, "fcfs"), draw.choice((1.0, 0.3, 0.05)),
        draw.random() < 0.3,
    )  # fmt: skip
    if family == "tight":  # little is kept for outputs, so that requests retract
        c.seqs, c.conservative, c.ignore_eos = 16, 0.05, False
    stems = [[draw.randrange(1, 9) for _ in range(longest)] for _ in range(3)]
    step = 0
    for i in range(draw.randrange(3, 24)):
        step += 0 if family == "bursts" else draw.choice((0, 0, 1, 5))
        size = draw.randrange(1, longest - 12 if draw.random() < 0.5 and family != "tight" else longest // 4)
        shared = draw.randrange(size + 1) if draw.random() < (0.8 if "prefix" in family else 0.3) else 0
        prompt = draw.choice(stems)[:shared] + [100 + 100 * i + k % 100 for k in range(size - shared)]
        c.requests.append((step, prompt, draw.randrange(1, longest - size - 8)))
    if mixed:  # a chunk has room beside the tokens of all running requests
        c.mixed, c.chunk = True, max(c.chunk, 32)
    if ahead:
        c.ahead, c.asked = True, 0 if c.ignore_eos else draw.choice((0, 0, 20, 100))
    return c


def token(r: int, k: int) -> int:
    """The k-th token that request r makes."""
    return 10_000 + 1000 * r + k


class SimulatedSglang:
    """This project's scheduler."""

    def __init__(self, c: SglangCase) -> None:
        self.case = c
        names: dict[tuple[int, ...], int] = {}
        start, identity, known = [0], [], []
        for r, (_, prompt, output) in enumerate(c.requests):
            whole, parent = prompt + [token(r, k) for k in range(output)], 0
            for word in whole:
                parent = names.setdefault((parent, word), len(names) + 1)
                identity.append(parent)
            start.append(len(identity))
            known.append(len(whole))
        table = request_table(
            [a for a, *_ in c.requests], [len(p) for _, p, _ in c.requests], [o for *_, o in c.requests],
            known=known, start=start, identity=identity, piece=1,
        )  # fmt: skip
        spec = (
            f"sglang@0.5(schedule_policy={c.order},schedule_conservativeness={c.conservative},"
            f"chunked_prefill={int(c.chunk > 0)},max_prefill_tokens={c.prefill},"
            f"ignore_eos={int(c.ignore_eos)},disable_overlap_schedule={int(not c.ahead)},max_new_tokens={c.asked},"
            f"enable_mixed_chunk={int(c.mixed)})"
        )
        limits = EngineLimits(c.tokens, 1, c.seqs, c.chunk or 10**6, c.longest + 8)
        self.run = get("schedule", spec).start(table, limits)
        self.own, self.tree, self.queue = (placed.tables for placed in self.run.tables)

    def arrive(self, r: int) -> bool:
        return self.run.arrive(r) == 0

    def waiting(self) -> list[int]:
        end = self.queue.ahead.size - LISTS + IN_LINE
        line, r = [], int(self.queue.behind[end])
        while r != end:
            line.append(r)
            r = int(self.queue.behind[r])
        return line

    def step(self) -> tuple[Any, ...]:
        under_way = self.own.word[s.UNDER_WAY]
        rows = self.run.compose()
        made = self.run.step
        columns = (made.request, made.tokens, made.before)
        computed = sorted(zip(*(column[:rows].tolist() for column in columns), strict=True))
        gone = sorted(made.ended[: made.word[t.N_ENDED]].tolist())
        ended = made.ended[: self.run.over()].tolist() if under_way or (rows and not self.case.ahead) else []
        room = int(self.own.word[s.PAGES_FREE])
        return (computed, self.waiting(), sorted(gone + ended), room, round(float(self.own.share[s.RATIO]), 9))


class _Off(int):
    """0, and so is what it answers when it is called."""

    def __call__(self, *_: Any, **__: Any) -> int:
        return 0

    need_capture = __call__


class _Config:
    """Fields that are not named are off."""

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Off()


class _Mode:
    """A prefill, or a token for each request."""

    def __init__(self, prefills: bool) -> None:
        self.is_extend, self.is_decode = lambda *_, **__: prefills, lambda: not prefills

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: False


CONTEXT = ("get_parallel", "get_schedule", "get_memory", "get_exec", "get_disagg", "get_spec", "get_serving", "get_context",
           "get_observability", "get_lora", "get_model", "get_server_args", "get_platform")  # fmt: skip


def load() -> Any:
    """The modules of the real classes."""
    import itertools

    import msgspec  # noqa: F401  # the real classes need it
    import torch

    root = real_classes.folder(RELEASE)
    if root is None:
        sys.exit(real_classes.absent(RELEASE))
    m, managers = "sglang.srt.mem_cache.", "sglang.srt.managers."
    memory = ("radix_cache", "evict_policy", "base_prefix_cache", "cache_init_params", "utils", "events", "hicache_storage",
              "allocation", "allocation_sizing", "common", "prefill_budget", "memory_pool", "allocator", "allocator.",
              "unified_radix_cache", "unified_cache.", "unified_cache")  # fmt: skip
    real_classes.imports("sglang", root, (
        *(m + part for part in memory), managers + "schedule_policy", managers + "schedule_batch", managers + "scheduler",
        managers + "scheduler_components.new_token_ratio_tracker", "sglang.srt.disaggregation.kv_events",
        "sglang.srt.sampling.sampling_params", "sglang.srt.environ", "sglang.srt.session.streaming_session",
    ))  # fmt: skip
    ticks = itertools.count(1)
    import sglang.srt.observability.scheduler_stage_metrics as stages  # type: ignore[import-not-found]

    stages.scheduler_stage_method = lambda _: lambda function: function
    import sglang.srt.managers.schedule_batch as batch  # type: ignore[import-not-found]
    import sglang.srt.managers.schedule_policy as policy  # type: ignore[import-not-found]
    import sglang.srt.managers.scheduler as scheduler  # type: ignore[import-not-found]
    import sglang.srt.managers.scheduler_components.new_token_ratio_tracker as ratio  # type: ignore[import-not-found]
    import sglang.srt.mem_cache.allocator.token as allocator  # type: ignore[import-not-found]
    import sglang.srt.mem_cache.cache_init_params as params  # type: ignore[import-not-found]
    import sglang.srt.mem_cache.common as common  # type: ignore[import-not-found]
    import sglang.srt.mem_cache.memory_pool as pools  # type: ignore[import-not-found]
    import sglang.srt.mem_cache.unified_cache.component_type as kinds  # type: ignore[import-not-found]
    import sglang.srt.mem_cache.unified_radix_cache as tree  # type: ignore[import-not-found]
    import sglang.srt.sampling.sampling_params as sampling  # type: ignore[import-not-found]

    pools.TorchMemorySaverAdapter = SimpleNamespace(create=lambda **_: SimpleNamespace(region=lambda *_: nullcontext()))
    batch.ForwardMode = scheduler.ForwardMode = SimpleNamespace(
        EXTEND=_Mode(True), DECODE=_Mode(False), MIXED=_Mode(True),
    )  # fmt: skip
    batch.num_beam_member_rows, batch.beam_retraction_order = lambda _: 0, lambda order, _: order
    batch.ScheduleBatch.__bool__ = batch.Req.__bool__ = lambda _: True  # which inert parents take away
    policy.mamba_prefill_chunk_grid = lambda: 1
    batch.get_batch_return_hidden_states_mode = lambda _: _Off()
    batch.is_pin_memory_available = lambda *_: False
    sys.modules[m + "allocation"].is_pin_memory_available = lambda *_: False
    sys.modules[m + "allocation"].support_triton = lambda _: False
    sys.modules[m + "allocation"].attention_backends = lambda: ("torch_native", "torch_native")
    time.monotonic = lambda: float(next(ticks))  # type: ignore[assignment]
    return SimpleNamespace(
        torch=torch, batch=batch, policy=policy, scheduler=scheduler, ratio=ratio, allocator=allocator, params=params,
        common=common, pools=pools, kinds=kinds, tree=tree, sampling=sampling,
    )  # fmt: skip


class RealSglang:
    """The scheduler, whose other parts are inert."""

    def __init__(self, m: Any, c: SglangCase) -> None:
        self.m, self.case = m, c
        config = _Config(
            pp_max_micro_batch_size=c.seqs, schedule_conservativeness=c.conservative, radix_eviction_policy="lru",
            speculative_algorithm=None, prefill_max_requests=None, features=_Config(), mamba=_Config(), pp_size=1, tp_size=1,
            disaggregation_mode="null", page_size=1, schedule_policy=c.order, tree_core_backend=None, dcp_size=1,
            attn_cp_size=1,
        )  # fmt: skip
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("sglang."):
                for name in CONTEXT:
                    if name in vars(module):
                        setattr(module, name, lambda *_, config=config: config)
        self.pool = m.pools.ReqToTokenPool(c.seqs + 2, c.longest + 40, "cpu", False)
        self.tokens = m.allocator.TokenToKVPoolAllocator(c.tokens, m.torch.float16, "cpu", None, False)
        self.tree = m.tree.UnifiedRadixCache(m.params.CacheInitParams(
            disable=False, req_to_token_pool=self.pool, token_to_kv_pool_allocator=self.tokens, page_size=1,
            tree_components=(m.kinds.ComponentType.FULL,), tree_core_backend="python", chunked_prefill_size=c.chunk or None,
        ))  # fmt: skip
        self.scheduler = self._scheduler(m, c)
        self.live: dict[str, Any] = {}

    def _scheduler(self, m: Any, c: SglangCase) -> Any:
        made = object.__new__(m.scheduler.Scheduler)
        same = SimpleNamespace(is_none=lambda: True)
        given = {
            "chunked_req": None, "enable_hisparse": False, "dllm_config": None, "waiting_queue": [], "spec_algorithm": same,
            "running_batch": m.batch.ScheduleBatch(reqs=[], batch_is_full=False), "last_batch": None, "is_mixed_chunk": c.mixed,
            "policy": m.policy.SchedulePolicy(c.order, self.tree, False, False, False), "max_prefill_bs": 0,
            "new_token_ratio_tracker": m.ratio.NewTokenRatioTracker.from_config(), "max_prefill_tokens": c.prefill,
            "chunked_prefill_size": c.chunk or None, "page_size": 1, "tree_cache": self.tree, "max_running_requests": c.seqs,
            "token_to_kv_pool_allocator": self.tokens, "req_to_token_pool": self.pool, "prefill_delayer": None,
            "min_free_slots_delayer": None, "dynamic_chunk_sizer": None, "truncation_align_size": None,
            "enable_overlap": c.ahead, "enable_skip_finishing_decode": c.ahead, "result_queue": deque(), "enable_lora": False,
            "enable_hicache_storage": False,
            "_pending_chunked_abort_req": None, "priority_scheduling_preemption_threshold": 0,
            "enable_priority_preemption": False,
            "is_hybrid_swa": False, "decode_offload_manager": None, "require_mlp_sync": False, "processed_tokens_counter": 0,
            "get_prefill_adder_class": lambda: m.policy.PrefillAdder, "model_config": _Config(),
            "dp_attn_adapter": SimpleNamespace(
                maybe_prepare_mlp_sync_batch=lambda batch, need_sync=False: batch,
                maybe_convert_decode_to_extend=lambda batch: batch,
            ),
            "ngram_embedding_manager": SimpleNamespace(prepare_for_forward=lambda batch, chunked_req=None: batch),
            "_arm_prefill_decode_interval": lambda _: None, "_should_defer_prefill": lambda _: False,
            "beam_coordinator": SimpleNamespace(pending_member_rows=lambda _: 0, retire_group=lambda _: None),
            "_add_request_to_queue": self._wait, "send_abort_output": lambda _, req: self.gone.append(req.rid),
        }  # fmt: skip
        vars(made).update(given)
        return made

    def _wait(self, req: Any, is_retracted: bool = False) -> None:
        self.scheduler.waiting_queue.append(req)

    def arrive(self, r: int) -> None:
        c, (_, prompt, output) = self.case, self.case.requests[r]
        most = min(max(c.asked, output), min(c.longest + 8, c.tokens) - 2 - len(prompt))
        ends = [token(r, output - 1)] if c.asked else None
        sampling = self.m.sampling.SamplingParams(max_new_tokens=most, ignore_eos=c.ignore_eos, stop_token_ids=ends)
        sampling.stop_strs, sampling.stop_regex_strs = [], []
        req = self.m.batch.Req(str(r), "", array("q", prompt), sampling, vocab_size=10**9)
        self.live[str(r)] = req
        self._wait(req)

    def step(self) -> tuple[Any, ...]:
        scheduler, self.gone = self.scheduler, []
        plan = scheduler.get_next_batch_to_run(running_batch=scheduler.running_batch, last_batch=scheduler.last_batch)
        scheduler.running_batch, batch = plan.running_batch, plan.batch_to_run
        computed = self._rows(batch) if batch else []
        if batch:
            sent = SimpleNamespace(
                reqs=list(batch.reqs), prefills=batch.forward_mode.is_extend(),
                decoding=len(batch.decoding_reqs or ()) if batch.forward_mode is self.m.batch.ForwardMode.MIXED else 0,
            )  # fmt: skip
            scheduler.result_queue.append((sent, computed))
        if (batch and not self.case.ahead) or (self.case.ahead and scheduler.last_batch):
            self._over(*scheduler.result_queue.popleft())
        elif not batch and not scheduler.waiting_queue and scheduler.running_batch.is_empty():
            scheduler.new_token_ratio_tracker.reset()
        scheduler.last_batch = batch
        waiting = [int(q.rid) for q in scheduler.waiting_queue]
        ratio = round(float(scheduler.new_token_ratio_tracker.current), 9)
        return (sorted(computed), waiting, sorted(map(int, self.gone)), int(self.tokens.available_size()), ratio)

    def _rows(self, batch: Any) -> list[tuple[int, int, int]]:
        """(request, tokens, tokens before) of each row of a step that begins."""
        if batch.forward_mode.is_extend():
            mixed = batch.forward_mode is self.m.batch.ForwardMode.MIXED
            prompts = len(batch.reqs) - (len(batch.decoding_reqs) if mixed else 0)
            rows = [(int(req.rid), req.extend_len, req.prefix_len) for req in batch.reqs[:prompts]]
            return rows + [(int(req.rid), 1, req.extend_end - 1) for req in batch.reqs[prompts:]]
        return [(int(req.rid), 1, req.kv.kv_committed_len - 1) for req in batch.reqs]

    def _over(self, batch: Any, rows: list[tuple[int, int, int]]) -> None:
        """Requests of the step make a token, as the real code has it when it processes a result."""
        for i, (req, _) in enumerate(zip(batch.reqs, rows, strict=True)):
            prefills = batch.prefills and i < len(rows) - batch.decoding
            if req.is_retracted or req.finished():
                continue
            if batch.prefills and req.inflight_middle_chunks > 0:
                req.inflight_middle_chunks -= 1
                continue
            req.output_ids.append(token(int(req.rid), len(req.output_ids)))
            req.update_finish_state()
            if req.finished():
                self.gone.append(req.rid)
                self.m.common.release_kv_cache(req, self.tree, checkpoint=True)
            elif prefills:
                self.m.common.checkpoint_kv_cache(req, self.tree)


def play(c: SglangCase, sides: list[Any]) -> tuple[list[tuple[Any, ...]], str]:
    """Steps of the first side, and how the other differs; "" where it does not."""
    told: list[tuple[Any, ...]] = []
    came = idle = 0
    while (came < len(c.requests) or idle < 2) and len(told) < 2000:
        while came < len(c.requests) and c.requests[came][0] <= len(told):
            for side in sides:
                side.arrive(came)
            came += 1
        got = [side.step() for side in sides]
        if c.order == "lof":  # put in order when requests are looked at there, when they come here
            got = [(a, sorted(line), *others) for a, line, *others in got]
        if any(other != got[0] for other in got[1:]):
            return told, f"step {len(told)}: {got}"
        told.append(got[0])
        idle = 0 if got[0][0] else idle + 1
    return told, ""


def record(file: str, ahead: bool = False, mixed: bool = False) -> None:
    """The real scheduler's steps of a sample."""
    modules, kept = load(), []
    for family in FAMILIES:
        for seed in SAMPLE:
            c = case(seed, family, ahead, mixed)
            kept.append({"family": family, "seed": seed, "steps": play(c, [RealSglang(modules, c)])[0]})
    text = json.dumps({"of": RELEASE, "cases": kept}, separators=(",", ":"))
    Path(file).write_bytes(lzma.compress(text.encode(), preset=9))


def compare(first: int, seeds: int, ahead: bool = False, mixed: bool = False) -> Counter[str]:
    """Steps by family, and differences; a case ends at its first."""
    counts, modules = Counter[str](), load()
    for family in FAMILIES:
        for seed in range(first, first + seeds):
            c = case(seed, family, ahead, mixed)
            sides = [SimulatedSglang(c), RealSglang(modules, c)]
            told, differs = play(c, sides)
            if differs:
                counts["differences"] += 1
                print("differs", family, seed, differs, flush=True)
            counts["steps"] += len(told)
            counts["steps with prompts and tokens"] += sum(
                any(n == 1 and before for _, n, before in rows) and any(n > 1 for _, n, _ in rows) for rows, *_ in told
            )
            counts["rows of requests that have ended"] += sum(
                len({r for r, *_ in rows} & set(gone)) for rows, _, gone, *_ in told if ahead
            )
            counts[f"{family}: steps"] += len(told)
            counts[f"{family}: retracted"] += int(sides[0].run.step.word[t.PREEMPTIONS])
    return counts


def speed(first: int, seeds: int) -> None:
    """Print a line for each schedule."""
    modules = load()
    for ahead in (False, True):
        drawn = [case(seed, family, ahead) for family in FAMILIES for seed in range(first, first + seeds)]
        runs = [SimulatedSglang(c) for c in (drawn[0], *drawn)]  # the first one compiles
        plays = [ready(side.run) for side in runs]
        plays[0]()
        began = time.process_time()
        steps = sum(play_one()[0] for play_one in plays[1:])
        ours = steps / (time.process_time() - began)
        real = [RealSglang(modules, c) for c in drawn]
        began = time.process_time()
        steps = sum(len(play(side.case, [side])[0]) for side in real)
        theirs = steps / (time.process_time() - began)
        print(f"{'ahead' if ahead else 'normal':8s} {ours:12,.0f} {theirs:9,.0f} {ours / theirs:6.0f}", flush=True)


if __name__ == "__main__":
    what, *others = sys.argv[1:]
    if what.startswith("record"):
        record(*others, ahead="ahead" in what, mixed="mixed" in what)
        sys.exit()
    if what == "speed":
        speed(*map(int, others))
        sys.exit()
    seeds = others if others[1:] else sys.argv[1:]
    for name, many in sorted(compare(*map(int, seeds), ahead="ahead" in what, mixed="mixed" in what).items()):
        print(f"{many:>9} {name}")

"""python -m real_vllm FOLDER [--silent] < cases > answers    the real scheduler of vLLM, from its wheel, without torch and GPU

FOLDER is what `real_classes` finds; a case is a line of JSON (`vllm_cases`), an answer an int32 array (`vllm_simulated`).
Everything that vLLM wants beside the scheduler's own modules is inert.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import pickle
import sys
import time
from array import array
from collections import deque
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import real_classes

REAL = (
    "vllm.v1.core.", "vllm.v1.request", "vllm.v1.kv_cache_interface", "vllm.v1.kv_cache_spec_registry",
    "vllm.distributed.kv_events", "vllm.v1.utils", "vllm.utils.math_utils", "vllm.utils.hashing", "vllm.v1.engine",
    "vllm.v1.metrics.stats", "vllm.v1.structured_output.request", "vllm.v1.outputs", "vllm.utils.collection_utils",
    "vllm.multimodal.utils",
)  # fmt: skip
IDLE = 50  # steps without work after which a case is over


class _Config(SimpleNamespace):
    """Counts that are not named are 0, other fields that are not named None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return 0 if name.startswith(("num_", "max_")) or name.endswith(("_lookahead", "_tokens")) else None


class _Nothing:
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: []


class _Tier:
    """A KV connector that holds `below` leading tokens of each request and says when a load begins."""

    supports_divergent_local_hybrid_hits = requires_kv_delivery = False

    def __init__(self, waits: bool) -> None:
        self.waits, self.begun = waits, []  # type: ignore[var-annotated]

    def get_num_new_matched_tokens(self, request: Any, there: int) -> tuple[int, bool]:
        held = min(request.below, request.num_tokens - (0 if self.waits else 1))
        return max(held - there, 0), self.waits and held > there

    def update_state_after_alloc(self, request: Any, blocks: Any, tokens: int) -> None:
        if tokens:
            self.begun.append((request.request_id, tokens))

    def request_finished(self, request: Any, blocks: Any) -> tuple[bool, None]:
        return False, None

    def take_events(self) -> tuple[()]:
        return ()

    def has_pending_block_frees(self) -> bool:
        return False

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[()]:
        return ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class VllmModules:
    """The real modules, and what has to be put in the place of stubs that matter."""

    def __init__(self, folder: str) -> None:
        real_classes.imports("vllm", Path(folder), REAL, inert=("torch", "pydantic", "msgspec", "cloudpickle", "zmq", "psutil"))
        import vllm.v1.core.kv_cache_utils as blocks  # type: ignore[import-not-found]
        import vllm.v1.core.sched.scheduler as scheduler  # type: ignore[import-not-found]
        import vllm.v1.kv_cache_interface as interface  # type: ignore[import-not-found]
        import vllm.v1.metrics.stats as stats  # type: ignore[import-not-found]
        import vllm.v1.outputs as outputs  # type: ignore[import-not-found]
        try:
            import vllm.v1.core.sched.async_scheduler as ahead  # type: ignore[import-not-found]
        except ImportError:
            ahead = None
        import vllm.v1.request as request  # type: ignore[import-not-found]

        self.ahead = ahead
        self.blocks, self.scheduler, self.interface = blocks, scheduler, interface
        self.stats, self.outputs, self.request = stats, outputs, request
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("vllm.") and "cdiv" in vars(module):
                module.cdiv = lambda a, b: -(-a // b)  # type: ignore[attr-defined]
        scheduler.compute_encoder_budget = lambda **_: (0, 0)
        for module in (request, scheduler):
            if hasattr(module, "length_from_prompt_token_ids_or_embeds"):
                module.length_from_prompt_token_ids_or_embeds = lambda ids, *_: len(ids)
        blocks.NONE_HASH = b"\0" * 32


def accepted(function: Any, *, like: Any = None, **given: Any) -> Any:
    """Call it with those arguments that this version takes, or that another function does whose arguments it hands on."""
    known = parameters(like or function)
    return function(**{name: value for name, value in given.items() if name in known})


@cache
def parameters(function: Any) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def digest(what: Any) -> bytes:
    return hashlib.sha256(pickle.dumps(what, protocol=5)).digest()


def scheduler_of(case: dict[str, Any], m: VllmModules) -> Any:
    """The real scheduler with the case's options."""
    size, seqs, tokens = case["block_size"], case["max_seqs"], case["max_tokens"]
    kind = accepted(m.interface.FullAttentionSpec, block_size=size, num_kv_heads=1, head_size=1, dtype=None, use_mla=False)
    group = accepted(m.interface.KVCacheGroupSpec, layer_names=["layer"], kv_cache_spec=kind)
    cache = accepted(m.interface.KVCacheConfig, num_blocks=case["blocks"], kv_cache_tensors=[], kv_cache_groups=[group])
    options = _Config(
        max_num_seqs=seqs, max_num_active_seqs=None, max_num_batched_tokens=tokens, max_num_scheduled_tokens=tokens,
        max_model_len=case["max_len"], policy=case["policy"], chunked_prefill_enabled=case["chunked"],
        enable_chunked_prefill=case["chunked"], long_prefill_token_threshold=case["long_prefill"],
        scheduler_reserve_full_isl=case["reserve"], watermark=case["watermark"], async_scheduling=case.get("ahead", False),
        max_num_partial_prefills=1, max_long_partial_prefills=1, disable_hybrid_kv_cache_manager=True,
        max_num_encoder_input_tokens=0, encoder_cache_size=0, prefill_schedule_interval=1,
    )  # fmt: skip
    config = _Config(
        scheduler_config=options,
        cache_config=_Config(num_gpu_blocks=case["blocks"], block_size=size, enable_prefix_caching=case["caching"]),
        parallel_config=_Config(
            data_parallel_rank=0, data_parallel_index=0, data_parallel_size=1, decode_context_parallel_size=1,
            prefill_context_parallel_size=1, pipeline_parallel_size=1, world_size=1,
        ),
        model_config=_Config(is_encoder_decoder=False, max_model_len=case["max_len"], is_multimodal_model=False),
        observability_config=_Config(kv_cache_metrics=False), aux_output_config=_Config(enabled=False),
        ec_manager_config=_Config(
            get_encoder_cache_manager_obj=lambda: SimpleNamespace(create_manager=lambda **_: _Nothing())
        ),
        max_concurrent_batches=1 + case.get("ahead", False), max_in_flight_tokens=case["max_len"],
    )  # fmt: skip
    config.lora_config = SimpleNamespace(max_loras=case["max_loras"]) if case.get("max_loras") else None
    grammar = SimpleNamespace(
        should_advance=lambda _: False, accept_tokens=lambda *_, **__: True, grammar_bitmask=lambda *_, **__: None
    )
    kind = m.ahead.AsyncScheduler if case.get("ahead") else m.scheduler.Scheduler
    made = accepted(
        kind, like=m.scheduler.Scheduler, vllm_config=config, kv_cache_config=cache, structured_output_manager=grammar,
        block_size=size, hash_block_size=size, log_stats=False,
    )  # fmt: skip
    made.kv_cache_manager.log_stats, made.kv_cache_manager.prefix_cache_stats = True, m.stats.PrefixCacheStats()
    if case["load_steps"] >= 0:
        made.connector = _Tier(case["load_steps"] > 0)
        made.defer_block_free = case.get("ahead", False)  # as with a connector that loads and several batches
    return made


def request_of(case: dict[str, Any], i: int, m: VllmModules) -> Any:
    """The i-th request of a case."""
    said = case["requests"][i]
    known, last = (10**6, token(i, said["out"] - 1)) if case.get("eos") else (said["out"], None)
    sampling = _Config(
        num_logprobs=None, max_tokens=known, prompt_logprobs=None, ignore_eos=True, stop_token_ids=(),
        skip_reading_prefix_cache=False, min_tokens=0, eos_token_id=last,
    )  # fmt: skip
    made = accepted(
        m.request.Request, request_id=str(i), prompt_token_ids=said["prompt"], sampling_params=sampling, pooling_params=None,
        eos_token_id=None, arrival_time=float(i), priority=said["priority"], prompt_embeds=None,
        lora_request=adapter_of(said), kv_hints=None, mm_features=[],
        block_hasher=m.blocks.get_request_block_hasher(case["block_size"], digest),
    )  # fmt: skip
    made.below = said["below"]
    return made


def adapter_of(said: dict[str, Any]) -> Any:
    """The adapter of a request; None without one."""
    which = said["adapter"]
    name = f"adapter {which}"
    return SimpleNamespace(lora_int_id=which, adapter_id=which, lora_name=name, name=name, lora_path=name) if which else None



class RealCase:
    """One case: what has happened so far, and the answer as it grows."""

    def __init__(self, case: dict[str, Any], m: VllmModules, record: bool) -> None:
        self.case, self.m, self.record = case, m, record
        self.scheduler = scheduler_of(case, m)
        self.to_come = [request_of(case, i, m) for i in range(len(case["requests"]))]
        self.live: dict[str, Any] = {}
        self.held: dict[str, list[int]] = {}  # blocks of each request when it was last told
        self.due: dict[int, list[str]] = {}  # loads that end, by step
        self.answer = array("i")
        self.ahead: Any = case.get("ahead", False)
        self.under_way: deque[Any] = deque()  # steps, the oldest first: output, tokens of each request, those that bring one
        self.steps = self.idle = self.come = 0

    def play(self) -> None:
        requests, scheduler = self.case["requests"], self.scheduler
        while self.steps < self.case["steps"] and self.idle <= IDLE:
            if self.come == len(requests) and not scheduler.requests and not self.under_way:
                break
            self.before_step()
            output = scheduler.schedule()
            tokens = dict(output.num_scheduled_tokens)
            if self.record:
                self.tell(tokens)
            if self.ahead:
                self.over_ahead(output, tokens)
            else:
                self.over(output, tokens, [i for i in tokens if self.is_through(i)])
            self.idle = 0 if tokens or self.come < len(requests) else self.idle + 1
            self.steps += 1

    def before_step(self) -> None:
        """Clients go away, then requests come."""
        requests = self.case["requests"]
        self.leave(0)
        while self.come < len(requests) and requests[self.come]["at"] <= self.steps:
            made = self.to_come[self.come]
            self.live[made.request_id] = made
            self.scheduler.add_request(made)
            self.come += 1

    def leave(self, late: int) -> None:
        """Clients go away; scheduled ahead, those of odd requests while the engine waits for an output."""
        for i in range(self.come):
            away = self.case["requests"][i]["leaves"] == self.steps and (i % 2 if self.ahead else 0) == late
            if away and str(i) in self.live:
                self.scheduler.finish_requests(str(i), self.m.request.RequestStatus.FINISHED_ABORTED)
                self.live.pop(str(i))

    def over_ahead(self, output: Any, tokens: dict[str, int]) -> None:
        """As `EngineCore.step_with_batch_queue`: the oldest step is over where two are under way, or none could be composed."""
        if tokens:
            self.under_way.append((output, tokens, {i for i in tokens if not self.live[i].is_prefill_chunk}))
        self.leave(1)
        if self.under_way and not (tokens and len(self.under_way) < 2):
            self.over(*self.under_way.popleft())
            return
        if (come := self.loads_that_end()) is not None:
            self.scheduler._update_from_kv_xfer_finished(come)
        if self.record:
            self.answer.extend([-1, self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()])

    def loads_that_end(self) -> Any:
        """Now, as a worker reports them; None without a tier that takes its time."""
        if (tier := self.scheduler.connector) is None or not tier.waits:
            return None
        for i, _ in tier.begun:
            self.due.setdefault(self.steps + self.case["load_steps"], []).append(i)
        tier.begun.clear()
        come = [i for i in self.due.pop(self.steps + 1, ()) if i in self.scheduler.requests]
        return SimpleNamespace(
            finished_recving=come, finished_sending=None, failed_recving=None, invalid_block_ids=None,
            kv_connector_stats=None, kv_cache_events=None,
        )  # fmt: skip

    def over(self, output: Any, tokens: dict[str, int], through: Any) -> None:
        """The step is over: requests that have all their tokens make one, and loads end."""
        made = [self.next_token(i) if i in through and i in self.live else [] for i in tokens]
        answer = accepted(
            self.m.outputs.ModelRunnerOutput, req_ids=list(tokens), req_id_to_index={i: k for k, i in enumerate(tokens)},
            sampled_token_ids=made, logprobs=None, prompt_logprobs_dict={}, pooler_output=[], spec_token_ids=None,
        )  # fmt: skip
        if (come := self.loads_that_end()) is not None:
            answer.kv_connector_output = come
        self.scheduler.update_from_output(output, answer)
        ended = [i for i in tokens if i in self.live and i not in self.scheduler.requests]
        for i in ended:
            self.live.pop(i)
        if self.record:
            self.answer.extend([len(ended), *map(int, ended), self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()])

    def is_through(self, i: str) -> bool:
        return bool(self.live[i].num_computed_tokens >= self.live[i].num_tokens)

    def next_token(self, i: str) -> list[int]:
        """The same tokens for the same request, whatever happens, and none of them in a prompt but where it goes on from it."""
        return [token(int(i), self.live[i].num_output_tokens)]

    def tell(self, tokens: dict[str, int]) -> None:
        """Write the step down: see `vllm_simulated.told`."""
        scheduler, manager, out = self.scheduler, self.scheduler.kv_cache_manager, self.answer
        out.append(len(tokens))
        for i, n in tokens.items():
            blocks, held = list(manager.get_block_ids(i)[0]), self.held.get(i, [])
            kept = len(held) if blocks[: len(held)] == held else 0
            out.extend([int(i), n, self.live[i].num_computed_tokens - n, len(blocks), kept, *blocks[kept:]])
            self.held[i] = blocks
        for i in list(self.held):
            if i not in tokens and not manager.get_block_ids(i)[0]:
                self.held.pop(i)
        waiting = [*getattr(scheduler, "kv_holding_waiting", ()), *scheduler.waiting]
        for several in (scheduler.running, waiting):
            out.extend([len(several), *(int(q.request_id) for q in several)])
        preempted = sorted(int(i) for i, q in self.live.items() if q.status.name == "PREEMPTED")
        out.extend([len(preempted), *preempted, manager.block_pool.get_num_free_blocks()])
        stats = manager.prefix_cache_stats
        out.extend([stats.queries, stats.hits, getattr(stats, "preempted_queries", 0), getattr(stats, "preempted_hits", 0)])
        if self.ahead:
            there = self.live.values()
            out.extend([sum(q.num_output_placeholders for q in there), sum(q.num_stale_output_tokens for q in there)])


def token(i: int, k: int) -> int:
    return (i * 7919 + k * 104729) % 50000 + 100


def main(folder: str, record: bool) -> None:
    """Answer each case: its number, steps and integers, then the integers; at the end, on the error stream, the speed."""
    m, seconds, steps = VllmModules(folder), 0.0, 0
    for line in sys.stdin:
        case = json.loads(line)
        played = RealCase(case, m, record)
        began = time.process_time()
        played.play()
        seconds += time.process_time() - began
        steps += played.steps
        array("i", [case["number"], played.steps, len(played.answer)]).tofile(sys.stdout.buffer)
        played.answer.tofile(sys.stdout.buffer)
    sys.stdout.buffer.flush()
    print(json.dumps({"steps": steps, "seconds": seconds}), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], "--silent" not in sys.argv)

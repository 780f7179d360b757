"""S-LoRA's own router, queue, adapters and memory allocator behind the interface of `slora_cases`; in a process of its own.

    python -m real_slora FIRST_SEED SEEDS    compare with this project's scheduler in all families; prints the counts
    python -m real_slora speed FIRST_SEED SEEDS    steps in a CPU second of both sides
    python -m real_slora record FILE         write the recorded sample

GPUSIM_SLORA names a checkout of github.com/S-LoRA/S-LoRA at c1ddf48 (Apache-2.0), nothing of which is part of this project;
PyTorch for the CPU is needed.  `RouterManager._step`, `ReqQueue`, `Batch`, `InferAdapter` and `MemoryAllocator` are real; a
forward pass takes and gives back cells, and makes a token for each request.  Sets of adapters go in order of their numbers.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import types
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import real_classes
import slora_cases
from slora_cases import FAILS, FAMILIES, STOPS, SloraCase
from step_clock import ready

VARIABLE = "GPUSIM_SLORA"
SAMPLE = (71, 72, 73)
TORCH_ON_CPU = ("empty", "tensor", "zeros", "ones", "arange")


class _OnCpu:
    """PyTorch whose tensors for the GPU are the CPU's."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.torch, name)
        if name not in TORCH_ON_CPU:
            return SimpleNamespace(synchronize=lambda: None, stream=lambda _: _Nothing()) if name == "cuda" else found
        return lambda *given, **named: found(*given, **named | ({"device": "cpu"} if "device" in named else {}))


class _Nothing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass


class _Sorted(set):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter(sorted(super().__iter__(), key=lambda name: (name is not None, name)))


def folder() -> Path:
    """The package in the checkout.  Ends the process where there is none."""
    root = os.environ.get(VARIABLE)
    if not root or not (Path(root) / "slora").is_dir():
        sys.exit(f"{VARIABLE} names no checkout of S-LoRA")
    return Path(root) / "slora"


def load() -> Any:
    """The modules manager, io_struct, sampling_params, infer_adapter and mem_allocator."""
    import torch

    uvloop: Any = types.ModuleType("uvloop")
    uvloop.EventLoopPolicy = asyncio.DefaultEventLoopPolicy
    sys.modules["uvloop"] = uvloop
    router = "slora.server.router."
    real_classes.imports(
        "slora", folder(),
        (router + "manager", router + "req_queue", router + "model_infer.infer_adapter", "slora.server.io_struct",
         "slora.server.sampling_params", "slora.common.mem_allocator"),
        inert=("zmq", "rpyc", "triton"),
    )  # fmt: skip
    import slora.common.mem_allocator as allocator  # type: ignore[import-not-found]
    import slora.server.io_struct as structs  # type: ignore[import-not-found]
    import slora.server.router.manager as manager  # type: ignore[import-not-found]
    import slora.server.router.model_infer.infer_adapter as adapters  # type: ignore[import-not-found]
    import slora.server.router.req_queue as queue  # type: ignore[import-not-found]
    import slora.server.sampling_params as sampling  # type: ignore[import-not-found]

    for module in (allocator, manager, adapters):
        module.torch, module.print = _OnCpu(torch), lambda *_: None
    structs.set = _Sorted
    adapters.launch_var_len_copy_triton = _copied
    return SimpleNamespace(
        allocator=allocator, structs=structs, manager=manager, adapters=adapters, queue=queue, sampling=sampling, torch=torch
    )


def _copied(old_start: Any, length: Any, old: Any, new_start: Any, new: Any) -> None:
    """What its Triton kernel does."""
    for a, n, b in zip(old_start.tolist(), length.tolist(), new_start.tolist(), strict=True):
        new[b : b + n] = old[a : a + n]


class _Worker:
    """In the place of the process with the model: cells of the pool, and a token for each request of a forward pass."""

    def __init__(self, m: Any, c: SloraCase) -> None:
        self.pool = m.allocator.MemoryAllocator(c.cells + c.extra, c.cells, m.torch.float16, 1, 1, 0)
        self.adapter = m.adapters.InferAdapter.init(self.pool, None)
        self.torch, self.rank = m.torch, c.rank
        self.cells: dict[str, dict[int, Any]] = {}  # of each request of each batch
        self.prompts: dict[int, int] = {}
        self.computed: list[tuple[int, int]] = []
        self.during: list[int] = []

    async def load_adapters(self, names: Any, prefetch: bool = False) -> None:
        config = {"hidden_size": 1, "num_attention_heads": 1, "num_hidden_layers": 0}
        wanted = [SimpleNamespace(lora_dir=n, r=self.rank, scaling=1.0, network_config=config) for n in names if n is not None]
        self.adapter.load_adapters(wanted, prefetch=prefetch)

    async def offload_adapters(self, reserved: Any = None) -> None:
        self.adapter.offload_adapters(reserved if reserved is not None else [])

    async def init_batch(self, name: str, requests: Any) -> None:
        self.cells[name] = {r["request_id"]: [] for r in requests}
        self.prompts |= {r["request_id"]: len(r["input_id"]) for r in requests}

    async def prefill_batch(self, name: str) -> Any:
        return self._forward({r: self.prompts[r] for r in self.cells[name]}, name)

    async def decode_batch(self, name: str) -> Any:
        return self._forward(dict.fromkeys(self.cells[name], 1), name)

    def _forward(self, tokens: dict[int, int], name: str) -> Any:
        taken = self.pool.alloc(sum(tokens.values())).split(list(tokens.values()))
        for r, cells in zip(tokens, taken, strict=True):
            self.cells[name][r].append(cells)
        self.computed, self.during = list(tokens.items()), sorted(self.adapter.adapter_dirs)
        return {r: (7, {}) for r in tokens}

    async def filter_batch(self, name: str, kept: Any) -> None:
        batch = self.cells[name]
        for r in [r for r in batch if r not in kept]:
            self.pool.free(self.torch.cat(batch.pop(r)))

    async def merge_batch(self, name: str, other: str) -> None:
        self.cells[name] |= self.cells.pop(other)

    async def remove_batch(self, name: str) -> None:
        await self.filter_batch(name, ())
        del self.cells[name]


class RealSlora:
    """The router with one worker."""

    def __init__(self, m: Any, c: SloraCase) -> None:
        self.m, self.case = m, c
        self.router = r = object.__new__(m.manager.RouterManager)
        self.worker = _Worker(m, c)
        r.input_params = SimpleNamespace(enable_abort=False, no_lora=False, prefetch=c.prefetch, scheduler="slora")
        r.lora_ranks = dict.fromkeys(range(1, 1 + max(a for *_, a, _ in c.requests)), c.rank) | {None: 0}
        r.req_queue = m.queue.ReqQueue(c.cells, c.tokens, c.seqs)
        r.running_batch, r.eos_id, r.has_wait_tokens, r.max_wait_tokens, r.world_size = None, -1, 0, 10, 1
        r.model_rpcs, r.stats_tool = [self.worker], real_classes.Inert()
        self.ended: list[int] = []
        r.send_to_detokenization = SimpleNamespace(send_pyobj=self._told)
        self.loop = asyncio.new_event_loop()

    def _told(self, what: Any) -> None:
        self.ended += [r for r, _, _, over, gone in getattr(what, "reqs_infs", ()) if over and not gone]

    def arrive(self, r: int) -> None:
        _, prompt, output, adapter, _ = self.case.requests[r]
        sampling = self.m.sampling.SamplingParams(max_new_tokens=output, ignore_eos=True, stop_sequences=[])
        self.router.req_queue.append(self.m.structs.Req(adapter or None, r, [1] * prompt, sampling))

    def leave(self, r: int) -> None:
        self.loop.run_until_complete(self.router.abort(r))

    def rush(self) -> int:
        """Serve all requests, telling nothing; how many steps that takes."""
        for r in range(len(self.case.requests)):
            if slora_cases.fits(self.case, r):
                self.arrive(r)

        async def serve() -> int:
            steps = 0
            while self.router.running_batch or self.router.req_queue.waiting_req_list:
                await self.router._step()
                steps += 1
            return steps

        return int(self.loop.run_until_complete(serve()))

    def step(self) -> tuple[Any, ...]:
        worker, self.ended = self.worker, []
        worker.computed, worker.during = [], sorted(worker.adapter.adapter_dirs)
        try:
            self.loop.run_until_complete(self.router._step())
        except IndexError:
            return (FAILS,)  # no adapter is left of several
        except Exception as error:
            if "no enough pool space" not in str(error):
                raise
            return (STOPS,)
        batch = [q.request_id for q in self.router.running_batch.reqs] if self.router.running_batch else []
        waiting = sum(not q.aborted for q in self.router.req_queue.waiting_req_list)
        free = int(worker.pool.can_use_mem_size)
        ended = sorted(self.ended)
        return (worker.computed, worker.during, ended, batch, sorted(worker.adapter.adapter_dirs), free, waiting)


def compare(first: int, seeds: int) -> Counter[str]:
    """Steps by family, and differences; a case ends at its first."""
    counts: Counter[str] = Counter()
    makers = (slora_cases.SimulatedSlora, partial(RealSlora, load()))
    for family in FAMILIES:
        for seed in range(first, first + seeds):
            told, differs = slora_cases.play(slora_cases.case(seed, family), makers)
            counts[f"{family}: steps"] += len(told)
            counts["steps"] += len(told)
            counts[f"{family}: {STOPS}"] += bool(told) and told[-1] == (STOPS,)
            counts[f"{family}: adapters came before their requests"] += any(
                set(now[1]) > set(before[4]) and all(n == 1 for _, n in now[0])
                for before, now in pairwise(told) if len(now) > 1 and len(before) > 1 and now[0]
            )  # fmt: skip
            if differs == FAILS:
                counts[f"{family}: {FAILS}"] += 1
            elif differs:
                counts["differences"] += 1
                print("differs", family, seed, differs, flush=True)
    return counts


def speed(first: int, seeds: int) -> None:
    """Steps in a CPU second of both sides on the same cases, all requests there from the first step on, output off."""
    modules = load()
    drawn = [slora_cases.case(seed, family) for family in ("ample", "bursts") for seed in range(first, first + seeds)]
    cases = [slora_cases.at_once(c) for c in drawn]
    ready(slora_cases.SimulatedSlora(cases[0]).run)()  # compiled now
    sides = (
        ("simulated", [ready(slora_cases.SimulatedSlora(c).run) for c in cases], lambda play: play()[0]),
        ("real", [RealSlora(modules, c) for c in cases], RealSlora.rush),
    )
    for name, players, play in sides:
        begun = time.process_time()
        steps = sum(play(player) for player in players)
        took = time.process_time() - begun
        print(f"{name}: {steps} steps in {took:.3f} s of CPU time, {steps / took:,.0f} a second")


def record(path: str) -> None:
    """The real classes' steps of a sample."""
    make = partial(RealSlora, load())
    kept = [
        {"family": f, "seed": seed, "steps": slora_cases.play(slora_cases.case(seed, f), (slora_cases.SimulatedSlora, make))[0]}
        for f in FAMILIES for seed in SAMPLE
    ]  # fmt: skip
    Path(path).write_text(json.dumps({"of": "S-LoRA c1ddf48", "cases": kept}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(sys.argv[2])
    elif sys.argv[1] == "speed":
        speed(*map(int, sys.argv[2:]))
    else:
        for name, many in sorted(compare(*map(int, sys.argv[1:])).items()):
            print(f"{many:>9} {name}")

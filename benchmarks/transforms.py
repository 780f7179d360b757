"""Transformed against recorded: each transform beside a recording of the program that it says it makes.

    python benchmarks/transforms.py            the table of docs/transforms.md (needs gpusim[torch]; some minutes)
    python benchmarks/transforms.py --speed    events per second on a trace of 10 M events
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import gpusim
from gpusim.trace.build import make_trace
from gpusim.trace.files import load_trace
from gpusim.trace.stats import ROUND, live_bytes
from gpusim.trace.trace import ALLOC, FREE, NAME_TABLES, OP, PHASE, Trace

ROOT = Path(__file__).parent.parent
GPT2 = "gpt2-small(batch=4, seq=512{})"


def shipped(name: str) -> Trace:
    return load_trace(ROOT / "traces" / f"{name}.npz")


@cache
def recorded(spec: str, run: Callable[[Any], None] | None = None) -> Trace:
    """The zoo's program, or another way to train its model."""
    from gpusim.programs import zoo

    with gpusim.record(name=spec) as recording:
        program = zoo.build(spec)
        (run or (lambda p: p.run()))(program)
    return recording.trace


def accumulating(steps: int, program: Any) -> None:
    for _ in range(2):
        for _ in range(steps):
            program.model(**program.inputs).backward()
        program.optimizer.step()
        program.optimizer.zero_grad()


def with_masters(program: Any) -> None:
    import torch

    parameters = list(program.model.parameters())
    masters = [p.detach().float() for p in parameters]
    optimizer = torch.optim.AdamW(masters, lr=1e-4, foreach=True)
    for _ in range(2):
        program.model(**program.inputs).backward()
        for parameter, master in zip(parameters, masters, strict=True):
            master.grad = parameter.grad.float()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(parameters, masters)
        optimizer.zero_grad()
        for parameter in parameters:
            parameter.grad = None


def with_adapters(rank: int, targets: tuple[str, ...], program: Any) -> None:
    import torch
    from torch import nn

    class Adapted(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base = base
            self.a = nn.Linear(base.in_features, rank, bias=False, dtype=torch.bfloat16)
            self.b = nn.Linear(rank, base.out_features, bias=False, dtype=torch.bfloat16)

        def forward(self, x: Any) -> Any:
            return self.base(x) + self.b(self.a(x)) * 2.0

    program.model.requires_grad_(False)
    for block in program.model.blocks:
        for target in targets:
            parent, _, leaf = target.rpartition(".")
            setattr(block.get_submodule(parent), leaf, Adapted(getattr(block.get_submodule(parent), leaf)))
    optimizer = torch.optim.AdamW([p for p in program.model.parameters() if p.requires_grad], lr=1e-4, foreach=True)
    for _ in range(2):
        program.model(**program.inputs).backward()
        optimizer.step()
        optimizer.zero_grad()


ATTENTION, MLP = ("attention.qkv", "attention.out"), ("mlp.0", "mlp.2")


def pairs() -> list[tuple[str, Callable[[], Trace], Callable[[], Trace]]]:
    """(chain, the trace it is applied to, the recording of what it should be)."""
    zoo = {key: partial(recorded, GPT2.format(more)) for key, more in (
        ("bf16", ""), ("fp16", ", dtype=fp16"), ("fp32", ", dtype=fp32"), ("autocast", ", dtype=autocast"),
        *((f"{o}", f", optimizer={o}") for o in ("sgd", "momentum", "adam")),
    )}  # fmt: skip
    of = lambda spec, run=None: partial(recorded, spec, run)  # noqa: E731
    gpt2 = GPT2.format("")
    file = partial(partial, shipped)
    return [
        ("checkpointing", file("gpt2-small-train"), file("gpt2-small-train-ckpt")),
        ("checkpointing", zoo["bf16"], of(GPT2.format(", checkpointing=1"))),
        ("checkpointing", of("llama-1b(batch=1, seq=512)"), of("llama-1b(batch=1, seq=512, checkpointing=1)")),
        ("precision(to=bf16)", file("gpt2-small-train-fp32"), file("gpt2-small-train")),
        ("precision(to=fp32)", file("gpt2-small-train"), file("gpt2-small-train-fp32")),
        ("precision(to=bf16)", zoo["fp32"], zoo["bf16"]),
        ("precision(to=fp16)", zoo["bf16"], zoo["fp16"]),
        ("precision(to=bf16, mode=autocast)", zoo["fp32"], zoo["autocast"]),
        ("precision(to=bf16, mode=autocast)", of("vit-base(batch=8, dtype=fp32)"), of("vit-base(batch=8)")),
        ("precision(to=bf16, master=yes)", zoo["fp32"], of(gpt2, with_masters)),
        ("accumulate(steps=3)", zoo["bf16"], of(gpt2, partial(accumulating, 3))),
        ("batch(to=8)", zoo["bf16"], of("gpt2-small(batch=8, seq=512)")),
        ("batch(to=32)", of("resnet50(batch=16)"), of("resnet50(batch=32)")),
        ("batch(to=8)", of("bert-base(batch=4, seq=128)"), of("bert-base(batch=8, seq=128)")),
        ("sequence(to=1024)", zoo["bf16"], of("gpt2-small(batch=4, seq=1024)")),
        ("sequence(to=256)", of("bert-base(batch=4, seq=128)"), of("bert-base(batch=4, seq=256)")),
        ("sequence(to=1024)", of("llama-1b(batch=1, seq=512)"), of("llama-1b(batch=1, seq=1024)")),
        *((f"optimizer(to={to})", zoo["bf16"], zoo[to]) for to in ("sgd", "momentum", "adam")),
        ("optimizer(to=adamw)", zoo["sgd"], zoo["bf16"]),
        (f"lora(targets={','.join(ATTENTION)})", zoo["bf16"], of(gpt2, partial(with_adapters, 8, ATTENTION))),
        (f"lora(targets={','.join(ATTENTION + MLP)})", zoo["bf16"], of(gpt2, partial(with_adapters, 8, ATTENTION + MLP))),
    ]


def peak(trace: Trace) -> int:
    return int(live_bytes(trace, -(-trace.size // ROUND) * ROUND).max())


def table() -> None:
    print("| transform | of | peak before | transformed | recorded | error | operators | recorded | flops |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for chain, before, truth in pairs():
        try:
            a, b = before(), truth()
        except Exception as error:  # what the recorder cannot record is left out, and named
            print(f"{chain}: {error}", file=sys.stderr)
            continue
        done = gpusim.transform(a, chain)
        sizes = " | ".join(f"{peak(t) / 2**20:,.0f}" for t in (a, done, b))
        error = f"{peak(done) / peak(b) - 1:+.2%}"
        flops = f"{done.flops.sum() / b.flops.sum() - 1:+.1%}"
        print(f"| `{chain}` | {a.name} | {sizes} | {error} | {done.ops:,} | {b.ops:,} | {flops} |", flush=True)


def repeated(trace: Trace, phase: str, events: int) -> Trace:
    """The trace with what follows this phase's mark again and again, on the same parameters and state."""
    mark = int(np.flatnonzero((trace.kind == PHASE) & (trace.arg == trace.phases.index(phase)))[0])
    old = np.zeros(trace.tensors, bool)
    old[trace.arg[:mark][trace.kind[:mark] == ALLOC]] = True
    body = np.arange(mark, trace.events)
    body = body[~((trace.kind[body] == FREE) & old[trace.arg[body]])]
    times = -(-(events - mark) // len(body))
    kind, arg = trace.kind[body], trace.arg[body]
    first = int((trace.kind[:mark] == OP).sum())
    fresh, shared = int((~old).sum()), int(old.sum())
    number = np.where(old, np.cumsum(old) - 1, shared + np.cumsum(~old) - 1)  # shared tensors first

    def again(ids: Any) -> Any:
        return (number[ids][None, :] + np.where(old[ids], 0, fresh)[None, :] * np.arange(times)[:, None]).ravel()

    tensor = (kind == ALLOC) | (kind == FREE)
    args = np.tile(arg, (times, 1))
    args[:, tensor] = again(arg[tensor]).reshape(times, -1)
    args[:, kind == OP] += (trace.ops - first) * np.arange(times)[:, None]
    head = np.where((trace.kind[:mark] == ALLOC) | (trace.kind[:mark] == FREE), number[trace.arg[:mark]], trace.arg[:mark])
    columns: dict[str, Any] = {"arg": np.concatenate([head, args.ravel()])}
    for column in ("kind", "stream"):
        columns[column] = np.concatenate([getattr(trace, column)[:mark], np.tile(getattr(trace, column)[body], times)])
    for column in ("size", "category"):
        columns[column] = np.concatenate([getattr(trace, column)[old], np.tile(getattr(trace, column)[~old], times)])
    for column in ("op", "module", "dtype", "flops", "read_bytes", "written_bytes", "duration", "activity"):
        columns[column] = np.concatenate([getattr(trace, column)[:first], np.tile(getattr(trace, column)[first:], times)])
    for side in ("read", "write"):
        start, ids = getattr(trace, f"{side}_start"), getattr(trace, f"{side}_id")
        counts = np.diff(start)
        columns[f"{side}_start"] = np.append(0, np.cumsum(np.append(counts[:first], np.tile(counts[first:], times))))
        columns[f"{side}_id"] = np.concatenate([number[ids[: start[first]]], again(ids[start[first] :])])
    return make_trace(f"{trace.name}-repeated", columns, {t: getattr(trace, t) for t in NAME_TABLES}, trace.meta)


def speed(events: int = 10**7) -> None:
    small = shipped("gpt2-small-train-fp32")
    large = repeated(small, "step1.fwd", events)
    for chain in (
        "checkpointing", "precision(to=bf16)", "precision(to=bf16, mode=autocast)", "accumulate(steps=2)", "batch(factor=2)",
        "sequence(factor=2)", "optimizer(to=sgd)", "optimizer(to=adam8bit)", "lora", "data_parallel", "zero(stage=2)",
        "zero(stage=3)", "offload", "offload(what=all)", "tensor_parallel(ranks=2)", "pipeline(stages=4)",
    ):  # fmt: skip
        gpusim.transform(small, chain)  # compiles
        taken = []
        for _ in range(3):
            start = time.process_time()
            done = gpusim.transform(large, chain)
            taken.append(time.process_time() - start)
        print(f"{chain}: {large.events / min(taken) / 1e6:.1f} M events/s, {done.events:,} events", flush=True)


if __name__ == "__main__":
    speed() if "--speed" in sys.argv[1:] else table()

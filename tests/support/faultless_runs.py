"""Runs without a fault, for faults to be planted in: random programs under memory pressure, with a log and with bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from fault_tools import Case

import gpusim
from gpusim.experiment.ran import load_machine_of
from gpusim.machine import catalogue
from gpusim.machine.kernels.durations import durations as modelled
from gpusim.machine.profile import Profile
from gpusim.programs.generate.synth import random_program
from gpusim.results.result import Result
from gpusim.trace import trace as tr
from gpusim.trace.build import make_trace
from gpusim.trace.trace import COLUMNS, KERNEL, NAME_TABLES, Trace
from gpusim.trace.workload import build

MACHINES = ("a100-pcie-40gb", "a100-sxm4-80gb", "h100-sxm-80gb", "rtx-2080-ti", "gh200-96gb")
CHOICES: dict[str, tuple[Any, ...]] = {
    "place": ("best_fit", "first_fit", "pytorch"), "evict": ("lru", "fifo", "belady", "largest"),
    "prefetch": ("none", "none", "next_k", "stride"), "plan": ("none", "none", "none", "zero_copy", "g10"),
    "tiers": ("host", "host", "host(capacity=8 MiB) > nvme", "peer"),
    "share": ("none", "sms, memory, engines", "sms, memory, engines"),
    "release": ("none", "none", "none", "watermark", "moving_average"), "grain": ("tensor", "tensor", "tensor", "2 MiB"),
    "transform": ("none", "none", "none", "compressed_swap(ratio=2)"),
}  # fmt: skip

SHIPPED: tuple[dict[str, Any], ...] = (  # points of shipped experiments
    {"trace": "resnet50-train", "on": "a100-pcie-40gb", "memory": "55 %", "evict": "belady"},
    {"trace": "resnet50-train", "on": "a100-pcie-40gb", "memory": "70 %", "evict": "lru"},
    {"trace": "gpt-medium-train", "on": "a100-pcie-40gb", "memory": "70 %", "evict": "sieve"},
    {"trace": "bert-large-train", "on": "a100-pcie-80gb", "memory": "4 GiB", "host_memory": "3 GiB", "tiers": "host > nvme"},
    {"trace": "bert-large-train", "on": "gh200-96gb", "memory": "60 %", "prefetch": "next_k"},
    {"trace": "bert-large-train", "on": "h100-pcie-80gb", "memory": "25 %", "place": "best_fit", "prefetch": "next_k"},
    {"trace": "gpt2-small-train", "on": "a100-pcie-80gb", "memory": "60 %", "release": "watermark"},
    {"trace": "gpt2-small-train", "on": "h100-pcie-80gb", "memory": "60 %", "transform": "compressed_swap(ratio=2)"},
    {"trace": "resnet50-train-8", "on": "a100-pcie-80gb", "transform": "data_loader(buffers=2, share=20, work=yes)"},
    {"trace": "llama-1b-train", "on": "a100-pcie-80gb", "plan": "zero_copy"},
    {"trace": "bert-large-train-8", "on": "a100-sxm4-80gb", "place": "best_fit", "plan": "periodic(steps=2, ahead=1)"},
)


def program(seed: int) -> Trace:
    """A random program of a few dozen operators, most of them kernels, with waits between its streams."""
    rng = np.random.default_rng([seed, 3])
    ops, life, streams = int(rng.integers(20, 70)), float(rng.choice([4, 12, 30])), int(rng.integers(1, 4))
    trace = random_program(seed, ops, largest=1 << 24, mean_life=life, streams=streams)
    count = trace.events // 12
    at = np.sort(rng.integers(0, trace.events + 1, count))
    kind = rng.choice([tr.SYNC, tr.RECORD, tr.WAIT], count, p=[0.3, 0.35, 0.35])
    added: dict[str, Any] = {
        "kind": kind, "arg": np.where(kind == tr.SYNC, -1, rng.integers(0, 3, count)), "time": -1, "addr": -1, "bytes": 0,
        "stream": rng.integers(0, int(trace.stream.max(initial=0)) + 1, count),
    }  # fmt: skip
    columns = {name: getattr(trace, name) for name in COLUMNS}
    columns |= {name: np.insert(columns[name], at, values) for name, values in added.items()}
    columns["activity"] = np.where(rng.random(trace.ops) < 0.25, rng.integers(0, 8, trace.ops), KERNEL)
    columns["read_bytes"] = rng.integers(1, 1 << 23, trace.ops)
    columns["duration"] = np.where(rng.random(trace.ops) < 0.6, rng.integers(1000, 50_000, trace.ops), -1)
    meta = {**trace.meta, "stream_priority": {"1": -1}}
    return make_trace(trace.name, columns, {name: getattr(trace, name) for name in NAME_TABLES}, meta)


def run(seed: int) -> Case:
    """A program on a machine under some policies, with less memory than it wants."""
    rng = np.random.default_rng([seed, 4])
    trace, profile = program(seed), catalogue.load(MACHINES[int(rng.integers(len(MACHINES)))])
    times = modelled(trace, profile).ns
    chosen = {name: values[int(rng.integers(len(values)))] for name, values in CHOICES.items()}
    share, slack = rng.choice([1.2, 0.8, 0.6, 0.5]), int(rng.choice([0, 4 << 20, 4 << 20, 24 << 20]))
    capacity = int(build(trace, times).live_peak * share) + slack
    transform = chosen.pop("transform")

    def ask(trace: Trace, profile: Profile, **other: Any) -> Any:
        choices = {"on": profile, "memory": f"{capacity} B", "log": True, "seed": seed, "bounds": False, **chosen, **other}
        return gpusim.simulate(trace, **choices)

    made = ask(trace, profile, bounds=True, transform=transform)
    result, source = made.whole, made.source
    known = result.program is None and chosen["grain"] == "tensor"
    return Case(
        result, result.program or source, source, profile, durations=times if known else None,
        again=lambda trace, profile, **other: ask(trace, profile, **other).whole,
    )  # fmt: skip


def shipped(number: int) -> Case:
    """A point of a shipped experiment."""
    choices = {**SHIPPED[number], "log": True}
    result = gpusim.simulate(choices.pop("trace"), **choices)
    source, profile = result.source, load_machine_of(result.whole, Path(), result.machine)
    assert isinstance(source, Trace)
    rest = {name: value for name, value in choices.items() if name not in ("on", "transform")}

    def again(trace: Trace, profile: Profile, **other: Any) -> Result:
        return gpusim.simulate(trace, on=profile, **{**rest, "bounds": False, **other}).whole

    return Case(result.whole, result.whole.program or source, source, profile, again=again)

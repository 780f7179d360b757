"""Whole services: requests, scheduler, modelled step times, keys and values copied over links to tiers and back.

    python benchmarks/services.py

1  256 requests that run at once on a Llama 8B, with the parts of the loop added one by one: steps per second.
2  10,000, 100,000 and a million requests, each in a process of its own: seconds and peak memory.
3  Mooncake's traces, where the variable GPUSIM_REQUESTS names their folder: seconds for a 70B model with host memory below.
Speeds are of CPU time, the best of three; compiling is not counted.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from gpusim import policy
from gpusim.engine.serving.costs import linear_cost
from gpusim.engine.serving.run import Engine, ServiceRun
from gpusim.policies.registry import of
from gpusim.policies.schedule.parts.running import EngineLimits
from gpusim.policies.schedule.parts.tables import RequestTable
from gpusim.programs.serving.requests import at_rate, requests_of
from gpusim.studies.serving.setup import ServiceSpec, prepare


@policy.schedule
def arrival_order(view):  # type: ignore[no-untyped-def]
    """Requests run in the order in which they came."""
    return view.requests


@policy.schedule
def shortest_first(view):  # type: ignore[no-untyped-def]
    """Requests with the fewest tokens left go first."""
    return view.requests[np.argsort(view.left, kind="stable")]


MANY = "drawn(prompt=200, output=225, requests=1500, spread=0.3, prefix=128, prefixes=300)"
CHATS = "chats(users=600, turns=6, prompt=60, output=120, think=20, seconds=60)"


def measured(start: Any, times: int = 3) -> tuple[float, ServiceRun]:
    """(CPU seconds, run), the quickest of so many runs after one that compiles."""
    best, run = float("inf"), start()
    run.advance()
    for _ in range(times):
        run = start()
        began = time.process_time()
        run.advance()
        best = min(best, time.process_time() - began)
    return best, run


def told(name: str, seconds: float, run: ServiceRun) -> None:
    """A line of part 1."""
    found = run.result()
    steps, tokens = sum(e.steps for e in found.engines), int(found.made.sum())
    copied = 0 if found.sent_for is None else int(found.sent_for.sum() + found.handed.sum())
    print(f"{name:46s} {steps:8,d} {tokens / steps:9.0f} {copied:12,d} {steps / seconds:10,.0f} {seconds:8.3f}")


def simple(requests: RequestTable, spec: Any, blocks: int = 30_000) -> ServiceRun:
    """A scheduler and steps of constant time, without a machine."""
    scheduler = of(*(() if isinstance(spec, str) else (spec,))).get("schedule", spec)
    limits = EngineLimits(blocks, 16, 256, 8192, 4096)
    return ServiceRun(requests, [Engine("0", scheduler.start(requests, limits), linear_cost(1e7))])


def parts() -> None:
    """Part 1."""
    print(f"{'256 at once':46s} {'steps':>8s} {'tokens/st':>9s} {'from tiers':>12s} {'steps/s':>10s} {'seconds':>8s}")
    many, chats = requests_of(MANY), requests_of(CHATS)
    for version in ("vllm@0.11", "vllm@0.33"):
        told(f"{version}, constant step times", *measured(lambda v=version: simple(many, v)))
    for name, requests, words in (
        ("modelled step times", many, dict[str, Any]()),
        ("and a host tier, written through", many, {"tiers": "host(64 GiB)"}),
        ("conversations, host tier", chats, {"tiers": "host(64 GiB)"}),
        ("conversations, host and NVMe", chats, {"tiers": "host(4 GiB) > nvme(256 GiB)"}),
        ("conversations, host tier, written back", chats, {"tiers": "host(64 GiB)", "when": "write_back"}),
    ):
        service = prepare(ServiceSpec(model="llama-8b", machine="a100-sxm4-40gb", **words))
        told(f"vllm@0.33, {name}", *measured(lambda s=service, r=requests: s.start(r)))
    for scheduler in (arrival_order, shortest_first):
        told(f"{scheduler.__name__}, in Python", *measured(lambda s=scheduler: simple(many, s), 1))


def alone(count: int) -> dict[str, float]:
    """One run of so many requests at a steady rate."""
    service = prepare(ServiceSpec(model="llama-8b", machine="h100-sxm-80gb"))
    small = requests_of("drawn(prompt=256, output=32, requests=100)")
    service.start(small).advance()
    requests = at_rate(requests_of(f"drawn(prompt=256, output=32, requests={count})"), 60.0, 0)
    began = time.process_time()
    run = service.start(requests)
    run.advance()
    result = run.result()
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"steps": sum(e.steps for e in result.engines), "seconds": seconds, "peak": peak}


def growth() -> None:
    """Part 2."""
    print(f"\n{'requests':>10s} {'steps':>10s} {'seconds':>8s} {'us/request':>11s} {'peak MiB':>9s}")
    for count in (10_000, 100_000, 1_000_000):
        found = json.loads(subprocess.run([sys.executable, __file__, str(count)], capture_output=True, check=True).stdout)
        each = found["seconds"] / count * 1e6
        print(f"{count:10,d} {found['steps']:10,.0f} {found['seconds']:8.2f} {each:11.2f} {found['peak']:9.0f}")


def mooncake() -> None:
    """Part 3."""
    folder = os.environ.get("GPUSIM_REQUESTS")
    if not folder:
        print("\nGPUSIM_REQUESTS names no folder with Mooncake's traces")
        return
    print(f"\n{'trace':40s} {'requests':>9s} {'steps':>9s} {'seconds':>8s}")
    service = prepare(ServiceSpec(model="llama-70b", machine="hgx-h100", tensor=8, tiers="host(500 GB)"))
    for path in sorted(Path(folder).glob("*.jsonl*")):
        requests = requests_of(str(path))
        seconds, run = measured(lambda r=requests: service.start(r), 1)
        steps = sum(e.steps for e in run.result().engines)
        print(f"{path.name:40s} {len(requests.arrival):9,d} {steps:9,d} {seconds:8.2f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(alone(int(sys.argv[1]))))
    else:
        parts()
        growth()
        mooncake()

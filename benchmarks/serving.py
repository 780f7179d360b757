"""Schedulers of serving engines: steps per second, beside vLLM's real classes on the same cases.

    python benchmarks/serving.py

1  Cases of all families (tests/support/vllm_cases.py) by the compiled loop of tests/support/step_clock.py, and by the real
   Scheduler and KVCacheManager in a process of their own, neither writing anything down: arrivals, aborts, loads, `schedule`,
   `update_from_output`. Both must take the same steps. Needs the wheels that tests/support/real_classes.py describes. vLLM 0.33
   schedules ahead and not. (v0 and S-LoRA: `python -m real_vllm_v0 speed`, `python -m real_slora speed` in tests/support.)
2  256 requests that run at once, with few and with many blocks: vllm@0.11, vllm@0.33, and schedulers in plain Python.
Speeds are of CPU time; building requests and tables is not counted on either side. Exit code 1 when the steps differ.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

import real_classes
from step_clock import ready
from vllm_cases import cases
from vllm_compare import AHEAD, RELEASES, environment, version_of
from vllm_simulated import ready_case

from gpusim import policy
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts.running import EngineLimits, Running, request_table


@policy.schedule
def arrival_order(view):  # type: ignore[no-untyped-def]
    """Requests run in the order in which they came."""
    return view.requests


@policy.schedule
def shortest_first(view):  # type: ignore[no-untyped-def]
    """Requests with the fewest tokens left go first."""
    return view.requests[np.argsort(view.left, kind="stable")]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """(CPU seconds, answer)"""
    began = time.process_time()
    answer = work()
    return time.process_time() - began, answer


def real(release: str, drawn: list[Any]) -> tuple[int, float]:
    """(steps, CPU seconds) of the real classes."""
    command = [sys.executable, "-m", "real_vllm", str(real_classes.folder(release)), "--silent"]
    text = "".join(json.dumps(case) + "\n" for case in drawn).encode()
    said = subprocess.run(command, input=text, capture_output=True, check=True, env=environment()).stderr
    found = json.loads(said.splitlines()[-1])
    return found["steps"], found["seconds"]


def simulated(version: str, drawn: list[Any]) -> tuple[int, int, float]:
    """(steps, requests in all of them, CPU seconds) of the compiled scheduler."""
    ready_case(drawn[0], version)()  # compiled, or found on disk
    each = [ready_case(case, version) for case in drawn]
    seconds, found = timed(lambda: [play() for play in each])
    return sum(steps for steps, _, _ in found), sum(rows for _, rows, _ in found), seconds


def same_cases(count: int, seed: int) -> bool:
    """Part 1; whether the steps are the same."""
    same = True
    print(f"{'':15s} {'cases':>6s} {'steps':>8s} {'requests/step':>14s} {'steps/s':>12s} {'real':>9s} {'ratio':>6s}")
    for release, ahead in (*((release, False) for release in RELEASES), (AHEAD, True)):
        version, drawn = version_of(release), list(cases(count, seed, ahead=ahead))
        steps, rows, seconds = simulated(version, drawn)
        line = f"vllm@{version + ' async' * ahead:10s} {count:6d} {steps:8d} {rows / steps:14.1f} {steps / seconds:12,.0f}"
        if real_classes.folder(release) is None:
            print(line, real_classes.absent(release))
            continue
        real_steps, real_seconds = real(release, drawn)
        same &= real_steps == steps
        speed = real_steps / real_seconds
        print(f"{line} {speed:9,.0f} {steps / seconds / speed:6.0f}" + ("" if real_steps == steps else f"  {real_steps} steps"))
    return same


def many_requests(blocks: int) -> Any:
    """600 requests that come at once, of which 256 run."""
    draw = np.random.default_rng(0)
    table = request_table(np.zeros(600), draw.integers(20, 400, 600), draw.integers(150, 300, 600))
    return partial(Running, requests=table, limits=EngineLimits(blocks, 16, 256, 8192, 4096))


def by_hand(running: Running) -> int:
    """Steps of a scheduler that is asked from Python."""
    for r in range(running.requests.arrival.size):
        running.arrive(r)
    steps = 0
    while True:
        rows = running.compose()
        while rows == t.ASK:
            running.answer()
            rows = running.compose()
        if rows == 0:
            return steps
        running.over()
        steps += 1


def many() -> None:
    """Part 2."""
    print(f"\n{'256 at once':30s} {'blocks':>7s} {'steps':>6s} {'preempted':>10s} {'steps/s':>10s}")
    for spec in ("vllm@0.11", "vllm@0.33(async_scheduling=0)", "vllm@0.33", arrival_order, shortest_first):
        scheduler = get("schedule", spec)
        for blocks in (20_000, 3_000):
            compiled, running = isinstance(spec, str), many_requests(blocks)(scheduler)
            by_hand(many_requests(blocks)(scheduler))
            seconds, steps = timed(ready(running) if compiled else partial(by_hand, running))
            steps = steps[0] if compiled else steps
            preempted = running.step.word[t.PREEMPTIONS]
            print(f"{scheduler.spec:30s} {blocks:7d} {steps:6d} {preempted:10d} {steps / seconds:10,.0f}")


def loads() -> dict[str, Callable[[], float]]:
    """name -> CPU seconds of one run, for side_by_side.py."""
    drawn = list(cases(170, 1))
    return {f"vllm@{v}": lambda v=v: simulated(v, drawn)[2] for v in ("0.11", "0.33")}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=340)
    parser.add_argument("--seed", type=int, default=12)
    asked = parser.parse_args()
    same = same_cases(asked.cases, asked.seed)
    many()
    sys.exit(not same)

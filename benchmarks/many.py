"""Many GPUs in one simulation: kernels per second of all of them together, and memory.

    python benchmarks/many.py

Training programs of eight kinds (depth of the network, kernel times), each on a GPU of its own, with memory for 60 % of the
footprint and for all of it.  GPUs with the same program share its arrays.  Speeds are of CPU time of the island alone.
Each size runs in a process of its own, whose peak memory is that of all: programs, tables and interpreter.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial

from timed import BLOCK, bound, memory, peak_memory, simulation, timed

from gpusim.engine import state
from gpusim.engine.run.side_by_side import SideBySide
from gpusim.programs.generate import synth
from gpusim.trace.workload import Workload

KINDS = 8
SHARES = (1.01, 0.6)


def programs(tensors: int) -> list[Workload]:
    """One workload of each kind, with about so many tensors."""
    width = int((BLOCK / 8) ** 0.5)
    made = []
    for kind in range(KINDS):
        layers = 24 + 4 * kind
        made.append(bound(synth.training(max(1, tensors // (2 * layers)), layers=layers, width=width, tokens=4 * width), kind))
    return made


def together(works: list[Workload], gpus: int, share: float) -> SideBySide:
    """So many GPUs, with the programs in turn."""
    each = [works[gpu % len(works)] for gpu in range(gpus)]
    return SideBySide([simulation(work, memory(work, share), "none") for work in each])


def island(works: list[Workload], gpus: int, share: float) -> tuple[float, int]:
    """(CPU seconds of the island, kernels of all GPUs)"""
    beside = together(works, gpus, share)
    seconds, reason = timed(partial(beside.advance, state.NEVER))
    assert reason == state.FINISHED and all(s.reason == state.FINISHED for s in beside.simulations), reason
    return seconds, sum(int(s.island.tenants[0]["kernels"]) for s in beside.simulations)


def loads() -> dict[str, Callable[[], float]]:
    """name -> CPU seconds of one run, for side_by_side.py."""
    works = programs(5_000)
    return {
        f"{gpus} GPUs {share:.0%}": lambda g=gpus, s=share: island(works, g, s)[0] for gpus in (1, 8, 64) for share in SHARES
    }


def task(gpus: int, tensors: int, share: float) -> None:
    """What a process of its own does."""
    works = programs(tensors)
    island(programs(200), 2, share)  # compiles, or finds the cache
    seconds, kernels = island(works, gpus, share)
    print(json.dumps({"seconds": seconds, "kernels": kernels, "peak": peak_memory()}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--tensors", type=int, default=100_000, help="of each program")
    parser.add_argument("--task", type=float, nargs=3, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.task:
        task(int(o.task[0]), int(o.task[1]), o.task[2])
        return 0
    print(f"{'GPUs':>5} {'memory':>7} {'kernels':>12} {'seconds':>8} {'thousand kernels/s':>19} {'peak GB':>8}")
    for gpus in o.gpus:
        for share in SHARES:
            command = [sys.executable, __file__, "--task", str(gpus), str(o.tensors), str(share)]
            said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            rate = said["kernels"] / said["seconds"] / 1e3
            print(f"{gpus:5} {share:7.0%} {said['kernels']:12,} {said['seconds']:8.2f} {rate:19.0f} {said['peak'] / 1e9:8.2f}",
                  flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())

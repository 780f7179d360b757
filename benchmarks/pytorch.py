"""How fast is the model of PyTorch's allocator, beside the library itself?

    python benchmarks/pytorch.py [--oracle PATH] [--operations 3000000] [--repeats 3]

Three programs: random sizes from 512 B to 16 MiB with 1,000 and with 20,000 blocks live, and training steps of 1,000 layers,
four requests each.  Each runs with default settings and with expandable segments.  PATH is a program that links the library on
a runtime that only keeps books; `PATH bench FILE 1` reads int64 pairs (size, id), size 0 frees, and prints a line of JSON with
`ops_s`, requests per second of CPU time, and `peak_reserved` and `segments`.  The two take turns, the best of each counts, and
what they reserve at the peak must be the same.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from place import drive

from gpusim.policies import registry
from gpusim.policies.place.parts.pytorch.counting import statistics

TOTAL = 1 << 40
SETTINGS = {"default": "", "expandable": "expandable_segments:True"}


def random_program(live: int, operations: int) -> np.ndarray:
    """Fill to `live` blocks, then free a random one and take another; (operations, 2) of (unit, size)."""
    rng = np.random.default_rng(1)
    sizes, units = np.exp2(rng.uniform(9, 24, operations)).astype(np.int64), rng.integers(0, live, operations)
    fill = np.stack([np.arange(live), sizes[:live]], 1)
    swaps = np.stack([np.repeat(units, 2), np.stack([np.zeros_like(sizes), sizes], 1).reshape(-1)], 1)
    return np.concatenate([fill, swaps])[:operations]


def training_steps(layers: int, operations: int) -> np.ndarray:
    """An activation for each layer, then backwards: a gradient, and both are freed."""
    sizes = np.exp2(np.random.default_rng(2).uniform(9, 24, 2 * layers)).astype(np.int64)
    forward = [(2 * layer, sizes[2 * layer]) for layer in range(layers)]
    step = forward + [
        pair
        for layer in reversed(range(layers))
        for pair in ((2 * layer + 1, sizes[2 * layer + 1]), (2 * layer, 0), (2 * layer + 1, 0))
    ]
    return np.array(step * (operations // len(step)), np.int64)


def model(conf: str, ops: np.ndarray) -> tuple[float, int]:
    """(requests per second of CPU time, peak of the reserved bytes)."""
    policy = registry.get("place", {"name": "pytorch", "params": {"conf": conf}})
    units = int(ops[:, 0].max()) + 1
    S = policy.state(TOTAL, units, units, policy.params)
    start = time.process_time()
    drive(policy.alloc, policy.free, S, ops)
    return len(ops) / (time.process_time() - start), statistics(S)["reserved_bytes.all.peak"]


def library(oracle: str, conf: str, ops: np.ndarray, folder: Path) -> tuple[float, int]:
    file = folder / "ops"
    ops[:, ::-1].tofile(file)
    env = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": conf, "FAKECUDA_TOTAL": str(TOTAL)}
    done = subprocess.run([oracle, "bench", file, "1"], env=env, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    return found["ops_s"], found["peak_reserved"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oracle")
    parser.add_argument("--operations", type=int, default=3_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    programs = {
        "random, 1,000 live": random_program(1_000, given.operations),
        "random, 20,000 live": random_program(20_000, given.operations),
        "training steps": training_steps(1_000, given.operations),
    }
    with tempfile.TemporaryDirectory() as scratch:
        for title, ops in programs.items():
            for setting, conf in SETTINGS.items():
                model(conf, ops[:1000])
                mine, theirs = 0.0, 0.0
                for _ in range(given.repeats):
                    speed, peak = model(conf, ops)
                    mine = max(mine, speed)
                    if given.oracle:
                        speed, same = library(given.oracle, conf, ops, Path(scratch))
                        theirs = max(theirs, speed)
                        assert peak == same, "the model and the library reserve different amounts"
                ratio = f"  library {theirs / 1e6:5.2f} M/s  {mine / theirs:5.1f} x" if given.oracle else ""
                print(f"{title:20} {setting:11}{mine / 1e6:6.2f} M/s{ratio}", flush=True)


if __name__ == "__main__":
    main()

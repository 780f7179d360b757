"""Writes tests/data/replay_misses.json: miss counts of libCacheSim (PyPI libcachesim, default parameters, hashpower=18).

    PYTHONPATH=. python tests/support/golden_replay.py

The sequences are those of benchmarks/replay.py, made from a random stream that NumPy keeps frozen.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parents[1]
FILE = HERE / "data" / "replay_misses.json"
REQUESTS, OBJECTS, CAPACITIES = 20_000, 2_000, (60, 400)
UNEQUAL = ("lru", "fifo", "clock", "sieve", "lfu")  # policies that are the same in bytes as in libCacheSim


def load_benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("replay_benchmark", HERE.parent / "benchmarks" / "replay.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def unequal_sizes() -> Any:
    """Bytes per page, 1 to 9: with them the memory holds 1/5 as many pages."""
    return (np.arange(OBJECTS) * 7919 % 9 + 1).astype(np.int64)


def misses_of_libcachesim() -> dict[str, dict[str, int]]:
    """sequence -> "policy/capacity" or "policy/capacity/sizes" -> misses."""
    benchmark = load_benchmark()
    found: dict[str, dict[str, int]] = {}
    for name, requests in benchmark.sequences(REQUESTS, OBJECTS).items():
        found[name] = {}
        for sizes in (None, unequal_sizes()):
            with tempfile.TemporaryDirectory() as folder:
                rival = benchmark.Rival(Path(folder), requests, sizes)
                for policy in benchmark.RIVALS if sizes is None else UNEQUAL:
                    for capacity in CAPACITIES:
                        key = f"{policy}/{capacity}" + ("" if sizes is None else "/sizes")
                        found[name][key] = rival.run(policy, capacity)[0]
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(misses_of_libcachesim(), indent=1) + "\n", "utf-8")
    print(f"wrote {FILE}")

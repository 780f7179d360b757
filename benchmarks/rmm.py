"""How fast are the models of RMM's pool and arena, beside the real ones on the same machine?

    python benchmarks/rmm.py --oracle PATH [--repeats 5] [--policies rmm_pool,rmm_arena]

PATH is the program that tests/support/fuzz_rmm.py describes: the real library over a device that only keeps books.  It times
its replay (--quiet --repeat N) of the same logs; its events cost nothing, so on a GPU RMM takes longer.  The addresses must be
the same.  Traces: RMM's own benchmark of random allocations (uniform sizes, at most 16,000 MiB live), and training steps
that free in the reverse order.  Prints the best of the repeats in millions of operations per second, and the ratio.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from numba import types

from gpusim.base.compiled import address, entry, function_at
from gpusim.policies import registry
from gpusim.policies.contract import ALLOC, FREE

MIB, GIB = 1 << 20, 1 << 30
CAPACITY = 64 * GIB
ARENA = 32 * GIB  # the default: half of the memory
I64, TABLE = types.Array(types.int64, 1, "C"), types.Array(types.int64, 2, "C")
as_alloc, as_free = function_at(ALLOC), function_at(FREE)


@entry(types.int64(TABLE, I64, TABLE, I64))
def drive(verbs, S, ops, found):  # type: ignore[no-untyped-def]
    """Run (unit, size) pairs, size -1 frees; found: the address of each allocation, -2 for a free."""
    alloc, free = as_alloc(verbs[0, 0], verbs[0, 1]), as_free(verbs[1, 0], verbs[1, 1])
    for i in range(len(ops)):
        if ops[i, 1] >= 0:
            found[i] = alloc(S, ops[i, 0], ops[i, 1], 0)
        else:
            free(S, ops[i, 0], 0)
            found[i] = -2
    return 0


def random_allocations(count: int, largest: int, seed: int = 1) -> np.ndarray:
    """RMM's random-allocations benchmark: allocate with probability 0.73 while there is room, else free a random one."""
    rng = np.random.default_rng(seed)
    live: list[tuple[int, int]] = []
    ops, used, made, cap = [], 0, 0, 16_000 * MIB
    while made < count or live:
        size = int(rng.integers(1, largest + 1))
        if made < count and used + size <= cap and (not live or rng.random() < 0.73):
            ops.append((made, size))
            live.append((made, size))
            made, used = made + 1, used + size
        else:
            at = int(rng.integers(len(live)))
            live[at], live[-1] = live[-1], live[at]
            unit, size = live.pop()
            ops.append((unit, -1))
            used -= size
    return np.array(ops, np.int64)


def training_steps(steps: int = 500, layers: int = 48) -> np.ndarray:
    """Weights that stay; in each step five activations a layer, freed in reverse order, and temporaries."""
    sizes = [8 * MIB, 2 * MIB, 32 * MIB, 8 * MIB, MIB // 2]
    ops = [(layer, 24 * MIB) for layer in range(layers)]
    unit = layers
    for _ in range(steps):
        kept = []
        for _ in range(layers):
            for size in sizes:
                ops.append((unit, size))
                kept.append(unit)
                unit += 1
            ops += [(unit, 16 * MIB), (unit, -1)]
            unit += 1
        for _ in range(layers):
            ops += [(unit, 16 * MIB), (unit + 1, 4 * MIB), (unit + 1, -1), (unit, -1)]
            ops += [(kept.pop(), -1) for _ in sizes]
            unit += 2
    return np.array(ops, np.int64)


TRACES = {
    "random 1,000 x <= 1 MiB": lambda: random_allocations(1_000, MIB),
    "random 1,000 x <= 1 GiB": lambda: random_allocations(1_000, GIB),
    "random 10,000 x <= 1 MiB": lambda: random_allocations(10_000, MIB),
    "random 10,000 x <= 64 MiB": lambda: random_allocations(10_000, 64 * MIB),
    "random 100,000 x <= 4 MiB": lambda: random_allocations(100_000, 4 * MIB),
    "random 100,000 x <= 256 MiB": lambda: random_allocations(100_000, 256 * MIB),
    "random 100,000 x <= 4 GiB": lambda: random_allocations(100_000, 4 * GIB),
    "training steps, last in, first out": training_steps,
}
POLICIES = {
    "rmm_pool": ("rmm_pool(initial=0, reclaim=0, reuse=0)", ["--mr", "pool"]),
    "rmm_arena": (f"rmm_arena(size={ARENA})", ["--mr", "arena", "--arena", str(ARENA)]),
}


def write_log(ops: np.ndarray, path: Path) -> None:
    sizes = {unit: size for unit, size in ops.tolist() if size >= 0}
    with path.open("w") as out:
        out.write("Thread,Time,Action,Pointer,Size,Stream\n")
        for unit, size in ops.tolist():
            action = "allocate" if size >= 0 else "free"
            out.write(f"1,00:00:00.000000,{action},{0x7F0000000000 + 256 * unit:#x},{sizes[unit]},0\n")


def run_oracle(oracle: Path, args: list[str], log: Path, repeats: int) -> tuple[float, np.ndarray]:
    """(seconds, address of each allocation, -1 when refused, and -2 for a free)."""
    command = [oracle, "--log", log, "--capacity", str(CAPACITY), *args]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [line.split() for line in lines]
    found = [-2 if row[1] == "F" else -1 if row[3] == "OOM" else int(row[3]) for row in rows]
    timed = subprocess.run([*command, "--quiet", "--repeat", str(repeats)], check=True, capture_output=True, text=True)
    return json.loads(timed.stderr)["seconds"], np.array(found)


def run_policy(spec: str, ops: np.ndarray, repeats: int) -> tuple[float, np.ndarray]:
    policy, units, seconds = registry.get("place", spec), int(ops[:, 0].max()) + 1, []
    verbs = np.array([address(policy.alloc, ALLOC), address(policy.free, FREE)])
    found = np.zeros(len(ops), np.int64)
    for _ in range(repeats):
        S = policy.state(CAPACITY, units, units, policy.params)
        start = time.perf_counter()
        drive(verbs, S, ops, found)
        seconds.append(time.perf_counter() - start)
    return min(seconds), found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--policies", default=",".join(POLICIES))
    given = parser.parse_args()
    print(f"{'M operations/s':36}" + "".join(f"{name:>12}{'RMM':>8}{'ratio':>8}" for name in given.policies.split(",")))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.csv"
        for title, make in TRACES.items():
            ops = make()
            write_log(ops, log)
            row = f"{title:36}"
            for name in given.policies.split(","):
                spec, args = POLICIES[name]
                seconds, found = run_policy(spec, ops, given.repeats)
                base, wanted = run_oracle(given.oracle, args, log, given.repeats)
                assert np.array_equal(found, wanted), f"{name} and RMM chose different addresses"
                row += f"{len(ops) / seconds / 1e6:12.2f}{len(ops) / base / 1e6:8.3f}{base / seconds:7.1f}x"
            print(row, flush=True)


if __name__ == "__main__":
    main()

"""How fast are the allocators, and is best fit as fast as the C++ one?

    python benchmarks/place.py [--repeats 5] [--operations 400000] [--policies best_fit,tlsf,...]

Each workload is a list of allocs and frees: random ones that keep N blocks live, and a recorded training step's over and
over.  Every policy runs them through the verbs that `gpusim run` uses.  With a C++ compiler, `place_rival.cpp` (std::set)
does the same in the same run; the addresses must be identical.  Prints millions of operations per second, median of the
repeats, and the ratio.  Wall times of a busy machine: look at the ratios.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from numba import njit, types, uint64

from gpusim.policies import registry
from gpusim.policies.contract import ALLOC, FREE
from gpusim.trace.files import load_trace
from gpusim.trace.trace import ALLOC as ALLOC_EVENT
from gpusim.trace.trace import FREE as FREE_EVENT

HERE = Path(__file__).parent
ALIGN, GIB = 512, 2**30
OPS = types.Array(types.int64, 2, "C")


@njit(types.int64(types.FunctionType(ALLOC), types.FunctionType(FREE), types.Array(types.int64, 1, "C"), OPS), cache=True)
def drive(alloc, free, S, ops):  # type: ignore[no-untyped-def]
    """Run (unit, size) pairs, size 0 frees; the hash of all addresses, as the rival's."""
    found = uint64(0)
    for i in range(len(ops)):
        if ops[i, 1]:
            found = found * uint64(31) + uint64(alloc(S, ops[i, 0], ops[i, 1], 0))
        else:
            free(S, ops[i, 0], 0)
    return found >> uint64(1)


def random_ops(live: int, operations: int, seed: int = 1) -> np.ndarray:
    """Fill to `live` blocks, then free a random one and take another, log-uniform from 512 B to 16 MiB; (ops, 2) int64."""
    rng = np.random.default_rng(seed)
    sizes = np.exp2(rng.uniform(9, 24, operations)).astype(np.int64)
    units = rng.integers(0, live, operations)
    ops = [(u, int(sizes[u])) for u in range(live)]
    for unit, size in zip(units.tolist(), sizes.tolist(), strict=True):
        ops += [(unit, 0), (unit, size)]
    return np.array(ops[: max(operations, live)], np.int64)


def trace_ops(path: Path, operations: int) -> np.ndarray:
    """The allocs and frees of a recorded program, repeated; what is live at its end is freed before it starts again."""
    trace = load_trace(path)
    ops, live = [], set()
    for kind, tensor in zip(trace.kind.tolist(), trace.arg.tolist(), strict=True):
        if kind == ALLOC_EVENT and trace.size[tensor] > 0:
            ops.append((tensor, int(trace.size[tensor])))
            live.add(tensor)
        elif kind == FREE_EVENT and tensor in live:
            ops.append((tensor, 0))
            live.remove(tensor)
    ops += [(tensor, 0) for tensor in sorted(live)]
    return np.array(ops * max(1, operations // len(ops)), np.int64)


def rival(folder: Path) -> Path | None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    binary = folder / "rival"
    subprocess.run([compiler, "-O3", "-march=native", "-std=c++17", HERE / "place_rival.cpp", "-o", binary], check=True)
    return binary


def run_rival(binary: Path, folder: Path, capacity: int, units: int, ops: np.ndarray, repeats: int) -> tuple[float, int]:
    file = folder / "ops"
    with file.open("wb") as out:
        np.array([capacity, ALIGN, units, len(ops)], np.int64).tofile(out)
        ops.tofile(out)
    *seconds, found = subprocess.run([binary, file, str(repeats)], check=True, capture_output=True, text=True).stdout.split()
    return statistics.median(map(float, seconds)), int(found)


def run_policy(name: str, capacity: int, units: int, ops: np.ndarray, repeats: int) -> tuple[float, int]:
    policy, seconds, found = registry.get("place", name), [], 0
    drive(policy.alloc, policy.free, policy.state(capacity, units, units, policy.params), ops[:1])
    for _ in range(repeats):
        S = policy.state(capacity, units, units, policy.params)
        start = time.perf_counter()
        found = drive(policy.alloc, policy.free, S, ops)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--operations", type=int, default=400_000)
    parser.add_argument("--policies", default=",".join(e.name for e in registry.entries("place")))
    given = parser.parse_args()
    names = ["best_fit", *(n for n in given.policies.split(",") if n != "best_fit")]
    workloads = {f"random, {n:,} live": random_ops(n, given.operations) for n in (1_000, 20_000)}
    for file in ("gpt2-small-train", "llama-1b-train"):
        workloads[file] = trace_ops(HERE.parent / "traces" / f"{file}.npz", given.operations)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        binary = rival(folder)
        for title, ops in workloads.items():
            units, capacity = int(ops[:, 0].max()) + 1, 1024 * GIB
            print(f"{title}: {len(ops):,} operations")
            base, wanted = 0.0, None
            if binary is not None:
                base, wanted = run_rival(binary, folder, capacity, units, ops, given.repeats)
                print(f"  {'C++ std::set':<14}{len(ops) / base / 1e6:7.1f} M/s")
            for name in names:
                seconds, found = run_policy(name, capacity, units, ops, given.repeats)
                ratio = f"{base / seconds:6.2f} x" if base else ""
                same = ""
                if name == "best_fit" and wanted is not None:
                    assert found == wanted, "best_fit and the C++ allocator chose different addresses"
                    same = "  same addresses"
                print(f"  {name:<14}{len(ops) / seconds / 1e6:7.1f} M/s {ratio}{same}")


if __name__ == "__main__":
    main()

"""Page replay against libCacheSim: the same miss counts, and how much faster.

    pip install "gpusim[bench]" && python benchmarks/replay.py

10 M requests over 1 M objects (Zipf 1.0, memory for 10 % of them) are replayed by both, in turn, `--repeat` times; the
table shows the median of the ratios, and the ratio of the fastest runs, which neighbours on the machine disturbed least.
Seconds are those of the processor; both run on one core.  Miss counts are compared on that sequence and on shorter ones with
scans, loops and changing phases, on which policies differ that agree on Zipf.  Exit code 1 when a count differs.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpusim.policies import registry
from gpusim.policies.trials.misses import next_uses, replay

Requests = npt.NDArray[np.int32]

# policy -> (libCacheSim's class, target of the ratio)
RIVALS = {
    "lru": ("LRU", 5), "fifo": ("FIFO", 12), "clock": ("Clock", 12), "sieve": ("Sieve", 5), "s3fifo": ("S3FIFO", 5),
    "arc": ("ARC", 5), "lfu": ("LFU", 0), "belady": ("Belady", 5),
}  # fmt: skip
ORACLE_GENERAL = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])


def zipf(requests: int, objects: int, seed: int) -> Requests:
    """Independent draws, the k-th most popular object with a chance of 1/k; which object that is, is drawn as well."""
    random = np.random.RandomState(seed)  # its stream is frozen, so that the counts in the tests stay the same
    cumulated = np.cumsum(1.0 / np.arange(1, objects + 1))
    ranks = np.searchsorted(cumulated, random.random_sample(requests) * cumulated[-1])
    return random.permutation(objects).astype(np.int32)[ranks]


def sequences(requests: int, objects: int, seed: int = 1) -> dict[str, Requests]:
    """Zipf, and three sequences that hurt in other ways: scans, loops longer than the memory, changes of phase."""
    plain = zipf(requests, objects, seed)
    index = np.arange(requests)
    scanned = plain.copy()
    sweep = index // (objects // 5) % 3 == 2  # every third stretch walks through all objects in order
    scanned[sweep] = np.cumsum(sweep)[sweep] % objects
    loop = np.where(index % 4 == 3, plain, index % (objects // 8)).astype(np.int32)
    phase = index // max(1, requests // 7)
    phases = ((plain.astype(np.int64) + phase * (objects // 3)) % objects).astype(np.int32)
    return {"zipf": plain, "scans": scanned, "loops": loop, "phases": phases}


class Rival:
    """libCacheSim on one sequence, read from a file in its own binary format."""

    def __init__(self, folder: Path, requests: Requests, sizes: npt.NDArray[np.int64] | None = None) -> None:
        import libcachesim

        self._library, self._count = libcachesim, len(requests)
        objects = int(requests.max()) + 1
        rows = np.zeros(len(requests), ORACLE_GENERAL)
        rows["id"] = requests.astype(np.uint64) + 1  # it reserves object 0
        rows["size"] = 1 if sizes is None else sizes[requests]
        rows["next"] = next_uses(requests, objects)
        file = folder / "requests.oracleGeneral.bin"
        rows.tofile(file)
        self._reader = libcachesim.TraceReader(str(file), libcachesim.TraceType.ORACLE_GENERAL_TRACE)

    def run(self, policy: str, capacity: int) -> tuple[int, float]:
        """(misses, seconds) of its class with default parameters."""
        self._reader.reset()
        cache = getattr(self._library, RIVALS[policy][0])(capacity, hashpower=18)
        start = time.process_time()
        miss_ratio = cache.process_trace(self._reader)[0]
        return round(miss_ratio * self._count), time.process_time() - start


def ours(policy: str, requests: Requests, capacity: int) -> tuple[int, float]:
    """(misses, seconds) of gpusim."""
    chosen = registry.get("evict", policy)
    start = time.process_time()
    counts = replay(requests, 1, capacity, chosen)
    return counts.misses, time.process_time() - start


def loads() -> dict[str, Callable[[], float]]:
    """name -> CPU seconds of one run, for side_by_side.py."""
    made: dict[str, Callable[[], float]] = {}
    for name, requests in sequences(2_000_000, 200_000).items():
        for policy in RIVALS:
            made[f"{policy} on {name}"] = lambda p=policy, r=requests: ours(p, r, 20_000)[1]
    few = zipf(1000, 100, seed=1)
    made["lru on 1,000 requests, 100 times"] = lambda: sum(ours("lru", few, 10)[1] for _ in range(100))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--policies", default=",".join(RIVALS))
    options = parser.parse_args()
    if importlib.util.find_spec("libcachesim") is None:
        print("libcachesim is not installed: there is nothing to compare with (pip install 'gpusim[bench]')", file=sys.stderr)
        return 2
    policies, wrong = options.policies.split(","), 0
    for name, requests in sequences(options.requests // 10, options.requests // 100).items():
        with tempfile.TemporaryDirectory() as folder:
            rival = Rival(Path(folder), requests)
            for policy in policies:
                for capacity in (options.requests // 1000, options.requests // 200):
                    mine, theirs = ours(policy, requests, capacity)[0], rival.run(policy, capacity)[0]
                    if mine != theirs:
                        wrong += 1
                        print(f"{policy} on {name}, {capacity} pages: {mine} misses, libCacheSim {theirs}")
    print(f"misses on zipf, scans, loops, phases at two sizes: {wrong or 'none'} differ\n")
    objects = options.requests // 10
    requests = zipf(options.requests, objects, seed=1)
    print(f"{options.requests:,} requests, {objects:,} objects, Zipf 1.0, memory for {objects // 10:,}")
    print(f"{'policy':8} {'misses':>10} {'ours M/s':>9} {'libCacheSim M/s':>16} {'median':>7} {'fastest':>8}  {'target':>6}")
    with tempfile.TemporaryDirectory() as folder:
        rival = Rival(Path(folder), requests)
        for policy in policies:
            ours(policy, requests[:1000], 100)  # compiles, or finds the cache
            runs = [(*ours(policy, requests, objects // 10), *rival.run(policy, objects // 10))
                    for _ in range(options.repeat)]  # fmt: skip
            wrong += runs[0][0] != runs[0][2]
            fast, slow = (statistics.median(len(requests) / r[k] / 1e6 for r in runs) for k in (1, 3))
            ratio = statistics.median(r[3] / r[1] for r in runs)
            fastest = min(r[3] for r in runs) / min(r[1] for r in runs)
            same = "" if runs[0][0] == runs[0][2] else f"  libCacheSim has {runs[0][2]} misses"
            target = f"{RIVALS[policy][1]}x" if RIVALS[policy][1] else ""
            print(f"{policy:8} {runs[0][0]:10} {fast:9.1f} {slow:16.1f} {ratio:6.1f}x {fastest:7.1f}x"
                  f"  {target:>6}{same}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

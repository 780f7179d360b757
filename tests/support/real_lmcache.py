"""LMCache's own policies (0.5.6) behind the interface of `chunk_cases.Tier`; in a process of its own.

    python -m real_lmcache FIRST_SEED SEEDS OPERATIONS   compare with this project's; prints the counts
    python -m real_lmcache record FILE                   write the recorded sample
"""

from __future__ import annotations

import json
import sys
import types
from collections import Counter

import chunk_cases
import real_classes

from gpusim.policies.schedule.parts.chunk_policies import CHUNK_POLICIES

RELEASE = "lmcache-0.5.6"
SAMPLE, OPERATIONS = (901, 902), 200


def load() -> None:
    """From now on the real classes can be imported."""
    import sortedcontainers  # noqa: F401  # which they need

    root = real_classes.folder(RELEASE)
    if root is None:
        sys.exit(real_classes.absent(RELEASE))
    package = "lmcache.v1.storage_backend.cache_policy"
    real_classes.imports("lmcache", root, (package, package + "."))


class RealTier:
    """A policy with a mapping of its own kind, used as LocalCPUBackend uses them."""

    def __init__(self, policy: str, chunks: int) -> None:
        from lmcache.v1.storage_backend.cache_policy import get_cache_policy  # type: ignore[import-not-found]

        self.policy, self.chunks = get_cache_policy(policy.upper()), chunks
        self.map = self.policy.init_mutable_mapping()

    def put(self, key: int) -> bool:
        if key in self.map or len(self.map) >= self.chunks:
            return False
        self.map[key] = types.SimpleNamespace(can_evict=True)
        self.policy.update_on_put(key)
        return True

    def hit(self, key: int) -> bool:
        if key not in self.map:
            return False
        self.policy.update_on_hit(key, self.map)
        return True

    def use(self, key: int, more: int) -> None:
        self.map[key].can_evict = more < 0

    def remove(self, key: int) -> None:
        self.map.pop(key)
        self.policy.update_on_force_evict(key)

    def evict(self, many: int) -> list[int]:
        chosen = self.policy.get_evict_candidates(self.map, many)
        for key in chosen:
            self.map.pop(key)
        return list(chosen)


def compare(first: int, seeds: int, operations: int) -> Counter[str]:
    """Operations by name, and differences; a case ends at its first."""
    counts: Counter[str] = Counter()
    load()
    for policy in CHUNK_POLICIES:
        for seed in range(first, first + seeds):
            sides = [chunk_cases.answers(seed, policy, operations, m) for m in (chunk_cases.SimulatedTier, RealTier)]
            while True:
                got = [next(side, None) for side in sides]
                if got[0] != got[1]:
                    counts["differences"] += 1
                    print("differs", policy, seed, got, flush=True)
                if got[0] is None or got[0] != got[1]:
                    break
                counts[f"{policy} {got[0][0]}"] += 1
                counts["operations"] += 1
    return counts


def record(path: str) -> None:
    """Answers of the real classes to a sample: what the continuous integration compares with."""
    load()
    cases = [
        {"policy": p, "seed": s, "answers": [[op, *a] for op, a in chunk_cases.answers(s, p, OPERATIONS, RealTier)]}
        for p in CHUNK_POLICIES for s in SAMPLE
    ]  # fmt: skip
    with open(path, "w") as file:
        file.write(json.dumps({"of": RELEASE, "operations": OPERATIONS})[:-1] + ', "cases": [\n')
        file.write(",\n".join(map(json.dumps, cases)) + "\n]}\n")


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(sys.argv[2])
    else:
        for name, many in sorted(compare(*map(int, sys.argv[1:])).items()):
            print(f"{many:>9} {name}")

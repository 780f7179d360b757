"""vLLM's own offload managers (0.11.0 or 0.33.0) behind the interface of `offload_cases.Manager`; a version per process.

    python -m real_offload VERSION FIRST_SEED SEEDS OPERATIONS   compare with this project's managers; prints the counts
    python -m real_offload VERSION record FILE                   write the recorded sample
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import Any

import offload_cases
import real_classes

from gpusim.policies.schedule.parts.offload_tables import MANAGERS

SAMPLE, OPERATIONS = (901, 902, 903), 150


def load(version: str) -> Any:
    """What makes the real manager of this release."""
    root = real_classes.folder(f"vllm-{version}")
    if root is None:
        sys.exit(real_classes.absent(f"vllm-{version}"))
    real_classes.imports("vllm", root, ("vllm.v1.kv_offload.",), inert=("torch",))
    return Manager011 if version == "0.11.0" else Manager033


def key(k: int) -> bytes:
    return k.to_bytes(8, "big") + (0).to_bytes(4, "big")


class Manager011:
    """LRUOffloadingManager over CPUBackend."""

    def __init__(self, name: str, chunks: int, threshold: int, tracked: int) -> None:
        from vllm.v1.kv_offload.backends.cpu import CPUBackend  # type: ignore[import-not-found]
        from vllm.v1.kv_offload.lru_manager import LRUOffloadingManager  # type: ignore[import-not-found]

        self.manager = LRUOffloadingManager(CPUBackend(16, chunks))

    def begin(self, keys: list[int]) -> Any:
        return keys

    def lookup(self, request: Any, first: int, end: int) -> tuple[int, ...]:
        found = self.manager.lookup(request[first:end])
        after = self.manager.blocks.get(request[first + found]) if first + found < end else None
        return found, int(after is not None)

    def touch(self, request: Any, first: int, end: int) -> None:
        self.manager.touch(request[first:end])

    def load(self, request: Any, first: int, end: int, begin: bool) -> None:
        (self.manager.prepare_load if begin else self.manager.complete_load)(request[first:end])

    def store(self, request: Any, first: int, end: int) -> tuple[int, ...]:
        told = self.manager.prepare_store(request[first:end])
        if told is None:
            return (-1,)
        stored = [(k, self.manager.blocks[k].block_id) for k in told.block_hashes_to_store]
        return len(stored), *(x for pair in stored for x in pair), *told.block_hashes_evicted

    def stored(self, request: Any, first: int, end: int, well: bool) -> None:
        self.manager.complete_store(request[first:end], well)

    def finish(self, request: Any) -> None:
        pass


class Manager033:
    """CPUOffloadingManager."""

    def __init__(self, name: str, chunks: int, threshold: int, tracked: int) -> None:
        from vllm.v1.kv_offload.base import LookupResult, ReqContext  # type: ignore[import-not-found]
        from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager  # type: ignore[import-not-found]

        self.context, self.results = ReqContext, LookupResult
        self.manager = CPUOffloadingManager(
            chunks, name.partition("@")[0], store_threshold=threshold, max_tracker_size=tracked
        )  # fmt: skip

    def begin(self, keys: list[int]) -> Any:
        context = self.context(req_id="r")
        for i, k in enumerate(keys):
            context.set_offload_key_position(key(k), i)
        self.manager.on_new_request(context)
        return [key(k) for k in keys], context

    def lookup(self, request: Any, first: int, end: int) -> tuple[int, ...]:
        for i in range(first, end):
            told = self.manager.lookup(request[0][i], request[1])
            if told is not self.results.HIT:
                return i - first, int(told is self.results.HIT_PENDING)
        return end - first, 0

    def touch(self, request: Any, first: int, end: int) -> None:
        self.manager.touch(request[0][first:end], request[1])

    def load(self, request: Any, first: int, end: int, begin: bool) -> None:
        (self.manager.prepare_load if begin else self.manager.complete_load)(request[0][first:end], request[1])

    def store(self, request: Any, first: int, end: int) -> tuple[int, ...]:
        told = self.manager.prepare_store(request[0][first:end], request[1])
        if told is None:
            return (-1,)
        stored = [(k, self.manager._policy.get(k).chunk_id) for k in told.keys_to_store]
        names = [int.from_bytes(k[:8], "big") for k in told.evicted_keys]
        return len(stored), *(x for k, chunk in stored for x in (int.from_bytes(k[:8], "big"), chunk)), *names

    def stored(self, request: Any, first: int, end: int, well: bool) -> None:
        self.manager.complete_store(request[0][first:end], request[1], well)

    def finish(self, request: Any) -> None:
        self.manager.on_request_finished(request[1])


def names(version: str) -> list[str]:
    """The managers of a release."""
    return [m for m in MANAGERS if version.startswith(m.partition("@")[2] + ".")]


def compare(version: str, first: int, seeds: int, operations: int) -> Counter[str]:
    """Operations by name, and differences; a case ends at its first."""
    counts: Counter[str] = Counter()
    seconds = [0.0, 0.0]
    real = load(version)
    for name in names(version):
        for seed in range(first, first + seeds):
            sides = [offload_cases.answers(seed, name, operations, m) for m in (offload_cases.SimulatedManager, real)]
            while True:
                got = []
                for k, side in enumerate(sides):
                    begun = time.process_time()
                    got.append(next(side, None))
                    seconds[k] += time.process_time() - begun
                if got[0] != got[1]:
                    counts["differences"] += 1
                    print("differs", name, seed, got, flush=True)
                if got[0] is None or got[0] != got[1]:
                    break
                counts[f"{name} {got[0][0]}{' refused' if got[0][1] == (-1,) else ''}"] += 1
                counts["operations"] += 1
    print(f"CPU seconds: simulated {seconds[0]:.1f}, real {seconds[1]:.1f}")
    return counts


def record(version: str, path: str) -> None:
    """Answers of the real classes to a sample: what the continuous integration compares with."""
    real = load(version)
    cases = [
        {"name": name, "seed": seed, "answers": [[op, *a] for op, a in offload_cases.answers(seed, name, OPERATIONS, real)]}
        for name in names(version) for seed in SAMPLE
    ]  # fmt: skip
    head = {"of": f"vllm-{version}", "operations": OPERATIONS}
    with open(path, "w") as file:
        file.write(json.dumps(head)[:-1] + ', "cases": [\n' + ",\n".join(map(json.dumps, cases)) + "\n]}\n")


if __name__ == "__main__":
    if sys.argv[2] == "record":
        record(sys.argv[1], sys.argv[3])
    else:
        for name, many in sorted(compare(sys.argv[1], *map(int, sys.argv[2:])).items()):
            print(f"{many:>9} {name}")

"""SGLang's own prefix caches (0.5.23, on CPU torch) behind the interface of `radix_cases.Cache`; in a process of its own.

    python -m real_sglang FIRST_SEED SEEDS OPERATIONS   compare with this project's tree; prints the counts
    python -m real_sglang record FILE                   write the recorded sample
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import Any

import radix_cases
import real_classes

from gpusim.policies.schedule.parts.radix_tables import POLICIES

RELEASE = "sglang-0.5.23"
CLASSES = ("UnifiedTreeCore", "RadixCache")


def load() -> Any:
    """The modules of the real classes; time is the number of an event."""
    import msgspec  # noqa: F401  # the real classes need it, and PyTorch
    import torch

    root = real_classes.folder(RELEASE)
    if root is None:
        sys.exit(real_classes.absent(RELEASE))
    m = "sglang.srt.mem_cache."
    parts = ("radix_cache", "evict_policy", "base_prefix_cache", "cache_init_params", "utils", "events", "hicache_storage")
    unified = ("unified_tree_core", "unified_tree_core_interface", "components", "components.", "cache_action",
               "component_type")  # fmt: skip
    real_classes.imports(
        "sglang", root,
        (*(m + p for p in parts), *(m + "unified_cache." + p for p in unified), "sglang.srt.disaggregation.kv_events"),
    )  # fmt: skip
    ticks = itertools.count(1)
    time.monotonic = lambda: float(next(ticks))  # type: ignore[assignment]
    import sglang.srt.mem_cache.base_prefix_cache as base  # type: ignore[import-not-found]
    import sglang.srt.mem_cache.evict_policy as strategies  # type: ignore[import-not-found]
    import sglang.srt.mem_cache.radix_cache as radix  # type: ignore[import-not-found]
    import sglang.srt.mem_cache.unified_cache.unified_tree_core as unified_core  # type: ignore[import-not-found]

    return torch, base, strategies, radix, unified_core


class _Allocator:
    device = "cpu"

    def __init__(self) -> None:
        self.freed: list[int] = []

    def free_segment(self, value: Any, start_pos: int = 0) -> None:
        self.freed += value.tolist()


class Real:
    """What both real classes share: keys, and slots of pages."""

    def __init__(self, modules: Any, page: int) -> None:
        self.torch, self.base, self.strategies, self.radix, self.core = modules
        self.page = page

    def key(self, tokens: list[int], space: int) -> Any:
        return self.radix.RadixKey(array("q", tokens), extra_key=f"adapter {space}" if space else None)

    def slots(self, held: list[int]) -> Any:
        return self.torch.tensor([p * self.page + i for p in held for i in range(self.page)], dtype=self.torch.int64)

    def pages(self, slots: list[int]) -> list[int]:
        assert all(s % self.page == i % self.page for i, s in enumerate(slots))
        return [s // self.page for s in slots[:: self.page]]

    def params(self, tokens: list[int], held: list[int], space: int, priority: int, inserted: int) -> Any:
        return self.base.InsertParams(
            key=self.key(tokens, space), value=self.slots(held), priority=priority, inserted_len=inserted
        )  # fmt: skip


def strategy(strategies: Any, policy: str, options: dict[str, int]) -> Any:
    """The real policy with its options under their real names."""
    made = next(v for k, v in vars(strategies).items() if k.lower() == f"{policy}strategy")
    names = {"protected_hits": "protected_threshold", "estimate": "next_prompt_estimate"}
    return made(**{names.get(k, k): v for k, v in options.items()})


class RealRadixCache(Real):
    """RadixCache."""

    def __init__(self, modules: Any, policy: str, page: int, options: dict[str, int]) -> None:
        super().__init__(modules, page)
        self.allocator = _Allocator()
        self.cache = self.radix.RadixCache.create_simulated(mock_allocator=self.allocator, page_size=page)
        self.cache.eviction_strategy = strategy(self.strategies, policy, options)
        self.cache.update_eviction_metrics = lambda *_, **__: None

    def match(self, key: list[int], space: int) -> tuple[Any, list[int]]:
        found = self.cache.match_prefix(self.base.MatchPrefixParams(key=self.key(key, space)))
        return found.last_device_node, self.pages(self.cache.path_device_indices(found.last_device_node).tolist())

    def insert(self, key: list[int], held: list[int], space: int, priority: int, inserted: int) -> int:
        return int(self.cache.insert(self.params(key, held, space, priority, inserted)).prefix_len)

    def lock(self, handle: Any) -> Any:
        self.cache.inc_lock_ref(handle)
        return handle

    def unlock(self, handle: Any) -> None:
        self.cache.dec_lock_ref(handle)

    def evict(self, tokens: int) -> list[int]:
        self.allocator.freed = []
        self.cache.evict(self.base.EvictParams(num_tokens=tokens))
        return self.pages(self.allocator.freed)

    def sizes(self) -> tuple[int, int]:
        return int(self.cache.evictable_size()), int(self.cache.protected_size())


class RealTreeCore(Real):
    """The tree of UnifiedRadixCache with its one component for full attention."""

    def __init__(self, modules: Any, policy: str, page: int, options: dict[str, int]) -> None:
        super().__init__(modules, page)
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams  # type: ignore[import-not-found]
        from sglang.srt.mem_cache.unified_cache.component_type import ComponentType  # type: ignore[import-not-found]
        from sglang.srt.mem_cache.unified_cache.components.full import FullComponent  # type: ignore[import-not-found]

        names = {"protected_hits": "protected_threshold", "estimate": "next_prompt_estimate"}
        params = CacheInitParams(
            disable=False, req_to_token_pool=None, token_to_kv_pool_allocator=_Allocator(), page_size=page,
            eviction_policy=policy, eviction_policy_config={names.get(k, k): v for k, v in options.items()} or None,
        )  # fmt: skip
        self.full = ComponentType.FULL
        owner = type("Owner", (), {"enable_session_radix_cache": False, "token_to_kv_pool_allocator": _Allocator()})()
        self.cache = self.core.UnifiedTreeCore(params, {self.full: FullComponent(owner, params)})

    def match(self, key: list[int], space: int) -> tuple[Any, list[int]]:
        found = self.cache.match_prefix(self.base.MatchPrefixParams(key=self.key(key, space)))
        node = found.last_device_node
        slots = self.cache.collect_full_device_indices(node, self.cache.root_node.id).tolist()
        assert len(slots) == found.device_prefix_len
        return node, self.pages(slots)

    def insert(self, key: list[int], held: list[int], space: int, priority: int, inserted: int) -> int:
        step = self.cache.begin_insert(self.params(key, held, space, priority, inserted))
        while step.result is None:
            step = self.cache.resume_insert()
        if self.cache.has_ongoing_insert():
            self.cache.end_insert()
        return int(step.result.prefix_len)

    def lock(self, handle: Any) -> Any:
        return self.cache.inc_lock_ref(handle)

    def unlock(self, handle: Any) -> None:
        self.cache.dec_lock_ref(handle.node_id, handle.to_dec_params())

    def evict(self, tokens: int) -> list[int]:
        freed: list[int] = []
        tracker: dict[Any, int] = {self.full: 0}
        self.cache.evict_device_start(self.full, tokens)
        while True:
            step = self.cache.evict_device_next_node(self.full, tracker)
            if step.node_id is None:
                break
            gone = self.cache.evict_device_leaf(step.node_id, is_write_back=False)
            tracker[self.full] += gone.tracker[self.full]
            freed += [s for value in gone.device_frees.pop(self.full) for s in value.tolist()]
        self.cache.evict_device_end(self.full)
        return self.pages(freed)

    def sizes(self) -> tuple[int, int]:
        return int(self.cache.evictable_size()), int(self.cache.protected_size())


def makers(modules: Any) -> Iterator[tuple[str, bool, Any]]:
    """(policy, unified, what makes the real one): every policy that a class has."""
    for policy in POLICIES:
        yield policy, True, lambda p, page, _, options: RealTreeCore(modules, p, page, options)
        if policy != "tlru":
            yield policy, False, lambda p, page, _, options: RealRadixCache(modules, p, page, options)


def compare(first: int, seeds: int, operations: int) -> Counter[str]:
    """Operations by name, and differences; a case ends at its first."""
    counts: Counter[str] = Counter()
    seconds = [0.0, 0.0]
    for policy, unified, make in makers(load()):
        for seed in range(first, first + seeds):
            page = (1, 1, 4, 16)[seed % 4]
            sides = [
                radix_cases.answers(seed, policy, page, unified, operations, m) for m in (radix_cases.Simulated, make)
            ]  # fmt: skip
            while True:
                got = []
                for k, side in enumerate(sides):
                    begun = time.process_time()
                    got.append(next(side, None))
                    seconds[k] += time.process_time() - begun
                if got[0] != got[1]:
                    counts["differences"] += 1
                    print("differs", policy, unified, page, seed, got, flush=True)
                if got[0] is None or got[0] != got[1]:
                    break
                counts[f"{policy} {CLASSES[not unified]} {got[0][0]}"] += 1
                counts["operations"] += 1
    print(f"CPU seconds: simulated {seconds[0]:.1f}, real {seconds[1]:.1f}")
    return counts


def record(path: str) -> None:
    """Answers of the real classes to a sample: what the continuous integration compares with."""
    cases = []
    for policy, unified, make in makers(load()):
        for seed, page in ((901, 1), (902, 4)):
            told = [[op, *a] for op, a in radix_cases.answers(seed, policy, page, unified, 60, make)]
            cases.append({"policy": policy, "unified": unified, "page": page, "seed": seed, "answers": told})
    head = {"of": RELEASE, "classes": CLASSES, "operations": 60}
    with open(path, "w") as file:
        file.write(json.dumps(head)[:-1] + ', "cases": [\n' + ",\n".join(map(json.dumps, cases)) + "\n]}\n")


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(sys.argv[2])
    else:
        for name, many in sorted(compare(*map(int, sys.argv[1:])).items()):
            print(f"{many:>9} {name}")

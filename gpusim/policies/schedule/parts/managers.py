"""Managers of keys and values in host memory as engines have them, by name: `vllm_lru@0.33(chunk=128)`, `lmcache_lfu`.

They are the compiled managers of `offload` (vLLM's offloading connector) and `chunk_policies` (LMCache), each with its engine's
size of a chunk: vLLM one block of 16 tokens, LMCache 256 tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.base.calls import split
from gpusim.base.errors import PolicyError, suggest
from gpusim.base.tables import signature
from gpusim.policies.schedule.parts import chunk_policies, offload_tables
from gpusim.policies.schedule.parts.chunk_tables import ChunkTable

VLLM, LMCACHE = 1, 2  # 0: none of both
CHUNKS = signature(ChunkTable)
MANAGERS: Mapping[str, tuple[int, str, int]] = {
    **{f"vllm_{name}": (VLLM, name, 16) for name in offload_tables.MANAGERS},
    **{f"lmcache_{name}": (LMCACHE, name, chunk_policies.CHUNK_TOKENS) for name in chunk_policies.CHUNK_POLICIES},
}
"""Name -> whose it is, its name there, tokens of a chunk."""


@dataclass(frozen=True)
class HostManager:
    """A manager in words.

    chunk      tokens
    threshold  of vLLM 0.33: how often a chunk is offered before it is stored
    """

    name: str
    kind: int
    own: str
    chunk: int
    threshold: int = 1

    def tables(self, chunks: int) -> tuple[ChunkTable, ChunkTable]:
        """Empty, of so many chunks; and counts of what was offered."""
        make = offload_tables.offload_manager if self.kind == VLLM else chunk_policies.chunk_cache
        made = make(chunks, self.own)
        return made, offload_tables.store_counts(self.threshold)


def is_manager(word: str) -> bool:
    """Whether the word means a manager of an engine."""
    return word.startswith(("vllm_", "lmcache_"))


def manager_of(word: str) -> HostManager:
    """`vllm_lru@0.33`, `vllm_arc@0.33(chunk=128, threshold=2)`, `lmcache_lru(chunk=512)`.  Raises PolicyError."""
    name, given = split(word, "a manager of keys and values")
    if name not in MANAGERS:
        raise PolicyError(f"there is no manager '{name}'", hint=suggest(name, MANAGERS) or ", ".join(MANAGERS))
    kind, own, chunk = MANAGERS[name]
    known = ("chunk", "threshold") if own.endswith("0.33") else ("chunk",)
    for key, text in given.items():
        if key not in known:
            raise PolicyError(f"manager '{name}' has no parameter '{key}'", hint=suggest(key, known) or ", ".join(known))
        if not text.isdecimal() or not int(text):
            raise PolicyError(f"{key}={text} of manager '{name}' is no whole number above 0")
    return HostManager(name, kind, own, int(given.get("chunk", chunk)), int(given.get("threshold", 1)))

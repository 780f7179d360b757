"""What the managers of vLLM's offloading connector keep: chunks in host memory, how often each was offered, a request's memory.

Rules: vllm 0.11.0 v1/kv_offload/lru_manager.py; 0.33.0 v1/kv_offload/cpu/manager.py and cpu/policies/{lru,arc}.py.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import kernel
from gpusim.base.errors import PolicyError, suggest
from gpusim.policies.schedule.parts import chunk_tables as c
from gpusim.policies.schedule.parts.chunk_tables import NONE, ChunkTable

I64 = npt.NDArray[np.int64]

MANAGERS = ("lru@0.11", "lru@0.33", "arc@0.33")
LRU_011, LRU_033, ARC_033 = range(len(MANAGERS))
T1, T2, B1, B2 = range(4)  # lists; LRU of 0.11 uses T1 only, and LRU of 0.33 ranks in a heap
WRITING = -1  # references of a chunk that is being written

RANK, DONE, LAST, OWN = range(4)  # own: the request's rank, whether it is finished, one past its last chunk seen, and per chunk
SEEN, INSERTED, REUSED, MISSED = 1, 2, 4, 8


def offload_manager(chunks: int, name: str = "lru@0.33") -> ChunkTable:
    """An empty manager, of MANAGERS, of so many chunks in host memory; PolicyError for another name."""
    if name not in MANAGERS:
        raise PolicyError(f"there is no offload manager '{name}'", hint=suggest(name, MANAGERS) or ", ".join(MANAGERS))
    made = c.chunk_table(chunks, 5 * chunks + 8, 4)
    made.head[0]["policy"] = MANAGERS.index(name)
    return made


def store_counts(threshold: int = 1, tracked: int = 64_000) -> ChunkTable:
    """How often which chunk was offered (0.33): it is stored from the `threshold`-th time on; at most so many are counted."""
    made = c.chunk_table(tracked if threshold > 1 else 0, (tracked if threshold > 1 else 0) + 2, 1)
    made.head[0]["threshold"] = threshold
    return made


def request_memory(chunks: int) -> I64:
    """What a manager of 0.33 remembers of a request of so many chunks."""
    return np.zeros(OWN + chunks, np.int64)


@kernel
def held(t: ChunkTable, key: int) -> int:
    """The row of a key whose chunk is there, written or being written; NONE without one."""
    n = c.find(t, key)
    return n if n != NONE and t.rows[n].chunk != NONE else NONE


@kernel
def unpin(t: ChunkTable, n: int) -> None:
    """Nothing reads the chunk any more: it may be evicted."""
    t.head[0].evictable += 1
    if t.head[0].policy == LRU_033:
        c.push(t, n)


@kernel
def pin(t: ChunkTable, n: int) -> None:
    t.head[0].evictable -= 1
    if t.head[0].policy == LRU_033:
        c.pull(t, n)

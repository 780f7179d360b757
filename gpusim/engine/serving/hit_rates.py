"""What a prefix cache of a given size would find: a tier alone under a trace of requests, without engine and time.

Of each request the leading chunks that the cache holds are found; then all of its chunks are used, tail first, and those that
are absent come in.  A request with a partial last chunk uses that, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from numba import types

from gpusim.base.compiled import direct, entry
from gpusim.engine.serving.tiering import CopyWay, KvStore, KvTier, dense, tier_tables
from gpusim.engine.serving.tiers import ABSENT, READY, TIERS, TOUCH, TierTables, key_of, put, tell, use
from gpusim.policies.forms import EvictPolicy
from gpusim.policies.schedule.parts.tables import REQUESTS, RequestTable


@dataclass(frozen=True)
class HitRate:
    """Of so many chunks that requests had, so many were found."""

    chunks: int
    found: int

    @property
    def share(self) -> float:
        """Found over all."""
        return self.found / self.chunks if self.chunks else 0.0


def hit_rate(requests: RequestTable, capacity: int, evict: EvictPolicy) -> HitRate:
    """What a cache of `capacity` chunks finds, the requests being served in order.

    PolicyError for a policy that reads the time or is plain Python.
    """
    idle = CopyWay(0, 1.0, ("none",))
    tier = KvTier("cache", capacity * int(requests.piece[0]), evict, idle, idle)
    named = dense(requests)
    tables, _, _ = tier_tables(named, KvStore(((tier,),), 1.0, rates={"none": 1.0}), 1)
    return HitRate(int(named.start[-1]), int(direct(_replay)(tables, named)))


@entry(types.int64(TIERS, REQUESTS))
def _replay(t: TierTables, requests: RequestTable) -> int:
    found, tier = 0, t.chain[0, 0]
    for r in range(requests.arrival.size):
        first, end = requests.start[r], requests.start[r + 1]
        k = first
        while k < end and t.where[tier, t.chunk[k]] == READY:
            k += 1
        found += k - first
        for i in range(end - 1, first - 1, -1):
            chunk = use(t, i)
            if t.where[tier, chunk] == ABSENT:
                put(t, 0, 0, chunk, READY, 0)
            else:
                tell(t, tier, TOUCH, chunk, key_of(t, tier, chunk))
    return found

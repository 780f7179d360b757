"""The eviction policies by name, and the one of a run."""

from __future__ import annotations

from types import ModuleType

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages import ranking
from gpusim.engine.pages.chunks import oldest
from gpusim.engine.pages.dispatch import dispatch
from gpusim.engine.pages.driver_tables import DISCARDED, NONE, UNUSED, USED, DriverState
from gpusim.engine.pages.evict import belady, big_page, clean_drop, driver, early, lfu, lru, random, tree

POLICIES: dict[str, ModuleType] = {
    "driver": driver, "lru": lru, "random": random, "lfu": lfu, "clean_drop": clean_drop, "early": early,
    "big_page": big_page, "tree": tree, "belady": belady,
}  # fmt: skip
EVICT = tuple(POLICIES)
ORACLES = tuple(name for name, policy in POLICIES.items() if hasattr(policy, "FORESEES"))


def choose(M: DriverState, name: str) -> None:
    """The policy of a run."""
    s, policy = M.state[0], POLICIES[name]
    s["evict"] = EVICT.index(name)
    s["ranked"], s["drops_clean"] = hasattr(policy, "RANKED"), hasattr(policy, "DROPS_CLEAN")
    s["follows"] = s["watches"] = hasattr(policy, "touched")
    s["pieces"] = hasattr(policy, "PIECES")
    s["reserve"] = min(getattr(policy, "RESERVE", 0), max(int(M.gpus[1]["roots"]) // 16, 1))


@kernel
def chosen(M: DriverState) -> int:
    return int(M.state[0].evict)


def _oldest(M: DriverState, g: int) -> int:
    return int(oldest(M, g, USED))


def _unseen(M: DriverState, g: int, b: int, r: int) -> None:
    """Most policies do not see uses."""


def _alone(M: DriverState, g: int, b: int) -> None:
    """Most policies send nothing with a big page."""


touched = dispatch(chosen, POLICIES.values(), "touched", _unseen)
leaving = dispatch(chosen, POLICIES.values(), "leaving", _alone)
_own = dispatch(chosen, POLICIES.values(), "victim", _oldest)


@outlined
def victim(M: DriverState, g: int) -> int:
    """A root chunk that may leave, NONE if none may.  What holds nothing of worth goes first under every policy."""
    for which in (UNUSED, DISCARDED):
        r = oldest(M, g, which)
        if r != NONE:
            return int(r)
    if M.state[0].ranked:
        r = ranking.foremost(M, g)
        if r != NONE:
            return int(r)
    return int(_own(M, g))


SEARCH = 64


@outlined
def spare(M: DriverState, g: int) -> int:
    """A root chunk to evict before its room is needed: the oldest that the prefetcher does not expect to be used."""
    for which in (UNUSED, DISCARDED):
        r = oldest(M, g, which)
        if r != NONE:
            return int(r)
    s = M.state[0]
    r = oldest(M, g, USED)
    for _ in range(SEARCH):
        if r == NONE:
            break
        owner = M.roots[r].owner
        if not M.roots[r].locked and not (s.serial and owner >= 0 and M.blocks[owner].expected == s.serial):
            return int(r)
        r = M.roots[r].newer
    return NONE

"""The eviction policies by name, and the one of a run."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from gpusim.uvm import ranking
from gpusim.uvm.chunks import oldest
from gpusim.uvm.compiled import outlined
from gpusim.uvm.evict import belady, big_page, clean_drop, driver, lfu, lru, random, tree
from gpusim.uvm.tables import DISCARDED, NONE, UNUSED, USED, Memory

POLICIES: dict[str, ModuleType] = {
    "driver": driver, "lru": lru, "random": random, "lfu": lfu, "clean_drop": clean_drop,
    "big_page": big_page, "tree": tree, "belady": belady,
}  # fmt: skip
EVICT = tuple(POLICIES)
ORACLES = tuple(name for name, policy in POLICIES.items() if hasattr(policy, "FORESEES"))


def choose(M: Memory, name: str) -> None:
    """The policy of a run."""
    s, policy = M.state[0], POLICIES[name]
    s["evict"] = EVICT.index(name)
    s["ranked"], s["drops_clean"] = hasattr(policy, "RANKED"), hasattr(policy, "DROPS_CLEAN")
    s["follows"] = s["watches"] = hasattr(policy, "touched")
    s["pieces"] = hasattr(policy, "PIECES")
    s["reserve"] = min(getattr(policy, "RESERVE", 0), max(int(M.gpus[1]["roots"]) // 16, 1))


def _any(M: Memory, g: int) -> int:
    return int(oldest(M, g, USED))


def _dispatch(verb: str, last: Callable[..., Any], link: Callable[[int, Any, Any], Any]) -> Any:
    """One kernel that calls the verb of the run's policy, `last` where it has none."""
    rest = outlined(last)
    for k, policy in enumerate(POLICIES.values()):
        if hasattr(policy, verb):
            rest = link(k, getattr(policy, verb), rest)
    return rest


def _victim(k: int, verb: Any, rest: Any) -> Any:
    @outlined
    def ask(M: Memory, g: int) -> int:
        return int(verb(M, g) if M.state[0].evict == k else rest(M, g))

    return ask


def _touched(k: int, verb: Any, rest: Any) -> Any:
    @outlined
    def tell(M: Memory, g: int, b: int, r: int) -> None:
        if M.state[0].evict == k:
            verb(M, g, b, r)
        else:
            rest(M, g, b, r)

    return tell


def _leaving(k: int, verb: Any, rest: Any) -> Any:
    @outlined
    def tell(M: Memory, g: int, b: int) -> None:
        if M.state[0].evict == k:
            verb(M, g, b)
        else:
            rest(M, g, b)

    return tell


def _nothing(M: Memory, g: int, b: int, r: int) -> None:
    """Most policies do not see uses."""


def _alone(M: Memory, g: int, b: int) -> None:
    """Most policies send nothing with a big page."""


touched = _dispatch("touched", _nothing, _touched)
leaving = _dispatch("leaving", _alone, _leaving)
_own = _dispatch("victim", _any, _victim)


@outlined
def victim(M: Memory, g: int) -> int:
    """A root chunk that may leave, NONE if none may.  What holds nothing of worth goes first under every policy."""
    for which in (UNUSED, DISCARDED):
        r = oldest(M, g, which)
        if r != NONE:
            return int(r)
    if M.state[0].ranked and M.gpus[g].ranked > 0:
        return int(ranking.foremost(M, g))
    return int(_own(M, g))

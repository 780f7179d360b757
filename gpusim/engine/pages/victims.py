"""The eviction policy of a run: the driver's order, one of its variants, or a policy of `gpusim.policies` over chunks."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from gpusim.base.calls import parse
from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages import chunk_policy
from gpusim.engine.pages.asked import PythonPolicies
from gpusim.engine.pages.chunks import oldest
from gpusim.engine.pages.dispatch import dispatch
from gpusim.engine.pages.driver_tables import DISCARDED, NONE, UNUSED, USED, DriverState
from gpusim.engine.pages.evict import big_page, clean_drop, driver, early, tree
from gpusim.engine.pages.named import NamedPolicies
from gpusim.policies.forms import EvictPolicy
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.policies.units import CHUNKS

POLICIES: dict[str, ModuleType] = {
    "driver": driver, "clean_drop": clean_drop, "early": early, "big_page": big_page, "tree": tree,
}  # fmt: skip
"""The driver's own order, and variants of how it gives memory out."""

NAMED = NamedPolicies("evict", "eviction policy", CHUNKS, POLICIES)
EVICT = NAMED.known()
refuse = NAMED.refuse


def find(text: str, own: Registry = SHIPPED) -> EvictPolicy | str:
    """The policy that this text names: one of POLICIES by its name, any other ready to run.  Raises as `refuse`."""
    found: EvictPolicy | str = NAMED.find(text, own)
    if isinstance(found, EvictPolicy) and found.uncompiled:
        answer = _tried(found)
        if not isinstance(answer, int | float | np.number | np.bool_):
            raise found.error(f"answers {answer!r}, not a number")
        raise found.error(f"is asked by compiled code, and numba cannot compile it: {found.uncompiled}")
    return found


def _tried(policy: EvictPolicy) -> Any:
    """What a function that does not compile answers where all facts are 1; a number where that cannot be told."""
    function = policy.entry.target
    try:
        return function(*[1.0] * len(policy.facts), **policy.values)
    except Exception:  # of the user's code: numba's words say more
        return 0.0


def foresees(text: str, own: Registry = SHIPPED) -> bool:
    """Whether the policy reads the future."""
    name, _ = parse(text)
    return name not in POLICIES and own.find("evict", name).oracle


def module(text: str) -> ModuleType | None:
    """The variant of the driver that this text names."""
    return POLICIES.get(parse(text)[0])


def choose(M: DriverState, policy: EvictPolicy | str, seed: int, asked: PythonPolicies) -> DriverState:
    """The policy of a run."""
    s = M.state[0]
    if isinstance(policy, EvictPolicy):
        return chunk_policy.install(M, policy, seed, asked)
    variant = POLICIES[policy]
    s["evict"] = tuple(POLICIES).index(policy)
    s["drops_clean"] = hasattr(variant, "DROPS_CLEAN")
    s["pieces"] = hasattr(variant, "PIECES")
    s["reserve"] = min(getattr(variant, "RESERVE", 0), max(int(M.gpus[1]["roots"]) // 16, 1))
    return M


@kernel
def chosen(M: DriverState) -> int:
    return int(M.state[0].evict)


def _alone(M: DriverState, g: int, b: int) -> None:
    """Most variants send nothing with a big page."""


leaving = dispatch(chosen, POLICIES.values(), "leaving", _alone)


@outlined
def victim(M: DriverState, g: int) -> int:
    """A root chunk that may leave, NONE if none may.  What holds nothing of worth goes first under every policy."""
    for which in (UNUSED, DISCARDED):
        r = oldest(M, g, which)
        if r != NONE:
            return int(r)
    if M.state[0].own:
        r = chunk_policy.foremost(M, g)
        if r != NONE:
            return int(r)
    return int(oldest(M, g, USED))


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
        soon = s.serial and owner >= 0 and M.blocks[owner].expected == s.serial
        if not M.roots[r].locked and not soon and not chunk_policy.in_flight(M, g, r):  # else it would fault again, for ever
            return int(r)
        r = M.roots[r].newer
    return NONE

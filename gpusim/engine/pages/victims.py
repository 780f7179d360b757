"""The eviction policy of a run: the driver's order, one of its variants, or a policy of `gpusim.policies` over chunks."""

from __future__ import annotations

from types import ModuleType

from gpusim.base.calls import parse
from gpusim.base.compiled import kernel, outlined
from gpusim.base.errors import PolicyError, suggest
from gpusim.engine.pages import chunk_policy
from gpusim.engine.pages.chunks import oldest
from gpusim.engine.pages.dispatch import dispatch
from gpusim.engine.pages.driver_tables import DISCARDED, NONE, UNUSED, USED, DriverState
from gpusim.engine.pages.evict import big_page, clean_drop, driver, early, tree
from gpusim.machine.driver_parameters import UvmError
from gpusim.policies.forms import EvictPolicy
from gpusim.policies.registry import SHIPPED, Registry, bind
from gpusim.policies.units import CHUNKS, check, units

POLICIES: dict[str, ModuleType] = {
    "driver": driver, "clean_drop": clean_drop, "early": early, "big_page": big_page, "tree": tree,
}  # fmt: skip
"""The driver's own order, and variants of how it gives memory out."""


def known(own: Registry = SHIPPED) -> tuple[str, ...]:
    """The names of all eviction policies that unified memory can have."""
    return (*POLICIES, *(entry.name for entry in own.entries("evict") if CHUNKS in units(entry)))


EVICT = known()


def refuse(text: str, own: Registry = SHIPPED) -> None:
    """Raises UvmError for a name that there is not, PolicyError for a policy that has no meaning for chunks."""
    name, given = parse(text)
    if name in POLICIES:
        if given:
            raise UvmError(f"the eviction policy '{name}' of unified memory has no parameters")
        return
    try:
        entry = own.find("evict", name)
    except PolicyError:
        raise UvmError(f"unified memory has no evict policy '{name}'", hint=suggest(name, known(own))) from None
    check(entry, CHUNKS)
    bind(entry, given)


def find(text: str, own: Registry = SHIPPED) -> EvictPolicy | str:
    """The policy that this text names: one of POLICIES by its name, any other ready to run.  Raises as `refuse`."""
    refuse(text, own)
    if parse(text)[0] in POLICIES:
        return text
    found: EvictPolicy = own.get("evict", text)
    if found.form not in chunk_policy.FORMS:
        raise found.error(f"is asked by compiled code, and numba cannot compile it: {found.uncompiled}")
    return found


def foresees(text: str, own: Registry = SHIPPED) -> bool:
    """Whether the policy reads the future."""
    name, _ = parse(text)
    return name not in POLICIES and own.find("evict", name).oracle


def module(text: str) -> ModuleType | None:
    """The variant of the driver that this text names."""
    return POLICIES.get(parse(text)[0])


def choose(M: DriverState, policy: EvictPolicy | str, seed: int) -> DriverState:
    """The policy of a run."""
    s = M.state[0]
    if isinstance(policy, EvictPolicy):
        return chunk_policy.install(M, policy, seed)
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

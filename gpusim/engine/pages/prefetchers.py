"""The prefetchers by name, and the one of a run."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from gpusim.base.calls import parse
from gpusim.base.compiled import kernel, outlined
from gpusim.base.tables import table
from gpusim.engine.pages import density, page_policy
from gpusim.engine.pages.asked import PythonPolicies
from gpusim.engine.pages.bits import clear, fill, none, subtract
from gpusim.engine.pages.dispatch import dispatch
from gpusim.engine.pages.driver_tables import (
    ATS,
    CONTEXT,
    CPU,
    GUESS,
    LEAVES,
    LINK,
    NONE,
    RESIDENT,
    STREAM,
    THRASHING,
    DriverState,
    row,
    scratch,
    shared,
)
from gpusim.engine.pages.named import NamedPolicies
from gpusim.engine.pages.prefetch import block, correlation, oracle, sequential, stride, tree
from gpusim.engine.pages.prefetch import none as nothing
from gpusim.policies.forms import PagePolicy
from gpusim.policies.registry import SHIPPED, Registry, bind
from gpusim.policies.units import PAGES

POLICIES: dict[str, ModuleType] = {
    "tree": tree, "none": nothing, "sequential": sequential, "block": block, "stride": stride, "correlation": correlation,
    "oracle": oracle,
}  # fmt: skip

NAMED = NamedPolicies("prefetch", "prefetcher", PAGES, POLICIES)
PREFETCHERS = NAMED.known()
refuse, find = NAMED.refuse, NAMED.find


def refuse_migration(text: str, own: Registry = SHIPPED) -> None:
    """Raises PolicyError for a migration policy that there is not."""
    name, given = parse(text)
    if name != "none":
        bind(own.find("migrate", name), given)


def migration(text: str, own: Registry = SHIPPED) -> PagePolicy | None:
    """The policy that says which blocks belong into the GPU's memory; None: the driver's rules."""
    if text == "none":
        return None
    found: PagePolicy = own.get("migrate", text)
    return found


def foresees(text: str) -> bool:
    """Whether the prefetcher reads the future."""
    return hasattr(POLICIES.get(parse(text)[0]), "FORESEES")


def choose(
    M: DriverState, chosen_one: PagePolicy | str, block: PagePolicy | None = None, asked: PythonPolicies | None = None
) -> DriverState:
    """The prefetcher of a run, with tables for what it learns, and its migration policy."""
    region = chosen_one if isinstance(chosen_one, PagePolicy) else None
    if region is not None or block is not None:
        M = page_policy.install(M, region, block, asked or PythonPolicies())
    name = "tree" if isinstance(chosen_one, PagePolicy) else chosen_one
    s, policy = M.state[0], POLICIES[name]
    s["prefetcher"] = tuple(POLICIES).index(name)
    s["learns"] = hasattr(policy, "LEARNS") or s["reaches"] or s["asks"]
    s["announces"] = hasattr(policy, "launched") or s["asks"]
    if not s["learns"]:
        return M
    links, contexts = table(correlation.LINKS, LINK), table(correlation.CONTEXTS, CONTEXT)
    links["kernel"] = contexts["key"] = NONE
    queue = M.queue if s["asks"] else np.zeros(len(M.blocks), np.int64)
    return M._replace(
        queue=queue, streams=table(len(M.ranges), STREAM), links=links, contexts=contexts
    )


@kernel
def chosen(M: DriverState) -> int:
    return int(M.state[0].prefetcher)


def _ignored(M: DriverState, g: int) -> None:
    """Most policies do not care for launches."""


def _alone(M: DriverState, p: int, b: int, faulted: int) -> None:
    """One policy brings nothing beside."""


def _no_more(M: DriverState, g: int) -> bool:
    """Most policies want only what they queue themselves."""
    return False


_launched = dispatch(chosen, POLICIES.values(), "launched", _ignored)
extend = dispatch(chosen, POLICIES.values(), "extend", _no_more)
_own = dispatch(chosen, POLICIES.values(), "propose", _alone)


@outlined
def launched(M: DriverState, g: int) -> None:
    """A kernel begins on GPU g."""
    if M.state[0].asks:
        page_policy.launches(M, g)
    else:
        _launched(M, g)


@outlined
def propose(M: DriverState, p: int, b: int, faulted: int, n_faulted: int) -> bool:
    """Row GUESS: the pages that come to processor p as well; False when there are none, or the block has faulted too seldom."""
    W, s, block = M.bits, M.state[0], M.blocks[b]
    out = scratch(M, GUESS)
    if not s.prefetch_enable:
        return False
    if block.kind == ATS:
        clear(W, out)
        first_touch = True
        for q in range(s.processors):
            first_touch = first_touch and none(W, row(M, q, RESIDENT, b))
        if first_touch and p != CPU and block.preferred == p:
            fill(W, out, 0, block.pages)
            return True
        here, thrashing = row(M, p, RESIDENT, b), shared(M, THRASHING, b)
        density.ats(W, faulted, here, thrashing, out, scratch(M, LEAVES), 0, block.pages, s.threshold)
        return not none(W, out)
    if block.last_destination != p:
        block.last_destination, block.fault_migrations = p, 0
    clear(W, out)
    if p == CPU and s.learns:
        tree.propose(M, p, b, faulted)
    elif s.regions and p != CPU:
        page_policy.propose(M, p, b, faulted)
    elif s.asks:
        if not page_policy.learns(M, p, b, faulted):
            tree.propose(M, p, b, faulted)
    else:
        _own(M, p, b, faulted)
    subtract(W, out, faulted)
    subtract(W, out, shared(M, THRASHING, b))
    block.fault_migrations = min(block.fault_migrations + n_faulted, 65535)
    return block.fault_migrations >= s.min_faults and not none(W, out)

"""What a policy decides about: tensors (and the chunks in which they move), or chunks, blocks and pages of unified memory.

One policy serves several of them where its verbs, or the facts that it reads, mean something for each.
"""

from __future__ import annotations

import inspect

from gpusim.base.errors import PolicyError
from gpusim.policies.entry import Entry
from gpusim.policies.facts import chunk_facts, tensor_facts

TENSORS, CHUNKS, PAGES, BLOCKS = "tensors", "chunks", "pages", "blocks"
UNIFIED = ("evict", "prefetch", "migrate")
"""Kinds that decide about unified memory."""


def units(entry: Entry) -> tuple[str, ...]:
    """Of a policy of a kind in UNIFIED; () of any other kind."""
    if entry.kind == "evict":
        read = set(entry.facts)
        return tuple(unit for unit, foreign in ((TENSORS, chunk_facts()), (CHUNKS, tensor_facts())) if not read & foreign
                     and not (unit == CHUNKS and _columns(entry)))  # fmt: skip
    if entry.kind == "prefetch":
        return (PAGES,) if entry.facts or learns(entry) else (TENSORS,)
    return (BLOCKS,) if entry.kind == "migrate" else ()


def learns(entry: Entry) -> bool:
    """Whether it is a class that hears of launches and faults."""
    return inspect.isclass(entry.target) and any(hasattr(entry.target, verb) for verb in ("launched", "faulted"))


def _columns(entry: Entry) -> bool:
    """Whether it decides about all candidates at once, which the driver does not ask; nor is the one that evicts nothing."""
    return bool(getattr(entry.target, "__gpusim_columns__", False)) or (entry.builtin and entry.name == "none")


def check(entry: Entry, unit: str) -> None:
    """PolicyError where the policy has no meaning for this unit."""
    if unit in units(entry):
        return
    foreign = sorted(set(entry.facts) & (tensor_facts() if unit == CHUNKS else chunk_facts())) if entry.kind == "evict" else []
    why, hint = f"has no meaning for {unit}", f"it decides about {' and '.join(units(entry))}"
    if foreign:
        why = f"reads '{foreign[0]}', which {unit} do not have"
        hint += f": unified: driver(evict={entry.name})" if unit == TENSORS else ""
    elif unit == CHUNKS and entry.name == "none":
        hint = "uvm_global_oversubscription=0 says that nothing may leave"
    elif unit == CHUNKS:
        why, hint = "reads whole columns of candidates, and the driver asks about one chunk", "a function of facts, or a class"
    elif unit == TENSORS and entry.kind == "prefetch":
        why, hint = "decides about the pages of a fault, which tensors do not have", "name it in unified: driver(prefetch=...)"
    elif unit == PAGES:
        why = "brings tensors before kernels; a page fault asks about regions"
        hint = "a function of facts of a region, or a class with launched(view, kernel) and faulted(view, block, pages)"
    raise PolicyError(f"{entry.kind} policy '{entry.name}' {why}", "" if entry.builtin else entry.where, hint)

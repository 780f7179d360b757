"""What a score may read about a candidate, and what follows from reading it.

The list itself belongs to the contract, which needs numba; this module reads the names without importing it, so that
listing policies and checking an experiment stay quick.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from gpusim.base.errors import PolicyError, suggest

_CONTRACT = Path(__file__).with_name("contract.py")


OF = {"evict": "FACTS", "pool": "POOL_FACTS", "prefetch": "REGION_FACTS", "migrate": "BLOCK_FACTS"}
"""Kinds of policies that are, or may be, scores -> the name of their facts in the contract."""
BEHIND = {"evict": "CHUNK_FACTS"}
"""What follows them in the vector."""


@cache
def facts(kind: str = "evict") -> dict[str, str]:
    """Fact -> meaning, in the order of the facts vector of this kind."""
    found = dict(_literal(OF[kind]))  # type: ignore[arg-type]
    return {**found, **dict(_literal(BEHIND[kind]))} if kind in BEHIND else found  # type: ignore[arg-type]


@cache
def tensor_facts() -> frozenset[str]:
    """The facts of an eviction policy that only tensors have."""
    return frozenset(_literal("TENSOR_FACTS"))


@cache
def chunk_facts() -> frozenset[str]:
    """Those that only chunks of unified memory have."""
    return frozenset(_literal("CHUNK_FACTS"))


@cache
def future_facts(kind: str = "evict") -> frozenset[str]:
    """The facts that only an oracle can know."""
    return frozenset(_literal(f"FUTURE_{OF[kind]}"))


def _literal(name: str) -> dict[str, str] | tuple[str, ...]:
    for node in ast.parse(_CONTRACT.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            value: dict[str, str] | tuple[str, ...] = ast.literal_eval(node.value)
            return value
    raise AssertionError(f"contract.py has no {name}")


def check(names: Iterable[str], policy: str, where: str, kind: str = "evict") -> tuple[str, ...]:
    """The names if each of them is a fact; PolicyError otherwise, with the fact that was probably meant."""
    names = tuple(names)
    for name in names:
        if name not in facts(kind):
            raise PolicyError(
                f"policy '{policy}' reads '{name}', which is not a fact", where,
                suggest(name, facts(kind)) or "facts: " + ", ".join(facts(kind)) + "; give it a default to make it a parameter",
            )  # fmt: skip
    return names


def knows(names: Iterable[str], kind: str = "evict") -> str:
    """'future' when one of the facts tells it, else 'past'."""
    return "future" if future_facts(kind) & set(names) else "past"

"""From an entry to a policy that can run: its module or class, its verbs compiled, in the form of its kind."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from gpusim.base.errors import PolicyError
from gpusim.policies import contract
from gpusim.policies import score_heap as heap
from gpusim.policies.ask import Ask, ColumnAsk, ObjectAsk
from gpusim.policies.compiled import verb
from gpusim.policies.decorators import check_verb
from gpusim.policies.entry import VIEWED, Entry, Value, vector
from gpusim.policies.evict import none
from gpusim.policies.forms import (
    CheckpointPolicy,
    DefragPolicy,
    EvictPolicy,
    JobsPolicy,
    PagePolicy,
    PlacementPolicy,
    PlacePolicy,
    PlanPolicy,
    Policy,
    PoolPolicy,
    PrefetchPolicy,
    ReleasePolicy,
    SchedulePolicy,
    TenantsPolicy,
)  # fmt: skip
from gpusim.policies.place.parts.guard import guarded
from gpusim.policies.schedule.parts import asked
from gpusim.policies.schedule.parts.running import ScheduleVerbs
from gpusim.policies.schedule.parts.tables import VERB
from gpusim.policies.schedule.parts.users import PythonScheduler
from gpusim.policies.scores import compile_score
from gpusim.policies.units import learns

LOADS = ("gpusim.policies",)  # packages whose modules are imported by name

VERBS: dict[str, dict[str, Any]] = {
    "evict": {"insert": contract.INSERT, "touch": contract.TOUCH, "remove": contract.REMOVE, "victim": contract.VICTIM},
    "place": {"alloc": contract.ALLOC, "free": contract.FREE, "release": contract.RELEASE, "largest": contract.LARGEST},
    "prefetch": {"propose": contract.PROPOSE, "note": contract.NOTE},
    "defrag": {"due": contract.DUE},
    "release": {"release": contract.RELEASING},
    "schedule": dict.fromkeys(ScheduleVerbs._fields, VERB),
}
OPTIONAL_VERBS: dict[str, dict[str, Any]] = {
    "evict": {"replay": contract.REPLAY},
    "place": {"use": contract.USE, "command": contract.COMMAND, "compact": contract.COMPACT, "remap": contract.REMAP},
}


def build(entry: Entry, values: Mapping[str, Value]) -> Policy:
    """The policy of this entry with these parameters (all of them, in order); compiles, or finds numba's cache."""
    target, module = entry.target, None
    if entry.builtin and target is None:
        module = importlib.import_module(entry.module)
        target = module if entry.kind == "plan" else getattr(module, entry.name, module)
    in_python = entry.kind in ("plan", *VIEWED)
    params = np.array([] if in_python else vector(entry, values), np.float64)
    common: dict[str, Any] = {"entry": entry, "values": values, "params": params}
    if entry.kind == "plan":
        return _planned(common, target)
    if entry.kind == "placement":
        return PlacementPolicy(**common, state=target)
    if entry.kind == "checkpoint":
        return CheckpointPolicy(**common, state=target)
    if entry.kind == "jobs":
        return JobsPolicy(**common, state=target)
    if entry.kind == "tenants":
        return TenantsPolicy(**common, state=target)
    common["module"] = module
    if entry.kind == "evict" and inspect.isfunction(target):
        return _scored(common, target)
    if entry.kind == "pool":
        return _pooled(common, target)
    if entry.kind == "migrate" or (entry.kind == "prefetch" and (inspect.isfunction(target) or learns(entry))):
        return _asked_of_pages(common, target)
    if entry.kind == "evict" and inspect.isclass(target) and _has_self(target):
        return _asked(common, lambda: ObjectAsk(entry, target, values))
    if entry.kind == "schedule" and not entry.builtin:
        return _scheduled(common, target)
    verbs = _verbs(entry, target)
    if entry.kind == "place":
        return PlacePolicy(**common, **verbs)
    if entry.kind == "prefetch":
        return PrefetchPolicy(**common, **verbs)
    if entry.kind == "release":
        return ReleasePolicy(**common, **verbs)
    if entry.kind == "schedule":
        return SchedulePolicy(**common, **verbs)
    if entry.kind == "defrag":
        return DefragPolicy(**common, **verbs, form=getattr(target, "FORM", "slide"))
    form = getattr(target, "FORM", "ordered")
    return EvictPolicy(**common, **verbs, form=form, touches=getattr(target, "TOUCHES", True))


def _scored(common: dict[str, Any], function: Any) -> EvictPolicy:
    entry, values = common["entry"], common["values"]
    score, why = None, "it asked for columns"
    if not getattr(function, "__gpusim_columns__", False):
        score, why = compile_score(entry, function)
    if score is None:
        return _asked(common, lambda: ColumnAsk(entry, function, values), uncompiled=why)

    form = "score_now" if {"now", "turns"} & set(entry.facts) else "score"
    # Without a fact that changes when a unit is used, its place in the heap does not change either.
    touches = not set(entry.facts) <= {"size", "reload_ns", "arrived", "born", "stage", "depth", "array"}
    return EvictPolicy(
        **common, form=form, state=heap.state, insert=heap.insert, touch=heap.touch, remove=heap.remove,
        victim=heap.victim, score=score, touches=touches, facts=entry.facts, sample=int(values.get("sample", 0)),
    )  # fmt: skip


def _compiled(entry: Entry, function: Any) -> Any:
    """The score of a policy that is a function of facts and cannot be asked in plain Python."""
    if not inspect.isfunction(function):
        raise PolicyError(f"{entry.kind} policy '{entry.name}' is no function of facts", entry.where)
    score, why = compile_score(entry, function)
    if score is None:
        raise PolicyError(f"{entry.kind} policy '{entry.name}' cannot be compiled: {why}", entry.where)
    return score


def _pooled(common: dict[str, Any], function: Any) -> PoolPolicy:
    entry = common["entry"]
    return PoolPolicy(**common, state=function, score=_compiled(entry, function), facts=entry.facts)


def _asked_of_pages(common: dict[str, Any], target: Any) -> PagePolicy:
    entry, values, made = common["entry"], dict(common["values"]), target
    if not inspect.isclass(target):
        score, _ = compile_score(entry, target)
        return PagePolicy(**common, state=target, score=score, facts=entry.facts, new=lambda: partial(target, **values))
    if entry.kind == "migrate":
        return PagePolicy(**common, state=made, score=None, facts=entry.facts, new=lambda: made(**values).belongs)
    return PagePolicy(**common, state=made, score=None, new=lambda: made(**values))


def _planned(common: dict[str, Any], target: Any) -> PlanPolicy:
    if inspect.isfunction(target):
        return PlanPolicy(**common, state=target, plan=target, rewrite=None)
    plan, rewrite = getattr(target, "plan", None), getattr(target, "rewrite", None)
    if plan is None and rewrite is None:
        entry = common["entry"]
        raise PolicyError(f"plan policy '{entry.name}' has no 'plan'", entry.where, "it needs plan, rewrite or both")
    state: Any = plan or rewrite
    return PlanPolicy(**common, state=state, plan=plan, rewrite=rewrite)


def _asked(common: dict[str, Any], new_ask: Callable[[], Ask], uncompiled: str = "") -> EvictPolicy:
    return EvictPolicy(
        **common, form="ask", state=none.state, insert=none.insert, touch=none.touch, remove=none.remove,
        victim=none.victim, facts=common["entry"].facts, new_ask=new_ask, uncompiled=uncompiled,
    )  # fmt: skip


def _scheduled(common: dict[str, Any], target: Any) -> SchedulePolicy:
    entry, values = common["entry"], common["values"]
    verbs = {name: getattr(asked, name) for name in VERBS["schedule"]}
    return SchedulePolicy(
        **common, state=asked.state, **verbs, new_asked=lambda running: PythonScheduler(entry, target, values, running)
    )


def _has_self(cls: Any) -> bool:
    first = next(iter(inspect.signature(cls.victim).parameters), "") if hasattr(cls, "victim") else "self"
    return first == "self"


def _verbs(entry: Entry, target: Any) -> dict[str, Any]:
    """The contract's functions of a module or class; those of a user's class are compiled here."""
    wanted = VERBS[entry.kind]
    needed = [*wanted] if entry.kind == "defrag" else ["state", *wanted]
    missing = [name for name in needed if not hasattr(target, name)]
    if missing:
        raise PolicyError(
            f"{entry.kind} policy '{entry.name}' has no '{missing[0]}'", entry.where,
            "it needs " + ", ".join(needed),
        )  # fmt: skip
    wanted = wanted | {k: v for k, v in OPTIONAL_VERBS.get(entry.kind, {}).items() if hasattr(target, k)}
    verbs = {name: getattr(target, name) for name in wanted}
    if inspect.isclass(target):
        for name, function in verbs.items():
            check_verb(entry, name, function, len(wanted[name].args))
        verbs = {name: verb(wanted[name])(function) for name, function in verbs.items()}
    if entry.kind == "place" and not entry.builtin:
        return guarded(target.state, verbs)
    return {"state": getattr(target, "state", None), **verbs}

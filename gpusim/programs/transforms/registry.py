"""Which transforms there are, and a trace through a chain of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from gpusim.base.errors import GpusimError
from gpusim.base.functions import Function, Functions, described
from gpusim.policies.decorators import MARK, place_of
from gpusim.policies.entry import Entry
from gpusim.policies.registry import SHIPPED, Registry

if TYPE_CHECKING:
    from gpusim.trace.trace import Trace

Chain = str | Sequence[str]
NONE = "none"  # the chain of no transform
# What changes the program comes first, in any order; then how GPUs share it and what leaves them, each of these once.
_ORDER = (("tensor_parallel",), ("expert_parallel",), ("pipeline",), ("data_parallel", "zero"), ("offload",))
_KNOWN = Functions("gpusim.programs.transforms", "transform", "Trace")
_T = TypeVar("_T", bound=Callable[..., "Trace"])


def entries(own: Registry = SHIPPED) -> list[Function]:
    """All transforms by name, a user's own last."""
    return _KNOWN.entries(_own(own))


def register(function: _T) -> _T:
    """Decorator: a function of a trace and parameters with defaults becomes a transform of its name."""
    where = place_of(function)
    made = described(function, where)
    if made.name in _KNOWN.builtin or made.name == NONE:
        raise GpusimError(f"transform '{made.name}' is built in", where, "give yours another name")
    entry = Entry(made.name, "transform", made.help, made.parameters, where=where, builtin=False, target=function)
    setattr(function, MARK, entry)
    return function


def _own(own: Registry) -> list[Function]:
    found = (entry for (kind, _), entry in own.own.items() if kind == "transform")
    return [Function(e.name, e.help, e.parameters, e.where, e.target) for e in found]


def steps(chain: Chain) -> list[str]:
    """The transforms of "a | b(x=1)", or of a list of them."""
    parts = chain.split("|") if isinstance(chain, str) else [part for each in chain for part in each.split("|")]
    found = [part.strip() for part in parts]
    if "" in found and found != [""]:
        raise GpusimError(f"'{chain}' has an empty step", hint="write transform | transform(parameter=value)")
    return [step for step in found if step not in ("", NONE)]


def check(chain: Chain, own: Registry = SHIPPED) -> None:
    """Raises GpusimError for a transform that does not exist or comes too late, or a parameter that it does not have."""
    _in_order([_KNOWN.bind(step, _own(own))[0].name for step in steps(chain)])


def sources(chain: Chain, own: Registry = SHIPPED) -> list[str | Entry]:
    """Where the transforms of a chain are: the modules of those that are built in, the entries of the others."""
    found = [_KNOWN.bind(step, _own(own))[0] for step in steps(chain)]
    return [own.own["transform", f.name] if f.target else f"{_KNOWN.package}.{f.name}" for f in found]


def apply(trace: Trace, chain: Chain, own: Registry = SHIPPED) -> Trace:
    """The trace after these transforms, checked; what was done stands in `meta["transforms"]`.

    chain   "precision(to=bf16) | checkpointing(every=2)", a list of such, or "none"
    own     a user's own transforms
    Raises GpusimError for what does not exist or comes too late, TraceError for a trace that lacks what a transform needs.
    """
    from gpusim.trace.answers import require
    from gpusim.trace.check import check_trace

    bound = [(step, *_KNOWN.bind(step, _own(own))) for step in steps(chain)]
    done = [step.partition("(")[0].strip() for step in trace.meta.get("transforms", ())]
    _in_order(done + [function.name for _, function, _ in bound])
    for step, function, values in bound:
        if function.target is None:  # all of ours change operators and what they touch
            require(trace, "accesses", f"the transform {function.name}")
        made = _KNOWN.load(function)(trace, **values)
        if function.target is not None:
            check_trace(made, lambda event, by=function.where or function.name: by)  # type: ignore[misc]
        trace = replace(made, meta={**made.meta, "transforms": [*made.meta.get("transforms", ()), step]})
    return trace


def around_ranks(chain: Chain, own: Registry = SHIPPED) -> tuple[str, str]:
    """(what changes the program before ranks divide it, what comes after that: from `offload` on)."""
    found = steps(chain)
    names = [_KNOWN.bind(step, _own(own))[0].name for step in found]
    late = next((i for i, name in enumerate(names) if name in _ORDER[-1]), len(names))
    return " | ".join(found[:late]) or NONE, " | ".join(found[late:]) or NONE


def _in_order(names: Sequence[str]) -> None:
    """Raises GpusimError for a built-in transform after one that it cannot look through: of the state that `zero` has spread
    or `offload` has removed, nothing can be changed any more."""
    reached, latest = -1, ""
    for name in (n for n in names if n in _KNOWN.builtin):
        place = next((at for at, group in enumerate(_ORDER) if name in group), -1)
        if place == reached >= 0:
            twice = f"'{name}' is in the chain twice" if name == latest else f"'{latest}' and '{name}' exclude each other"
            raise GpusimError(twice, hint="take one of them")
        if place < reached:
            raise GpusimError(f"transform '{name}' comes before '{latest}', not after it", hint=f"write {name} | {latest}")
        reached, latest = place, name

"""The decorators `@policy.evict`, `place`, `prefetch`, ... one for each kind: what they decorate has an entry.

    @policy.evict
    def cost_aware(size, last_use, now, staleness=1.0):
        \"\"\"Evict large tensors that have waited long.\"\"\"
        return -size * (now - last_use) ** staleness     # the lowest score leaves first

Arguments without default are facts (`gpusim.policies.facts`), those with default are the policy's parameters, the
docstring is its help.  A class has verbs instead; the arguments of its `__init__` that have a default are the parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

from gpusim.base.errors import PolicyError
from gpusim.policies import facts
from gpusim.policies.builtin import refuse_name
from gpusim.policies.entry import Entry, Number, check_number, split_help

# What `gpusim.policy` offers.
__all__ = [
    "checkpoint", "evict", "jobs", "migrate", "place", "placement", "plan", "pool", "prefetch", "release", "schedule",
    "tenants",
]  # fmt: skip

T = TypeVar("T", bound=Callable[..., Any])
MARK = "__gpusim_policy__"  # attribute that a decorated object carries: its Entry


@overload
def evict(target: T) -> T: ...
@overload
def evict(*, name: str = "", columns: bool = False, source: str = "") -> Callable[[T], T]: ...
def evict(target: T | None = None, *, name: str = "", columns: bool = False, source: str = "") -> Any:
    """An eviction policy: a function of facts, or a class with `victim(need, locked)` and other verbs.

    columns  do not compile: call the function once per decision with whole numpy columns instead of numbers
    source   the paper, when it is not in the docstring
    """
    return _decorate("evict", target, name, source, columns)


@overload
def place(target: T) -> T: ...
@overload
def place(*, name: str = "", source: str = "") -> Callable[[T], T]: ...
def place(target: T | None = None, *, name: str = "", source: str = "") -> Any:
    """An allocator: a class of plain functions `state, alloc, free, release, largest` as in the contract."""
    return _decorate("place", target, name, source)


@overload
def prefetch(target: T) -> T: ...
@overload
def prefetch(*, name: str = "", source: str = "", knows: str = "past") -> Callable[[T], T]: ...
def prefetch(target: T | None = None, *, name: str = "", source: str = "", knows: str = "past") -> Any:
    """A prefetcher: of tensors a class of plain functions `state, propose, note` as in the contract; of pages of unified memory
    a function of facts of a region around a page fault, which comes where the answer is above 0, or a class that learns:

    launched(self, view, kernel)       blocks that come while the link is idle, as a kernel begins
    faulted(self, view, block, pages)  blocks that come besides the pages that have faulted; with the fault what the driver's
                                       tree says, or those pages of the block that are among the answer

    view is a `gpusim.policies.page_view.PageView`; docs/gpu_ext.md has an example that runs.
    """
    return _decorate("prefetch", target, name, source, knows=knows)


@overload
def migrate(target: T) -> T: ...
@overload
def migrate(*, name: str = "", source: str = "") -> Callable[[T], T]: ...
def migrate(target: T | None = None, *, name: str = "", source: str = "") -> Any:
    """A migration policy of unified memory: a function of facts of a block, above 0 where it belongs into the GPU's memory.

    A block that does not is mapped where it is, and read over the link; one that is there and does not leaves while the link
    is idle.  A class has a method `belongs(self, ...)` of facts, and remembers what it likes.
    """
    return _decorate("migrate", target, name, source)


@overload
def release(target: T) -> T: ...
@overload
def release(*, name: str = "", source: str = "", knows: str = "past") -> Callable[[T], T]: ...
def release(target: T | None = None, *, name: str = "", source: str = "", knows: str = "past") -> Any:
    """A release policy: a class of plain functions `state, release` as in the contract."""
    return _decorate("release", target, name, source, knows=knows)


@overload
def pool(target: T) -> T: ...
@overload
def pool(*, name: str = "", source: str = "") -> Callable[[T], T]: ...
def pool(target: T | None = None, *, name: str = "", source: str = "") -> Any:
    """A pool policy: a function of facts that scores a unit in a memory below the device; the lowest takes it in.

    A lender that wants memory back has the unit with the highest score leave first.
    """
    return _decorate("pool", target, name, source)


@overload
def plan(target: T) -> T: ...
@overload
def plan(*, name: str = "", source: str = "") -> Callable[[T], T]: ...
def plan(target: T | None = None, *, name: str = "", source: str = "") -> Any:
    """An offline plan: a function `plan(view, parameter=default, ...) -> Schedule`, called once before the run: an oracle.

    view      what `gpusim.policies.planning.View` offers: the program (`work`, `live`, `gaps`), `capacity` in bytes, the
              `tiers` below with their rates, and `measure(schedule)`, the time of a run in ns; operators and tensors are
              dense numbers
    Schedule  `Schedule.of` rows (operator, EVICT or PREFETCH, tensor[, tier]), carried out when the host comes to the operator

    A class has the functions `plan`, `rewrite(view, ...) -> Trace`, or both, without `self`; `rewrite` comes first.

    Raises PolicyError, at the start of a run, for rows that name what does not exist and for an answer of another type.
    docs/policies.md has an example that runs.
    """
    return _decorate("plan", target, name, source, knows="future")


@overload
def schedule(target: T) -> T: ...
@overload
def schedule(*, name: str = "", source: str = "", knows: str = "past") -> Callable[[T], T]: ...
def schedule(target: T | None = None, *, name: str = "", source: str = "", knows: str = "past") -> Any:
    """A scheduler of a serving engine: a function `order(view)`, or a class with `order` and, where wanted, `victim`, `evict`.

    order(view)        the next step: numbers of requests that run, the first goes first; rows (request, tokens) say how many
                       tokens of each are computed
    victim(view, r)    the running request that gives its blocks up where r finds none; None: r waits, and gives up its own
    evict(view)        blocks of the prefix cache that are reused first

    view is a `gpusim.policies.schedule.parts.users.ServingView`; docs/serving.md has an example that runs.
    """
    return _decorate("schedule", target, name, source, knows=knows)


@overload
def placement(target: T) -> T: ...
@overload
def placement(*, name: str = "", source: str = "") -> Callable[[T], T]: ...
def placement(target: T | None = None, *, name: str = "", source: str = "") -> Any:
    """Which GPU each rank has: a function `mine(view, parameter=default, ...) -> list of GPUs by name`, in the order of ranks.

    view  what `gpusim.policies.placing.PlacementView` offers: `machine`, `gpus`, `ranks`, what the ranks exchange
          (`exchanges`, `traffic()`), `rate(a, b)`, and `estimate(gpus)`, the time of the program on these GPUs

    Raises PolicyError, before anything runs, for an answer that is no placement.  docs/policies.md has an example that runs.
    """
    return _decorate("placement", target, name, source)


@overload
def checkpoint(target: T) -> T: ...
@overload
def checkpoint(*, name: str = "", source: str = "") -> Callable[[T], T]: ...
def checkpoint(target: T | None = None, *, name: str = "", source: str = "") -> Any:
    """When a job is saved: a function `mine(view, parameter=default, ...) -> ns` of work until the next checkpoint.

    view  a `gpusim.policies.intervals.CheckpointView`: cost, flush, mean time between interruptions, what was seen so far

    It is asked whenever the job begins to compute.  docs/failures.md has an example that runs.
    """
    return _decorate("checkpoint", target, name, source)


@overload
def jobs(target: T) -> T: ...
@overload
def jobs(*, name: str = "", source: str = "") -> Callable[[T], T]: ...
def jobs(target: T | None = None, *, name: str = "", source: str = "") -> Any:
    """Which jobs of a cluster run on which GPUs: a function `place(view, parameter=default, ...)`, or a class with a verb.

    place(view)   one decision: (job, GPUs) starts a job, (job, GPUs, 0.5) on part of them, (job, ()) stops it, None: nothing
                  more now
    shares(view)  instead of it: {(job,): {type of GPU: share of time}}, in rounds

    view  a `gpusim.policies.cluster_view.ClusterView`, or a `gpusim.policies.clusters.ShareView`; docs/cluster.md has an
          example that runs.
    """
    return _decorate("jobs", target, name, source)


@overload
def tenants(target: T) -> T: ...
@overload
def tenants(*, name: str = "", source: str = "") -> Callable[[T], T]: ...
def tenants(target: T | None = None, *, name: str = "", source: str = "") -> Any:
    """Which of several programs has the GPU next where their memory does not suffice for all: a function
    `mine(view, parameter=default, ...) -> TenantTurn(tenant, ns, {other: bytes that leave})`, None: it stays as it is.

    view  a `gpusim.policies.tenant_memory.TenantsView`; docs/tenants.md has an example that runs.

    Raises PolicyError for a turn that its memory does not allow.
    """
    return _decorate("tenants", target, name, source)


def _decorate(
    kind: str, target: Any, name: str, source: str, columns: bool = False, knows: str = "past"
) -> Any:
    if target is None:
        return lambda later: _decorate(kind, later, name, source, columns, knows)
    entry = describe(kind, target, name, source, knows)
    setattr(target, MARK, entry)
    target.__gpusim_columns__ = columns
    if not entry.builtin:
        refuse_name(entry)
    return target


def describe(kind: str, target: Any, name: str = "", source: str = "", knows: str = "past") -> Entry:
    """The entry of a user's function or class; PolicyError when its arguments are not what a policy may ask for."""
    where = place_of(target)
    name = name or target.__name__
    text, paper = split_help(inspect.getdoc(target) or "")
    if inspect.isclass(target):
        names, parameters = _class_parameters(target, name, where)
    elif inspect.isfunction(target):
        names, parameters = _arguments(target, name, where)
    else:
        raise PolicyError(f"policy '{name}' is a {type(target).__name__}, not a function or a class", where)
    if kind in facts.OF and not inspect.isclass(target):
        facts.check(names, name, where, kind)
        knows = facts.knows(names, kind)
    elif kind == "migrate":
        if not callable(getattr(target, "belongs", None)):
            raise PolicyError(f"migrate policy '{name}' has no method 'belongs'", where, "belongs(self, here, accesses, ...)")
        names = facts.check(_arguments(target.belongs, name, where)[0][1:], name, where, kind)
    else:
        names = ()
    builtin = target.__module__ == f"gpusim.policies.{kind}.{name}"
    return Entry(name, kind, text, parameters, knows, source or paper, names, where, builtin, target)


def _arguments(function: Any, policy: str, where: str) -> tuple[tuple[str, ...], dict[str, Number]]:
    """(arguments without default, those with)."""
    names: list[str] = []
    parameters: dict[str, Number] = {}
    for argument in inspect.signature(function).parameters.values():
        if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            raise PolicyError(f"policy '{policy}' takes '*{argument.name}'; name the facts it reads", where)
        if argument.default is argument.empty:
            names.append(argument.name)
        else:
            check_number(argument.default, argument.name, policy, 0.0, where)
            parameters[argument.name] = argument.default
    return tuple(names), parameters


def _class_parameters(cls: Any, policy: str, where: str) -> tuple[tuple[str, ...], dict[str, Number]]:
    if "__init__" in cls.__dict__:
        names, parameters = _arguments(cls.__init__, policy, where)
        if len(names) > 1:
            message = f"policy '{policy}' cannot be made: its __init__ wants '{names[1]}'"
            raise PolicyError(message, where, "give parameters a default")
        return (), parameters
    return (), dict(getattr(cls, "PARAMS", {}))


def check_verb(entry: Entry, name: str, function: Any, many: int) -> None:
    """PolicyError when the verb of a user's class does not take the arguments of its contract, in order."""
    parameters = inspect.signature(function).parameters.values()
    if star := next((p for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.KEYWORD_ONLY)), None):
        said = f"takes '{str(star).partition(':')[0]}'"
    elif len(parameters) != many:
        said = f"takes {len(parameters)} arguments"
    else:
        return
    message = f"'{name}' of {entry.kind} policy '{entry.name}' {said}; its contract has {many} arguments"
    raise PolicyError(message, place_of(function) or entry.where, "see gpusim/policies/contract.py")


def place_of(target: Any) -> str:
    """file:line of a function or class, "" when it has none."""
    try:
        file = inspect.getsourcefile(target) or ""
        lines, first = inspect.getsourcelines(target)
        decorators = next((i for i, line in enumerate(lines) if line.lstrip().startswith(("def ", "class "))), 0)
        return f"{file}:{first + decorators}"
    except (OSError, TypeError):
        return ""

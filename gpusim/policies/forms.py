"""A policy that can run: an entry, its parameters, and its compiled verbs, ready for the engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from gpusim.base.errors import GpusimError, PolicyError
from gpusim.base.units import show_bytes
from gpusim.policies.ask import Ask, own_line
from gpusim.policies.compiled import F64
from gpusim.policies.entry import Entry, Value
from gpusim.policies.intervals import CheckpointView
from gpusim.policies.placing import PlacementView
from gpusim.policies.planning import Schedule, View
from gpusim.policies.schedule.parts.running import EngineLimits, Running
from gpusim.policies.schedule.parts.tables import RequestTable
from gpusim.policies.scores import no_score
from gpusim.policies.tenant_memory import TenantSeen, TenantsView, TenantTurn
from gpusim.trace.trace import Trace

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Policy:
    """What all kinds have in common.

    params  float64 values of the parameters, in the order of `entry.parameters` (or what `entry.numbers` makes of text)
    state   the function that makes the policy's empty tables; its arguments depend on the kind
    """

    entry: Entry
    values: Mapping[str, Value]
    params: F64
    state: Callable[..., Any]

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def kind(self) -> str:
        return self.entry.kind

    @property
    def oracle(self) -> bool:
        return self.entry.oracle

    @property
    def spec(self) -> str:
        """The shortest text that names this policy: parameters at their default are left out."""
        given = [f"{k}={_short(v)}" for k, v in self.values.items() if v != self.entry.parameters.get(k, 0)]
        return f"{self.name}({', '.join(given)})" if given else self.name

    def error(self, message: str) -> PolicyError:
        """For the engine, when the policy breaks its contract: the message, with the place of the policy's code."""
        return PolicyError(f"policy '{self.name}' {message}", self.entry.where)


@dataclass(frozen=True, eq=False)
class EvictPolicy(Policy):
    """How the engine finds its victims, by `form`:

    none       nothing leaves
    ordered    state, insert, touch, remove, victim: the policy's own tables
    score      the same verbs, of a heap; the engine passes key = score(facts, params) to insert and touch
    score_now  the score reads `now` or `turns`: the engine evaluates it for all (or `sample`) candidates at each decision
    ask        plain Python: see `gpusim.policies.ask`; `new_ask()` makes one for one simulation

    touches  False when `touch` does nothing
    facts    the names a score reads; uncompiled says why a function runs on columns, "" otherwise
    """

    form: str
    insert: Any
    touch: Any
    remove: Any
    victim: Any
    score: Any = no_score
    replay: Any = None  # None: pages of one size are replayed through the verbs above
    touches: bool = True
    facts: tuple[str, ...] = ()
    sample: int = 0
    new_ask: Callable[[], Ask] | None = None
    uncompiled: str = ""
    module: Any = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class PlacePolicy(Policy):
    alloc: Any
    free: Any
    release: Any
    largest: Any
    use: Any = None      # None: the allocator does not hear of other streams
    command: Any = None  # None: it has no commands
    compact: Any = None  # None: its blocks cannot be moved
    remap: Any = None    # None: its pages cannot be mapped elsewhere
    module: Any = field(default=None, repr=False)

    def table(self, capacity: int, n_units: int, max_live: int, program: Callable[[], tuple[Any, ...]]) -> Any:
        """Its empty table.  A policy that prepares is shown the program before: the columns of contract's `prepare`."""
        prepare = getattr(self.module, "prepare", None)
        ahead = () if prepare is None else (prepare(*program(), self.params),)
        return self.state(capacity, n_units, max_live, self.params, *ahead)


@dataclass(frozen=True, eq=False)
class PrefetchPolicy(Policy):
    propose: Any
    note: Any
    module: Any = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class DefragPolicy(Policy):
    """form: "none"; "slide": blocks are moved together; "remap": pages of holes are mapped elsewhere."""

    due: Any
    form: str
    module: Any = field(default=None, repr=False)

    def check(self, place: PlacePolicy) -> None:
        """PolicyError when the allocator does not offer what this policy asks for."""
        wanted = {"slide": "compact", "remap": "remap"}.get(self.form)
        if wanted and getattr(place, wanted) is None:
            able = "first_fit, next_fit, best_fit, worst_fit and tlsf can"
            raise PolicyError(f"place policy '{place.name}' cannot be defragmented by '{self.name}'", hint=able)


@dataclass(frozen=True, eq=False)
class ReleasePolicy(Policy):
    """state(capacity, params) -> the verb's tables."""

    release: Any
    module: Any = field(default=None, repr=False)

    @property
    def acts(self) -> bool:
        """False of the policy that releases nothing, which is the default."""
        return self.name != "none"


@dataclass(frozen=True, eq=False)
class SchedulePolicy(Policy):
    """state(shared, limits, params) -> its tables, each in one place of memory, its own first."""

    arrive: Any
    compose: Any
    over: Any
    leave: Any
    loaded: Any
    module: Any = field(default=None, repr=False)
    new_asked: Callable[[Running], Any] | None = None  # of a scheduler in plain Python

    def asked(self, running: Running) -> Any:
        """What answers where `compose` asks; None of a compiled scheduler."""
        return self.new_asked(running) if self.new_asked else None

    @property
    def spec(self) -> str:
        """name@version(parameters that differ from their default)."""
        version = self.values.get("version", "")
        name = f"{self.name}@{version}" if version else self.name
        others = {k: v for k, v in self.values.items() if k != "version" and v != self.entry.parameters[k]}
        return name + (f"({', '.join(f'{k}={_short(v)}' for k, v in others.items())})" if others else "")

    def start(self, requests: RequestTable, limits: EngineLimits) -> Running:
        """At work on these requests.  Raises PolicyError for limits with which its engine would not start."""
        return Running(self, requests, limits)


@dataclass(frozen=True, eq=False)
class PoolPolicy(Policy):
    """score(facts, params): of a unit in a memory below, in the order of contract.POOL_FACTS.  facts: the names it reads."""

    score: Any
    facts: tuple[str, ...] = ()
    module: Any = field(default=None, repr=False)

    @property
    def acts(self) -> bool:
        """False of the policy that takes the tiers in their order, which is the default."""
        return self.name != "none"


@dataclass(frozen=True, eq=False)
class PagePolicy(Policy):
    """What says yes (above 0) or no of pages of unified memory.

    prefetch  of a region around a page fault: does it come?  In the order of contract.REGION_FACTS
    migrate   of a block: does it belong into the GPU's memory?  In the order of contract.BLOCK_FACTS

    score  compiled; None: plain Python, which `new()` makes for one run: a function of `facts`, or an object with the methods
           `launched` and `faulted` of the contract
    """

    score: Any
    facts: tuple[str, ...] = ()
    new: Callable[[], Any] | None = None
    module: Any = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class PlanPolicy(Policy):
    """plan, rewrite: the functions of `gpusim.policies.planning`; None where the policy has none."""

    plan: Callable[..., Schedule] | None
    rewrite: Callable[..., Trace] | None

    @property
    def acts(self) -> bool:
        """False of the plan that does nothing, which is the default."""
        return self.name != "none"

    def schedule(self, view: View) -> Schedule:
        """What it plans; PolicyError when the program or the machine has no such thing."""
        assert self.plan is not None
        made = self._ask(self.plan, view, Schedule)
        mistake = made.mistake(view)
        if mistake:
            raise self.error(mistake)
        return made

    def program(self, view: View) -> Trace:
        """What it makes of the program."""
        assert self.rewrite is not None
        return self._ask(self.rewrite, view, Trace)

    def _ask(self, function: Callable[..., T], view: View, wanted: type[T]) -> T:
        made = _asked_for(self, function, view, self.values)
        if not isinstance(made, wanted):
            raise self.error(f"answers a {type(made).__name__}, not a {wanted.__name__}")
        return made


@dataclass(frozen=True, eq=False)
class PlacementPolicy(Policy):
    """The function of a policy of kind placement."""

    def order(self, view: PlacementView) -> Sequence[str]:
        """The GPUs that it answers, which may still be wrong."""
        made = _asked_for(self, self.state, view, self.values)
        if not isinstance(made, Sequence) or isinstance(made, str):
            raise self.error(f"answers a {type(made).__name__}, not a list of GPUs")
        return made


@dataclass(frozen=True, eq=False)
class CheckpointPolicy(Policy):
    """The function of a policy of kind checkpoint."""

    def interval(self, view: CheckpointView) -> float:
        """ns of work until the next checkpoint, math.inf: there is none.  PolicyError for what is no time above 0."""
        made = _asked_for(self, self.state, view, self.values)
        if not isinstance(made, int | float) or not made > 0.0:
            raise self.error(f"answers {made!r}, not a time above 0 ns until the next checkpoint")
        return float(made)


@dataclass(frozen=True, eq=False)
class TenantsPolicy(Policy):
    """The function of a policy of kind tenants."""

    def turn(self, view: TenantsView) -> TenantTurn | None:
        """The program that has the GPU next; None: it stays as it is.  PolicyError for a turn that memory does not allow."""
        made = _asked_for(self, self.state, view, self.values)
        if made is None:
            return None
        if not isinstance(made, TenantTurn):
            raise self.error(f"answers {made!r}, not a TenantTurn")
        one = view.of(made.tenant)
        if one is None or not made.ns > 0:
            to = f"to tenant {made.tenant}"
            gone = "which has ended or does not exist"
            no_time = f"for {made.ns:g} ns; a turn takes more (its parameters say how long)"
            raise self.error(f"gives the GPU {to}, {gone}" if one is None else f"gives the GPU {to} {no_time}")
        for number, size in made.leave.items():
            other = view.of(number)
            if other is None or number == made.tenant or not 0 < size <= other.there:
                has = "no memory there" if other is None else f"{show_bytes(other.there)} there"
                raise self.error(f"has {size} bytes of tenant {number} leave for tenant {made.tenant}; it has {has}")
        limits = {other.number: other.limit for other in view.tenants} | dict(made.limits)
        for number, limit in made.limits.items():
            self._check_limit(view.of(number), number, limit)
        there = {
            other.number: min(other.there, limits[other.number]) - made.leave.get(other.number, 0) for other in view.tenants
        }
        there[made.tenant] = limits[made.tenant]
        lacks = sum(there.values()) - view.capacity
        if lacks > 0:
            raise self.error(f"gives the GPU to tenant {made.tenant}, which needs {show_bytes(lacks)} more than are free")
        return made

    def _check_limit(self, one: TenantSeen | None, number: int, limit: int) -> None:
        if one is None:
            raise self.error(f"has a limit for tenant {number}, which has ended or does not exist")
        if not isinstance(limit, int) or not one.least <= limit <= one.claim:
            bounds = f"{show_bytes(one.least)}, its largest operator, to {show_bytes(one.claim)}, its claim"
            raise self.error(f"limits tenant {number} to {limit} bytes; it takes {bounds}")
        if one.away and limit < one.limit:
            said = f"limits tenant {number} to {limit} bytes while {one.away} of it are away"
            raise self.error(f"{said}: only one of both moves its memory")


@dataclass(frozen=True, eq=False)
class JobsPolicy(Policy):
    """The function or class of a policy of kind jobs."""

    def scheduler(self) -> JobScheduler:
        """A new scheduler.  PolicyError where it has neither of the verbs, or both."""
        needs = inspect.isfunction(self.state) and any(
            argument.default is argument.empty for argument in inspect.signature(self.state).parameters.values()
        )
        made = None if needs else self.state(**self.values)
        verbs = ["place"] if needs else [verb for verb in ("place", "shares") if hasattr(made, verb)]
        if len(verbs) != 1:
            raise self.error("has the verbs place and shares" if verbs else "has neither the verb place nor shares")
        return JobScheduler(made, verbs[0], self)

    def ask(self, function: Callable[..., Any], view: object, *more: Any) -> Any:
        """What its code answers; PolicyError, at its line, for what a user's own raises."""
        values = self.values if function is self.state else {}
        return _asked_for(self, function, view, values, *more)


class JobScheduler:
    """A scheduler of a cluster as the engine asks it, in whatever form it was written."""

    def __init__(self, made: Any, verb: str, policy: JobsPolicy) -> None:
        self.verb, self.policy, self.name = verb, policy, policy.spec
        self.packs, self.shuffles = bool(getattr(made, "packs", False)), bool(getattr(made, "shuffles", False))
        self.leftovers = bool(getattr(made, "leftovers", True))
        setattr(self, verb, self._asks(policy.state if made is None else getattr(made, verb)))
        self.arrived, self.left, self.failed = (self._asks(getattr(made, name, None)) for name in ("arrived", "left", "failed"))
        if (sizes := getattr(made, "sizes", None)) is not None:
            self.sizes = self._asks(sizes)

    def _asks(self, function: Any) -> Any:
        if function is None or (self.policy.entry.builtin and function is not self.policy.state):
            return function
        return partial(self.policy.ask, function)


def _asked_for(policy: Policy, function: Callable[..., Any], view: object, values: Mapping[str, Value], *more: Any) -> Any:
    """What a policy in plain Python answers; PolicyError, at its line, for what a user's own raises."""
    try:
        return function(view, *more, **values)
    except GpusimError:
        raise
    except Exception as error:
        if policy.entry.builtin:
            raise
        said = f"policy '{policy.name}' raised {type(error).__name__}: {error}"
        raise PolicyError(said, own_line(policy.entry, error)) from error


def _short(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:g}" if value != int(value) else f"{value:.0f}"
    return str(value)

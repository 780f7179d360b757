"""An experiment: one question, and the runs whose comparison answers it."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from dataclasses import dataclass as plain_dataclass
from dataclasses import fields
from itertools import product
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictInt, ValidationInfo, WithJsonSchema
from pydantic.dataclasses import dataclass

from gpusim.config.fields import STRICT, Fraction, checked, quantity_pattern, refuse
from gpusim.errors import GridError, UnitError
from gpusim.units import BYTES, FRACTION, parse, write

T = TypeVar("T")
Number = int | float
Figure = Literal[
    "policy_comparison", "memory_over_time", "time_breakdown", "traffic", "fragmentation", "address_map"
]  # fmt: skip

_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NEXT = re.compile(r",(?=\s*(?:\w+\s*=|$))")  # the comma before another parameter: text may have commas of its own
MAX_RUNS = 1000
SAMPLES, MAX_SAMPLES = 16, 10_000  # machines that are drawn when nothing is said, and at most
AS_RECORDED = "none"  # the chain of no transform


# ------------------------------------------------------------------ capacity


@plain_dataclass(frozen=True)
class Capacity:
    """Memory of a run: bytes, a fraction of the trace's footprint, or (neither) what the device (or host) has."""

    bytes: int | None = None
    fraction: float | None = None

    def resolve(self, footprint: int, machine: int) -> int:
        """Bytes, given the footprint (peak of live bytes) of the trace and what the machine offers."""
        if self.fraction is not None:
            return math.ceil(self.fraction * footprint)
        return machine if self.bytes is None else self.bytes

    def __str__(self) -> str:
        if self.fraction is not None:
            return write(self.fraction, FRACTION)
        return "capacity" if self.bytes is None else write(self.bytes, BYTES)


def _capacity(value: Any) -> Capacity:
    if isinstance(value, Capacity):
        return value
    if isinstance(value, str) and value.strip() == "capacity":
        return Capacity()
    try:
        if isinstance(value, str) and value.rstrip().endswith("%"):
            capacity = Capacity(fraction=float(parse(value, FRACTION)))
        else:
            capacity = Capacity(bytes=int(parse(value, BYTES)))
    except UnitError as error:
        other = "'60 %' of the footprint, or 'capacity'"
        raise UnitError(error.message, hint=f"{error.hint}; or {other}" if error.hint else f"write a size, {other}") from None
    if not (capacity.bytes or capacity.fraction):
        raise UnitError(f"'{value}' leaves no memory at all")
    return capacity


# ------------------------------------------------------------------ policies


@plain_dataclass(frozen=True)
class PolicySpec:
    """A policy by name, with the parameters given to it (sorted; the others keep their defaults)."""

    name: str
    params: tuple[tuple[str, Number | str], ...] = ()

    def __str__(self) -> str:
        return self.name + (f"({', '.join(f'{k}={v}' for k, v in self.params)})" if self.params else "")


def _policy(value: Any) -> PolicySpec:
    """From `name`, `name(k=4)` or `{name: {k: 4}}`."""
    if isinstance(value, PolicySpec):
        return value
    if isinstance(value, dict) and len(value) == 1:
        name, params = next(iter(value.items()))
        if not isinstance(params or {}, dict):
            raise refuse(f"the parameters of '{name}' must be a mapping", f"write {name}(parameter=value)")
    elif isinstance(value, str) and (match := _CALL.fullmatch(value)):
        name, params = match[1], _arguments(match[2] or "", value)
    else:
        raise refuse(f"{value!r} is not a policy", "write name, name(parameter=value) or {name: {parameter: value}}")
    for key, given in (params or {}).items():
        if isinstance(given, bool) or not isinstance(given, (int, float, str)):
            raise refuse(f"parameter '{key}' of '{name}' is {given!r}, neither a number nor text")
        if isinstance(given, float) and not math.isfinite(given):
            raise refuse(f"parameter '{key}' of '{name}' is {given!r}, not a number")
    return PolicySpec(name, tuple(sorted((params or {}).items())))


def _arguments(text: str, spec: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in _NEXT.split(text))):
        key, equals, given = (p.strip() for p in part.partition("="))
        if not (key and equals):
            raise refuse(f"'{part}' in '{spec}' is not a parameter", "write parameter=value")
        if key in values:
            raise refuse(f"'{spec}' gives parameter '{key}' twice")
        try:
            values[key] = int(given) if re.fullmatch(r"[-+]?\d{1,18}", given) else float(given)
        except ValueError:
            values[key] = given
    return values


# ------------------------------------------------------------------ the model


def _axis(value: Any) -> Any:
    """One value is an axis of one point."""
    if value == []:
        raise refuse("an empty list leaves nothing to run")
    if isinstance(value, (list, tuple)):
        counts = Counter(map(str, value))
        if twice := next((text for text, count in counts.items() if count > 1), None):
            raise refuse(f"'{twice}' stands twice in the list")
        return tuple(value)
    return (value,)


def _one_or_many(item: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"oneOf": [item, {"type": "array", "items": item, "minItems": 1}]})


_TEXT = {"type": "string", "minLength": 1}
_POLICY = {"type": ["string", "object"], "description": "name, name(parameter=value) or {name: {parameter: value}}"}
_MEMORY = {
    "type": "string",
    "pattern": rf"^(\s*capacity\s*|{quantity_pattern(BYTES)}|{quantity_pattern(FRACTION)})$",
    "description": "a size (32 GiB), a share of the trace's footprint (60 %), or capacity: what the machine has",
}


def _known(kind: str) -> AfterValidator:
    """Asks the loader, where there is one, whether the value names something: `context(kind, value)`."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        if (ask := info.context) is not None:
            checked(lambda v: ask(kind, v))(value)
        return value

    return AfterValidator(validate)


Text = Annotated[str, Field(min_length=1)]
Traces = Annotated[tuple[Annotated[Text, _known("trace")], ...], BeforeValidator(_axis), _one_or_many(_TEXT)]
Profiles = Annotated[tuple[Annotated[Text, _known("profile")], ...], BeforeValidator(_axis), _one_or_many(_TEXT)]
UserFile = Annotated[Text, _known("use")]
Memory = Annotated[
    tuple[Annotated[Capacity, BeforeValidator(checked(_capacity))], ...],
    BeforeValidator(_axis),
    _one_or_many(_MEMORY),
]
Spec = Annotated[PolicySpec, BeforeValidator(_policy)]
Place = Annotated[tuple[Annotated[Spec, _known("place")], ...], BeforeValidator(_axis), _one_or_many(_POLICY)]
Evict = Annotated[tuple[Annotated[Spec, _known("evict")], ...], BeforeValidator(_axis), _one_or_many(_POLICY)]
Prefetch = Annotated[tuple[Annotated[Spec, _known("prefetch")], ...], BeforeValidator(_axis), _one_or_many(_POLICY)]
Defrag = Annotated[tuple[Annotated[Spec, _known("defrag")], ...], BeforeValidator(_axis), _one_or_many(_POLICY)]
Transforms = Annotated[
    tuple[Annotated[Text, _known("transform")], ...],
    BeforeValidator(_axis),
    _one_or_many({**_TEXT, "description": "none, or transforms of the trace: checkpointing(every=2) | precision(to=bf16)"}),
]
Seeds = Annotated[
    tuple[Annotated[StrictInt, Field(ge=0, lt=2**63)], ...],
    BeforeValidator(_axis),
    _one_or_many({"type": "integer", "minimum": 0}),
]
Sentence = Annotated[str, Field(min_length=1, max_length=300)]
UpTo = Annotated[Fraction, Field(ge=0, lt=1)]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Policies:
    """Who decides; each a policy or a list of them."""

    place: Place = (PolicySpec("pytorch"),)
    evict: Evict = (PolicySpec("lru"),)
    prefetch: Prefetch = (PolicySpec("none"),)
    defrag: Defrag = (PolicySpec("none"),)


KINDS = tuple(field.name for field in fields(Policies))


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Options:
    """What every run of the experiment keeps beside its result."""

    log: StrictBool = False
    """The event log, from which `gpusim check` recomputes everything."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Uncertainty:
    """How sure the answer is: every run is repeated on machines drawn between the error bars of the profile."""

    samples: Annotated[StrictInt, Field(ge=0, le=MAX_SAMPLES)] = SAMPLES
    """Machines that are drawn; 0 for none."""
    estimated: UpTo = 0.15
    """How far a rate or time may be off that the profile estimates without error bars."""
    seed: Annotated[StrictInt, Field(ge=0, lt=2**63)] = 0
    """Which machines are drawn."""


def _uncertainty(value: Any) -> Any:
    """A number is that of the samples."""
    return {"samples": value} if isinstance(value, int) and not isinstance(value, bool) else value


Sampling = Annotated[Uncertainty, BeforeValidator(_uncertainty, json_schema_input_type=int | Uncertainty)]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Experiment:
    """A question and the grid that answers it: the product of all lists."""

    question: Sentence
    trace: Traces
    profile: Profiles
    memory: Memory = (Capacity(),)
    """Device memory that the program may use."""
    host_memory: Memory = (Capacity(),)
    """Host memory that swapped bytes may use; absent: what the profile's host has."""
    use: tuple[UserFile, ...] = ()
    """Files with policies of your own, relative to the experiment; before their use."""
    transform: Transforms = (AS_RECORDED,)
    """What each trace is turned into before it runs: `none`, or transforms as in `gpusim transforms`."""
    policies: Policies = Policies()
    seed: Seeds = (0,)
    jobs: Annotated[StrictInt, Field(ge=1)] | None = None
    """Worker processes; absent: as many as help."""
    options: Options = Options()
    uncertainty: Sampling = Uncertainty(samples=0)
    """Repeat every run on so many machines that the profile's error bars allow: `16`, or samples, estimated and seed."""
    bounds: StrictBool = True
    """Also run: no memory limit, oracle eviction; and compute the traffic bound."""
    figures: tuple[Figure, ...] = ("policy_comparison", "memory_over_time", "time_breakdown")
    max_runs: Annotated[StrictInt, Field(ge=1)] = MAX_RUNS
    """A larger grid is refused as a mistake."""


# ------------------------------------------------------------------ the grid


@plain_dataclass(frozen=True)
class RunSpec:
    """One point of the grid: all that decides its result, by name."""

    trace: str
    profile: str
    memory: Capacity
    host_memory: Capacity
    place: PolicySpec
    evict: PolicySpec
    prefetch: PolicySpec
    defrag: PolicySpec = PolicySpec("none")
    seed: int = 0
    log: bool = False
    transform: str = AS_RECORDED

    def plain(self) -> dict[str, Any]:
        """As JSON values; no transform is not named, so that it changes no hash."""
        return {
            "trace": self.trace,
            **({} if self.transform == AS_RECORDED else {"transform": self.transform}),
            "profile": self.profile,
            "memory": str(self.memory),
            "host_memory": str(self.host_memory),
            "place": str(self.place),
            "evict": str(self.evict),
            "prefetch": str(self.prefetch),
            "defrag": str(self.defrag),
            "seed": self.seed,
            "log": self.log,
        }

    @property
    def hash(self) -> str:
        """16 hex digits for what decides the result, the same in every process and on every machine."""
        decides = {name: value for name, value in self.plain().items() if name != "log"}
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]


def size(experiment: Experiment) -> int:
    """How many runs the grid has."""
    return math.prod(len(axis) for axis in _axes(experiment))


def expand(experiment: Experiment, allow_large: bool = False) -> list[RunSpec]:
    """All runs of the grid; the last axis (seed) varies fastest.

    Raises GridError above `max_runs`, unless `allow_large`.
    """
    runs = size(experiment)
    if runs > experiment.max_runs and not allow_large:
        lengths = " x ".join(str(len(axis)) for axis in _axes(experiment) if len(axis) > 1)
        raise GridError(
            f"the grid has {runs:,} runs ({lengths}), more than max_runs = {experiment.max_runs:,}",
            hint="shorten a list, raise max_runs, or pass --allow-large",
        )
    log = experiment.options.log
    return [
        RunSpec(trace, profile, memory, host, place, evict, prefetch, defrag, seed, log, transform)
        for trace, transform, profile, memory, host, place, evict, prefetch, defrag, seed in product(*_axes(experiment))
    ]


def _axes(e: Experiment) -> tuple[tuple[Any, ...], ...]:
    return e.trace, e.transform, e.profile, e.memory, e.host_memory, *(getattr(e.policies, kind) for kind in KINDS), e.seed

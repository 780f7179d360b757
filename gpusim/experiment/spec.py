"""An experiment: one question, and the runs whose comparison answers it."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from dataclasses import dataclass as plain_dataclass
from dataclasses import fields
from itertools import product
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictInt, ValidationInfo, WithJsonSchema
from pydantic.dataclasses import dataclass

from gpusim.base.defaults import LATER
from gpusim.base.errors import GridError
from gpusim.base.units import BYTES, FRACTION
from gpusim.base.yaml import ranges
from gpusim.base.yaml.fields import STRICT, Fraction, checked, quantity_pattern, refuse
from gpusim.base.yaml.values import NONE, Capacity, PolicySpec, capacity, policy, tiers
from gpusim.machine import sharing
from gpusim.machine.tenancy import way
from gpusim.programs.ranks.layout import DEGREES, NO_LAYOUT, parse_layout
from gpusim.programs.ranks.placement import placement_text
from gpusim.programs.ranks.stragglers import is_clock_file, parse_stragglers, stragglers_text
from gpusim.programs.transforms.pipeline_schedules import SCHEDULES

T = TypeVar("T")
Figure = Literal[
    "policy_comparison", "memory_over_time", "time_breakdown", "traffic", "oversubscription", "fault_map", "fragmentation",
    "address_map", "heat_map", "pareto", "distribution", "roofline", "swimlane", "durations", "links", "ranks_memory",
]  # fmt: skip

MAX_RUNS = 1000
SAMPLES, MAX_SAMPLES = 16, 10_000  # machines that are drawn when nothing is said, and at most
AS_RECORDED = LATER["transform"]  # the chain of no transform


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
    """Asks the loader, where there is one, whether the value names something.

    `context(kind, value)` answers None, or the value as it is called now.
    """

    def validate(value: Any, info: ValidationInfo) -> Any:
        found = checked(lambda v: ask(kind, v))(value) if (ask := info.context) is not None else None
        return value if found is None else found

    return AfterValidator(validate)


def _bounds(value: Any) -> Any:
    if value is not True and value is not False and value != "search":
        raise refuse(f"{value!r} is none of true, false, search")
    return value


Text = Annotated[str, Field(min_length=1)]
Traces = Annotated[tuple[Annotated[Text, _known("trace")], ...], BeforeValidator(_axis), _one_or_many(_TEXT)]
Profiles = Annotated[tuple[Annotated[Text, _known("profile")], ...], BeforeValidator(_axis), _one_or_many(_TEXT)]
UserFile = Annotated[Text, _known("use")]
TableFile = Annotated[Text, _known("kernel_times")]
Memory = Annotated[
    tuple[Annotated[Capacity, BeforeValidator(checked(capacity))], ...],
    BeforeValidator(_axis),
    _one_or_many(_MEMORY),
]
Spec = Annotated[PolicySpec, BeforeValidator(policy)]
Place = Annotated[tuple[Annotated[Spec, _known("place")], ...], BeforeValidator(_axis), _one_or_many(_POLICY)]
Evict = Annotated[tuple[Annotated[Spec, _known("evict")], ...], BeforeValidator(_axis), _one_or_many(_POLICY)]
Prefetch = Annotated[tuple[Annotated[Spec, _known("prefetch")], ...], BeforeValidator(_axis), _one_or_many(_POLICY)]
Defrag = Annotated[tuple[Annotated[Spec, _known("defrag")], ...], BeforeValidator(_axis), _one_or_many(_POLICY)]
Plans = Annotated[tuple[Annotated[Spec, _known("plan")], ...], BeforeValidator(_axis), _one_or_many(_POLICY)]
Release = Annotated[tuple[Annotated[Spec, _known("release")], ...], BeforeValidator(_axis), _one_or_many(_POLICY)]
Pools = Annotated[tuple[Annotated[Spec, _known("pool")], ...], BeforeValidator(_axis), _one_or_many(_POLICY)]
Transforms = Annotated[
    tuple[Annotated[Text, _known("transform")], ...],
    BeforeValidator(_axis),
    _one_or_many({**_TEXT, "description": "none, or transforms of the trace: checkpointing(every=2) | precision(to=bf16)"}),
]
def _grain(value: Any) -> str:
    """`tensor`, or the size of a chunk in its shortest form."""
    if value == LATER["grain"]:
        return str(value)
    from gpusim.trace import grain as of_trace  # with numba, which few experiments need here

    return of_trace.write(of_trace.parse(value))


Grains = Annotated[
    tuple[Annotated[str, BeforeValidator(checked(_grain))], ...],
    BeforeValidator(_axis),
    _one_or_many({
        "type": "string", "pattern": rf"^(\s*tensor\s*|{quantity_pattern(BYTES)})$",
        "description": "tensor: each moves as a whole; or the size of the chunks in which they move (2 MiB)",
    }),
]  # fmt: skip
Tiers = Annotated[
    tuple[Annotated[Text, BeforeValidator(tiers), _known("tiers")], ...],
    BeforeValidator(_axis),
    _one_or_many({**_TEXT, "description": "memories below the GPU's, nearest first: host > nvme(direct=1)"}),
]
Unified = Annotated[
    tuple[Annotated[Spec, _known("unified")], ...],
    BeforeValidator(_axis),
    _one_or_many({
        "type": ["string", "object"],
        "description": "none, or driver(...): evict, prefetch, migrate, advice and the driver's own module parameters",
    }),
]  # fmt: skip
Seeds = Annotated[
    tuple[Annotated[StrictInt, Field(ge=0, lt=2**63)], ...],
    BeforeValidator(_axis),
    _one_or_many({"type": "integer", "minimum": 0}),
]
def _share(value: Any) -> str:
    """What is shared, as one text."""
    return sharing.write(sharing.parse(value))


Share = Annotated[
    str,
    BeforeValidator(checked(_share)),
    WithJsonSchema({
        "oneOf": [
            {"const": sharing.NOTHING},
            {"type": "array", "items": {"enum": list(sharing.WORDS)}, "minItems": 1, "uniqueItems": True},
        ]
    }),
]  # fmt: skip
Percentages = Annotated[
    tuple[Annotated[StrictInt, Field(ge=1, le=100)], ...],
    BeforeValidator(_axis),
    _one_or_many({"type": "integer", "minimum": 1, "maximum": 100}),
]
def _layout(value: Any) -> str:
    """`none`, or the degrees in their shortest form."""
    return str(value) if value == NO_LAYOUT else str(parse_layout(value))


_DEGREE = {"type": "integer", "minimum": 1}
Layouts = Annotated[
    tuple[Annotated[str, BeforeValidator(checked(_layout))], ...],
    BeforeValidator(_axis),
    _one_or_many({
        "anyOf": [
            {**_TEXT, "description": "none, or degrees: data=4 tensor=2"},
            {
                "type": "object", "additionalProperties": False, "minProperties": 1,
                "properties": {
                    **dict.fromkeys(DEGREES, _DEGREE), "zero": {"type": "integer", "minimum": 0, "maximum": 3},
                    "schedule": {"enum": list(SCHEDULES)}, "sequence": {"type": "boolean"},
                },
            },
        ],
    }),
]  # fmt: skip
def _stragglers(value: Any) -> str:
    """`none`, the factors in their shortest form, or the name of a file."""
    return str(value).strip() if is_clock_file(value) else stragglers_text(parse_stragglers(value))


Stragglers = Annotated[
    tuple[Annotated[str, BeforeValidator(checked(_stragglers)), _known("stragglers")], ...],
    BeforeValidator(_axis),
    _one_or_many({
        "anyOf": [
            {**_TEXT, "description": "none, how much longer kernels take (3=1.1, 3=1.1@2ms..5ms), or a CSV file of rates"},
            {"type": "object", "minProperties": 1, "additionalProperties": {"type": "number", "exclusiveMinimum": 0}},
        ],
    }),
]  # fmt: skip
def _beside(value: Any) -> str:
    """`none`, or programs with a plus between them."""
    return " + ".join(part.strip() for part in str(value).split("+"))


Beside = Annotated[
    tuple[Annotated[str, BeforeValidator(checked(_beside)), _known("beside")], ...], BeforeValidator(_axis),
    _one_or_many({**_TEXT, "description": "none, or traces that run on the same GPU: bert-large-train-8 + resnet50-train"}),
]  # fmt: skip
def _tenancy(value: Any) -> str:
    """How the GPU is shared, in its shortest form."""
    spec = policy(value)
    way(spec)
    return str(spec)


Tenancies = Annotated[
    tuple[Annotated[str, BeforeValidator(checked(_tenancy))], ...], BeforeValidator(_axis),
    _one_or_many({
        "type": ["string", "object"],
        "description": "exclusive, time_slices(slice=2 ms), mps(cap=30, others_cap=70), mig(slice=3g.40gb), "
        "over_commit(policy=nvshare)",
    }),
]  # fmt: skip
Placements = Annotated[
    tuple[Annotated[str, BeforeValidator(checked(placement_text)), _known("placement")], ...], BeforeValidator(_axis),
    _one_or_many({
        **_TEXT, "description": "packed, spread, by_topology, your own policy, or GPUs in the order of ranks: gpu0 gpu3",
    }),
]  # fmt: skip
Bounds = Annotated[
    bool | Literal["search"],
    BeforeValidator(_bounds),
    WithJsonSchema({"enum": [True, False, "search"]}),
]
_RANGE = {
    "type": "object", "additionalProperties": False, "required": ["from", "to"], "description": "numbers between two ends",
    "properties": {**{key: {"type": ["number", "string"]} for key in ("from", "to", "step")}, "log": {"type": "boolean"}},
}  # fmt: skip
_VALUES = WithJsonSchema({"oneOf": [{"type": "array", "minItems": 2, "description": "one of these"}, _RANGE]})
Tune = dict[Text, Annotated[Any, BeforeValidator(ranges.values), _VALUES]]
Sentence = Annotated[str, Field(min_length=1, max_length=300)]
UpTo = Annotated[Fraction, Field(ge=0, lt=1)]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Policies:
    """The policies by kind; each a policy or a list of them."""

    place: Place = (PolicySpec("pytorch"),)
    evict: Evict = (PolicySpec("lru"),)
    prefetch: Prefetch = (NONE,)
    defrag: Defrag = (NONE,)
    plan: Plans = (NONE,)
    release: Release = (NONE,)
    pool: Pools = (NONE,)


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
    """Machines, by name or file; some numbers of one may be others: `a100-pcie-80gb(launch.submit=8 us, link.h2d=50 GB/s)`."""
    memory: Memory = (Capacity(),)
    """Device memory that the program may use."""
    host_memory: Memory = (Capacity(),)
    """Host memory that swapped bytes may use; absent: what the profile's host has."""
    tiers: Tiers = (LATER["tiers"],)
    """What lies below the device's memory, nearest first; what is full spills to the next: `host > nvme`."""
    grain: Grains = (LATER["grain"],)
    """In which pieces tensors move: `tensor`, or chunks of this size."""
    use: tuple[UserFile, ...] = ()
    """Files with policies of your own, relative to the experiment; stands before what may name them."""
    unified: Unified = (NONE,)
    """Unified memory: `none`, or `driver(...)`, whose page faults and evictions then take the place of the policies'."""
    share: Share = LATER["share"]
    """What activities of the GPU share: a list of `sms`, `memory` (bandwidth), `engines` (copies), or `none`; absent: all."""
    active_thread_percentage: Percentages = (int(LATER["active_thread_percentage"]),)
    """Percentage of the multiprocessors that the program's kernels may use together, as MPS limits it."""
    parallel: Layouts = (LATER["parallel"],)
    """How the program is divided over the GPUs of a machine that has several: `{data: 4, tensor: 2}`; all are simulated."""
    stragglers: Stragglers = (LATER["stragglers"],)
    """Ranks whose kernels take longer: `3=1.1`, 1.1 times as long on rank 3, or `3=1.1@2ms..5ms`; or a file of clock rates."""
    fold: StrictBool = False
    """Simulate one rank of each pipeline stage for all like it: the same result where they are, and refused where not."""
    placement: Placements = (LATER["placement"],)
    """Which GPU each rank has: a placement policy (`gpusim policies`), or the GPUs in the order of ranks: `gpu0 gpu3`."""
    kernel_times: TableFile | None = None
    """Your own measured kernel times, CSV: gpu, operator, dtype, shape, time_us; each machine takes the rows of its name."""
    beside: Beside = (LATER["beside"],)
    """Other programs on the GPU at the same time: `none`, or traces, `bert-large-train-8 + resnet50-train`."""
    tenancy: Tenancies = (LATER["tenancy"],)
    """How they share it: `exclusive` (a GPU each), `time_slices`, `mps(cap=30)` or `mig(slice=3g.40gb)`."""
    transform: Transforms = (AS_RECORDED,)
    """What each trace is turned into before it runs: `none`, or transforms as in `gpusim transforms`."""
    policies: Policies = Policies()
    seed: Seeds = (0,)
    jobs: Annotated[StrictInt, Field(ge=1)] | None = None
    """Worker processes; absent: as many as help."""
    options: Options = Options()
    uncertainty: Sampling = Uncertainty(samples=0)
    """Repeat every run on so many machines that the profile's error bars allow: `16`, or samples, estimated and seed."""
    bounds: Bounds = True
    """Also run: no memory limit, oracle eviction; and compute the traffic bound.  `search`: the best plan found, too."""
    figures: tuple[Figure, ...] = ("policy_comparison", "memory_over_time", "time_breakdown")
    max_runs: Annotated[StrictInt, Field(ge=1)] = MAX_RUNS
    """A larger grid is refused as a mistake."""
    tune: Tune = Field(default_factory=dict)
    """What `gpusim tune` varies: axis (`policies.evict`) or parameter (`policies.prefetch.next_k.k`) -> a range or a list."""


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
    defrag: PolicySpec = NONE
    plan: PolicySpec = NONE
    release: PolicySpec = NONE
    pool: PolicySpec = NONE
    seed: int = 0
    log: bool = False
    transform: str = AS_RECORDED
    grain: str = LATER["grain"]
    tiers: str = LATER["tiers"]
    unified: PolicySpec = NONE
    share: str = LATER["share"]
    active_thread_percentage: int = int(LATER["active_thread_percentage"])
    parallel: str = LATER["parallel"]
    placement: str = LATER["placement"]
    stragglers: str = LATER["stragglers"]
    fold: bool = False
    beside: str = LATER["beside"]
    tenancy: str = LATER["tenancy"]

    def plain(self) -> dict[str, Any]:
        """As JSON values; what came later is not named at its default, so that it changes no hash."""
        return {
            "trace": self.trace,
            **self.later,
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
    def later(self) -> dict[str, str]:
        """What LATER names, where it is not the default."""
        words = {name: str(getattr(self, name)) for name in LATER}
        return {name: word for name, word in words.items() if word != LATER[name]}

    @property
    def hash(self) -> str:
        """16 hex digits for what decides the result, the same in every process and on every machine."""
        decides = {name: value for name, value in self.plain().items() if name != "log"}
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]


def size(experiment: Experiment) -> int:
    """How many runs the grid has."""
    return math.prod(len(axis) for axis in _axes(experiment).values())


def expand(experiment: Experiment, allow_large: bool = False) -> list[RunSpec]:
    """All runs of the grid; the last axis (seed) varies fastest.

    Raises GridError above `max_runs`, unless `allow_large`.
    """
    runs = size(experiment)
    if runs > experiment.max_runs and not allow_large:
        lengths = " x ".join(str(len(axis)) for axis in _axes(experiment).values() if len(axis) > 1)
        raise GridError(
            f"the grid has {runs:,} runs ({lengths}), more than max_runs = {experiment.max_runs:,}",
            hint="shorten a list, raise max_runs, or pass --allow-large",
        )
    axes = _axes(experiment)
    same: dict[str, Any] = {"share": experiment.share, "log": experiment.options.log, "fold": experiment.fold}
    return [RunSpec(**dict(zip(axes, point, strict=True)), **same) for point in product(*axes.values())]


def _axes(e: Experiment) -> dict[str, tuple[Any, ...]]:
    """The lists of an experiment by the names that a run has for them; the last varies fastest."""
    names = ("trace", "transform", "grain", "profile", "tiers", "unified", "memory", "host_memory", "active_thread_percentage",
             "parallel", "placement", "stragglers", "beside", "tenancy")  # fmt: skip
    policies = {kind: getattr(e.policies, kind) for kind in KINDS}
    return {**{name: getattr(e, name) for name in names}, **policies, "seed": e.seed}

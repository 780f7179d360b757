"""What the keys of an experiment may hold: each type checks a value, writes it in its shortest form and has a JSON schema."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictInt, ValidationInfo, WithJsonSchema

from gpusim.base.defaults import LATER
from gpusim.base.units import BYTES, FRACTION
from gpusim.base.yaml import ranges
from gpusim.base.yaml.fields import Fraction, checked, quantity_pattern, refuse
from gpusim.base.yaml.values import Capacity, PolicySpec, capacity, policy, tiers
from gpusim.machine import sharing
from gpusim.machine.tenancy import way
from gpusim.programs.ranks.layout import DEGREES, NO_LAYOUT, parse_layout
from gpusim.programs.ranks.placement import placement_text
from gpusim.programs.ranks.stragglers import is_clock_file, parse_stragglers, stragglers_text
from gpusim.programs.transforms.pipeline_schedules import SCHEDULES


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

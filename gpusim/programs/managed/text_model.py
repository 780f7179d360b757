"""What the text of a managed program may say; `text.py` turns it into the program."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    SkipValidation,
    StrictInt,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.dataclasses import dataclass

from gpusim.base.errors import suggest
from gpusim.base.yaml.fields import STRICT, Bytes, Nanoseconds, checked, refuse
from gpusim.base.yaml.values import PolicySpec, policy
from gpusim.programs.managed import forms
from gpusim.programs.managed.steps import Hint

Count = Annotated[StrictInt, Field(ge=1, le=1 << 40)]
Natural = Annotated[StrictInt, Field(ge=0, le=1 << 60)]
IN_SEARCH = ("node", "edge", "neighbour")  # patterns of a kernel with a frontier


def _known(name: str, info: ValidationInfo) -> str:
    arrays = info.context or {}
    if name not in arrays:
        raise refuse(f"no array is called '{name}'", suggest(name, arrays))
    return name


def _one_of(*keys: str) -> ConfigDict:
    """Of a mapping that has one of these keys, which editors are told."""
    return ConfigDict(**STRICT, json_schema_extra={"oneOf": [{"required": [key]} for key in keys]})


def _list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _pair(value: Any) -> Any:
    """256 is a block, or a grid, of one dimension."""
    if isinstance(value, int):
        return [value, 1]
    if not isinstance(value, list) or len(value) != 2:
        raise refuse(f"{value!r} is neither a whole number nor two of them", "write 256, or [32, 8] for two dimensions")
    return value


def _whole(value: Any) -> Any:
    """1e9 is a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _spec(value: Any) -> PolicySpec:
    """A pattern is written as a policy is."""
    if isinstance(value, str) and value.count("(") > value.count(")"):
        raise refuse(f"'{value}' ends within its brackets", 'put it in quotes: "zipf(alpha=1.1, seed=3)"')
    return policy(value)


def _streams(value: Any) -> Any:
    """One stream is a list of it."""
    said = [value] if isinstance(value, int) else value
    if said in ("all", "none") or (isinstance(said, list) and all(type(one) is int and one >= 0 for one in said)):
        return said
    raise refuse(f"'{value}' names no streams", "all, none, or numbers: after: [0, 2]")


def _processor(value: Any) -> Any:
    if value in ("cpu", "gpu") or (type(value) is int and 1 <= value <= GPUS):
        return value
    raise refuse(f"'{value}' is no processor", f"cpu, gpu, or of several GPUs a number from 1 to {GPUS}")


def _pattern(spec: PolicySpec) -> PolicySpec:
    checked(lambda s: forms.check(s, IN_SEARCH))(spec)
    return spec


Name = Annotated[str, AfterValidator(_known)]
Text = Annotated[str, Field(min_length=1)]
Names = Annotated[list[Name], BeforeValidator(_list, json_schema_input_type=Text | list[Text]), Field(min_length=1)]
Pair = Annotated[tuple[Count, Count], BeforeValidator(_pair, json_schema_input_type=Count | tuple[Count, Count])]
Operations = Annotated[Natural, BeforeValidator(_whole)]
Pattern = Annotated[
    PolicySpec, BeforeValidator(_spec), AfterValidator(_pattern),
    WithJsonSchema({"type": ["string", "object"], "description": "name, name(parameter=value) or {name: {parameter: value}}"}),
]  # fmt: skip
GPUS = 16
_NUMBER = {"type": "integer", "minimum": 0}
GpuNumber = Annotated[StrictInt, Field(ge=1, le=GPUS)]
Streams = Annotated[
    SkipValidation[str | list[int]], BeforeValidator(_streams),
    WithJsonSchema({"anyOf": [{"enum": ["all", "none"]}, _NUMBER, {"type": "array", "items": _NUMBER}]}),
]  # fmt: skip
Processor = Annotated[
    SkipValidation[str | int], BeforeValidator(_processor),
    WithJsonSchema({"anyOf": [{"enum": ["cpu", "gpu"]}, {"type": "integer", "minimum": 1, "maximum": GPUS}]}),
]  # fmt: skip


@dataclass(frozen=True, config=_one_of("bytes", "shape"), kw_only=True)
class ArrayText:
    """An allocation: its size, or the shape of a matrix."""

    bytes: Bytes | None = None
    shape: tuple[Count, Count] | None = None
    """Rows and columns, stored row after row."""
    element: Bytes = 4
    """What a thread touches at once, where an access does not say otherwise."""
    kind: Literal["managed", "system", "device"] = "managed"
    """cudaMallocManaged, malloc (which GPUs reach by ATS or HMM), or cudaMalloc (memory of the GPU, which never faults)."""
    address: Natural | None = None
    """Where a recording that names addresses saw it."""
    at: Bytes = 0
    """Where it begins in its 2 MiB of addresses; large allocations begin at 0."""


def _array(value: Any) -> Any:
    """A size is an array of so many bytes."""
    return {"bytes": value} if isinstance(value, str | int | float) and not isinstance(value, bool) else value


@dataclass(frozen=True, config=_one_of("read", "write", "update"), kw_only=True)
class AccessText:
    """What each thread does once a step: one of read, write, update (reads, then writes), and where."""

    read: Name | None = None
    write: Name | None = None
    update: Name | None = None
    pattern: Pattern = PolicySpec("streaming")
    bytes: Bytes | None = None
    """Of one thread's access; absent: the array's element."""
    start: Natural = 0
    """The element at which the pattern begins."""
    elements: Count | None = None
    """Elements that the kernel believes the array to have (its `if (i < n)`); absent: those that it has."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FrontierText:
    """A breadth-first search of a random graph: the kernel runs once for each level, a thread for each node of it."""

    nodes: Count
    degree: Count = 8
    """Edges of each node, to random nodes."""
    seed: Natural = 1
    start: Natural = 0
    """The node at which the search begins."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class KernelText:
    """A kernel; its threads are as many as take the first access over its array once, unless said."""

    kernel: Text
    accesses: Annotated[list[AccessText], Field(min_length=1)]
    threads: Count | None = None
    """In all; with fewer than elements, each goes on by so many elements in each step."""
    grid: Pair | None = None
    """Thread blocks; instead of threads."""
    block: Pair = (256, 1)
    """Threads of a thread block: 256, or [32, 8]."""
    steps: Count | None = None
    """How often a thread does its accesses; absent: until the first has covered its array."""
    repeats: Count = 1
    """How often all of that is done again: reuse of what was touched."""
    stream: Natural = 0
    """Kernels of one stream go one after the other, those of several side by side."""
    gpu: GpuNumber = 1
    """Of several GPUs that use the program's memory, which one runs it."""
    time: Nanoseconds | None = None
    """Without a fault; absent: what its accesses and its arithmetic take."""
    flops: Operations = 0
    """Of fp32 in all: a kernel that computes takes as long as they do, if its accesses take no longer."""
    frontier: FrontierText | None = None


@dataclass(frozen=True, config=_one_of("host_read", "host_write"), kw_only=True)
class HostText:
    """The CPU reads or writes arrays from their beginning to their end, or a part of them."""

    host_read: Names | None = None
    host_write: Names | None = None
    first: Bytes = 0
    count: Bytes | None = None
    after: Streams = "all"
    """For which streams the program waits before: all, none, or some by number.  Kernels behind it begin when it is over."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class PrefetchText:
    """cudaMemPrefetchAsync, and waiting for it unless it has a stream."""

    prefetch: Names
    to: Processor = "gpu"
    first: Bytes = 0
    count: Bytes | None = None
    stream: Natural | None = None
    """In which it takes its turn, while the program goes on; absent: the program waits for it."""
    gpu: GpuNumber = 1
    """Of several GPUs the one whose stream that is."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class AdviseText:
    """cudaMemAdvise."""

    advise: Names
    hint: Hint
    processor: Processor = "gpu"
    after: Streams = "all"
    """For which streams the program waits before, as for the CPU's reads and writes."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class DiscardText:
    """What arrays hold is not needed any more."""

    discard: Names
    first: Bytes = 0
    count: Bytes | None = None
    after: Streams = "all"
    """For which streams the program waits before, as for the CPU's reads and writes."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FreeText:
    free: Names


@dataclass(frozen=True, config=STRICT, kw_only=True)
class RecordingText:
    """The kernels of a recording of accesses (`recorded.py`), in their order."""

    recording: Text
    """A CSV, relative to the program's file."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class RepeatText:
    """Steps, several times over."""

    repeat: Annotated[StrictInt, Field(ge=1, le=100_000)]
    steps: Annotated[list[SkipValidation[Step]], Field(min_length=1)]


START = "start"  # a step of one word: from here on the run is timed and counted
WAIT = "wait"  # and another: what follows begins when all kernels have ended

# As editors see one; each is read by itself, when the arrays are known.
Step = (
    KernelText | HostText | PrefetchText | AdviseText | DiscardText | FreeText | RecordingText | RepeatText
    | Literal["start", "wait"]
)

# The key that says what a step is -> the step.
STEPS: dict[str, type] = {
    "kernel": KernelText, "host_read": HostText, "host_write": HostText, "prefetch": PrefetchText, "advise": AdviseText,
    "discard": DiscardText, "free": FreeText, "recording": RecordingText, "repeat": RepeatText,
}  # fmt: skip


@dataclass(frozen=True, config=STRICT, kw_only=True)
class ProgramText:
    arrays: dict[str, Annotated[ArrayText, BeforeValidator(_array, json_schema_input_type=Bytes | ArrayText)]] = field(
        default_factory=dict
    )
    steps: Annotated[list[SkipValidation[Step]], Field(min_length=1)]

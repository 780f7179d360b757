"""How ranks divide a program: degrees of parallelism, and the ranks of each group."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gpusim.base.errors import GpusimError, suggest
from gpusim.programs.transforms.pipeline_schedules import ONE_BY_ONE, Pipeline, check_schedule

NO_LAYOUT = "none"
AS_RECORDED = "recorded"
"""Of a program that was recorded on many ranks, which no layout divides; in results only."""
DEGREES = ("data", "tensor", "pipeline", "microbatches", "chunks", "expert")
_STEPS = re.compile(r"pipeline(?:_[a-z0-9_]+)?([+-]\d+)")
_UNKNOWN = {"context": "context parallelism is not simulated"}
_YES, _NO = ("true", "yes"), ("false", "no")
_LAYOUT_HINT = "write data=8, or tensor=4 pipeline=2 microbatches=8"


@dataclass(frozen=True)
class RankLayout:
    """Degrees of parallelism; ranks are numbered as Megatron-LM does: tensor first, then data, then pipeline.

    zero          the stage of ZeRO over the data-parallel ranks; 0: each holds all
    microbatches  passes of each step through the pipeline
    schedule      of the pipeline: one of `programs.transforms.pipeline_schedules.SCHEDULES`
    chunks        runs of layers that each stage of an interleaved schedule has
    sequence      tensor-parallel ranks divide the tokens where they do not divide the layers
    expert        so many neighbours among the data-parallel ranks divide each layer's experts

    Source: NVIDIA/Megatron-LM, megatron/core/parallel_state.py, order "tp-cp-ep-dp-pp".
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    zero: int = 0
    microbatches: int = 1
    schedule: str = ONE_BY_ONE
    chunks: int = 1
    sequence: bool = False
    expert: int = 1

    def __post_init__(self) -> None:
        """Raises GpusimError for degrees that no program can have."""
        for name in DEGREES:
            if getattr(self, name) < 1:
                raise GpusimError(f"the degree {name} is {getattr(self, name)}", hint="write 1 for none")
        if not 0 <= self.zero <= 3:
            raise GpusimError(f"zero is {self.zero}", hint="the stages are 1, 2 and 3, and 0 for none")
        check_schedule(self.schedule, Pipeline(self.pipeline, self.microbatches, self.chunks))
        alone = {
            f"schedule={self.schedule} orders the stages of a pipeline": self.schedule != ONE_BY_ONE and self.pipeline == 1,
            "sequence=true divides tokens over the tensor-parallel ranks": self.sequence and self.tensor == 1,
        }
        for what, wrong in alone.items():
            if wrong:
                raise GpusimError(f"{what}, and there is one", hint="say pipeline=4, or tensor=2")
        for name, value in (("zero", self.zero), ("tensor", self.tensor)):
            if self.expert > 1 and value != getattr(RankLayout, name):
                raise GpusimError(f"expert={self.expert} beside {name}={value} is not simulated", hint="leave one of them out")
        if self.data % self.expert:
            raise GpusimError(f"expert={self.expert} divides experts over data-parallel ranks, and there are {self.data}")

    def __str__(self) -> str:
        """As `parse_layout` reads it: "data=2 tensor=4"; "data=1" of one rank."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        words = {name: str(value).lower() for name, value in said.items() if value != getattr(RankLayout, name)}
        return " ".join(f"{name}={word}" for name, word in words.items()) or "data=1"

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self.data * self.tensor * self.pipeline

    @property
    def divides_layers(self) -> bool:
        """By layers or by experts, which a program may have too few of."""
        return self.pipeline > 1 or self.expert > 1

    def place(self, rank: int) -> tuple[int, int, int]:
        """(tensor, data, pipeline) coordinates of a rank, from 0."""
        rest, tensor = divmod(rank, self.tensor)
        stage, data = divmod(rest, self.data)
        return tensor, data, stage

    def rank(self, tensor: int, data: int, stage: int) -> int:
        """The rank at these coordinates."""
        return tensor + self.tensor * (data + self.data * stage)

    def members(self, rank: int, group: str) -> tuple[int, ...]:
        """The ranks of a rank's group, as `trace.exchanges` names it, in their order; of "pipeline+1" that a stage on.

        Raises GpusimError for a group that there is not.
        """
        tensor, data, stage = self.place(rank)
        if group == "tensor":
            return tuple(self.rank(t, data, stage) for t in range(self.tensor))
        if group == "data":
            return tuple(self.rank(tensor, d, stage) for d in range(self.data))
        if group == "expert":
            first = data // self.expert * self.expert
            return tuple(self.rank(tensor, d, stage) for d in range(first, first + self.expert))
        if group == "expert_data":  # those with the same experts
            return tuple(self.rank(tensor, d, stage) for d in range(data % self.expert, self.data, self.expert))
        if steps := _STEPS.fullmatch(group):
            other = stage + int(steps[1])
            if 0 <= other < self.pipeline:
                return (self.rank(tensor, data, other),)
            raise GpusimError(f"rank {rank} is of stage {stage + 1} of {self.pipeline}, and has no stage {other + 1}")
        if group[0].isdigit():
            named = tuple(int(number) for number in group.partition("@")[0].split(","))
            if max(named) < self.ranks:
                return named
            raise GpusimError(f"rank {rank} names rank {max(named)}, and there are {self.ranks}")
        raise GpusimError(f"rank {rank} belongs to no group '{group}'", hint="the groups are tensor, data, expert and pipeline")

    def transform(self, stage: int) -> str:
        """The chain of transforms that makes the program of a stage's ranks, from 0; "" for the program as it is."""
        experts = f", expert={self.expert}" if self.expert > 1 else ""
        sharded = f"zero(stage={self.zero}, ranks={self.data})"
        return " | ".join(
            word for word, wanted in (
                (f"accumulate(steps={self.microbatches})", self.pipeline == 1 and self.microbatches > 1),
                (f"tensor_parallel(ranks={self.tensor}{', sequence=yes' if self.sequence else ''})", self.tensor > 1),
                (f"expert_parallel(ranks={self.expert})", self.expert > 1),
                (self._pipeline(stage), self.pipeline > 1),
                (sharded if self.zero else f"data_parallel(ranks={self.data}{experts})", self.data > 1),
            ) if wanted
        )  # fmt: skip

    def _pipeline(self, stage: int) -> str:
        ordered = f", schedule={self.schedule}" if self.schedule != ONE_BY_ONE else ""
        chunks = f", chunks={self.chunks}" if self.chunks > 1 else ""
        return f"pipeline(stages={self.pipeline}, stage={stage + 1}, microbatches={self.microbatches}{ordered}{chunks})"


def parse_layout(said: str | Mapping[str, Any]) -> RankLayout:
    """The layout that "data=2 tensor=4 zero=1" means, or {"data": 2, ...}.

    Raises GpusimError for a word that is no degree, one that stands there twice, and degrees that do not go together.
    """
    pairs = list(said.items()) if isinstance(said, Mapping) else [_pair(word) for word in str(said).replace(",", " ").split()]
    known = [field.name for field in fields(RankLayout)]
    degrees: dict[str, Any] = {}
    for name, value in pairs:
        if name not in known:
            raise GpusimError(_UNKNOWN.get(name, f"'{name}' is no degree of parallelism"), hint=suggest(name, known))
        if name in degrees:
            raise GpusimError(f"the degree {name} stands there twice")
        degrees[name] = _value(name, value)
    if not degrees:
        raise GpusimError("no degree of parallelism is named", hint=_LAYOUT_HINT)
    made = RankLayout(**degrees)
    if made.zero and made.data == 1:
        raise GpusimError(f"zero={made.zero} shards over the data-parallel ranks, and there is one", hint="say data=2, or more")
    return made


def _value(name: str, value: Any) -> Any:
    word = str(value).lower()
    if name == "schedule":
        return word
    if name == "sequence":
        if word not in _YES + _NO:
            raise GpusimError(f"sequence is '{value}'", hint="write sequence=true, or leave it out")
        return word in _YES
    if isinstance(value, bool) or not word.isdecimal():
        raise GpusimError(f"the degree {name} is '{value}', not a whole number")
    return int(word)


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise GpusimError(f"'{word}' is no degree of parallelism", hint=_LAYOUT_HINT)
    return name, value

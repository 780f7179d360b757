"""A question about long trainings as a YAML file: every list in it is an axis, and all combinations are run.

    question: Which checkpoint interval and tier for 1,000 GPUs?
    training:
      machine: 129 x hgx-h100
      spare: 4
      state: llama-70b
      storage: [5 GB/s, 50 GB/s]
      checkpoint: [sync, two_phase, peers]
      every: [5 min, 30 min, 2 h]
    runs: 50

The keys of `training` are those of `setup.LongRunSpec`, the options of `gpusim failures`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from gpusim.base.yaml import document, validate
from gpusim.base.yaml.fields import STRICT
from gpusim.studies import questions
from gpusim.studies.failures.answer import LongRunAnswer, answer
from gpusim.studies.failures.setup import LongRunSpec, prepare
from gpusim.studies.questions import Axis, Count, OfAxes, QuestionPoint, Whole, rounded


@dataclass(frozen=True, config=STRICT, kw_only=True)
class TrainingAxes:
    """`LongRunSpec`, each field one value or several; None: as by default."""

    machine: Axis[str]
    state: Axis[str]
    storage: Axis[str]
    checkpoint: Axis[str] | None = None
    every: Axis[str] | None = None
    failures: Axis[str] | None = None
    spare: Axis[Whole] | None = None
    least: Axis[Whole] | None = None
    unit: Axis[Count] | None = None
    work: Axis[str] | None = None
    step: Axis[str] | None = None
    detect: Axis[str] | None = None
    restart: Axis[str] | None = None
    repair: Axis[str] | None = None
    program: Axis[str] | None = None
    parallel: Axis[str] | None = None
    host: Axis[str] | None = None
    margin: Axis[str] | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class TrainingQuestion(OfAxes):
    """The file; see the module."""

    AXES: ClassVar[str] = "training"
    question: Annotated[str, Field(min_length=1)]
    training: TrainingAxes
    runs: Count = 50
    seed: Whole = 0


def numbers_of(found: LongRunAnswer) -> dict[str, Any]:
    """The numbers of a row, of four digits; shares of the time in percent."""
    v = found.values()
    row = {
        "effective [%]": 100 * v["effective"], "+-": 100 * v["effective_half"], "interval [min]": v["interval_s"] / 60,
        "stops for [s]": v["stop_s"], "safe after [s]": v["safe_after_s"],
        "copies [%]": 100 * (v["copying_h"] + v["blocked_h"]) / v["total_h"], "down [%]": 100 * v["down_h"] / v["total_h"],
        "waiting [%]": 100 * v["short_h"] / v["total_h"], "lost [%]": 100 * v["lost_h"] / v["total_h"],
        "interruptions": v["interruptions"],
    }  # fmt: skip
    return rounded(row)


def read(path: Path) -> TrainingQuestion:
    """A question from its file.  Raises ConfigError with file:line:col."""
    return validate.build(TrainingQuestion, document.read(path))


def points(question: TrainingQuestion) -> list[QuestionPoint[LongRunAnswer]]:
    """All combinations, one after the other; what cannot be run says why."""

    def run(words: dict[str, Any]) -> LongRunAnswer:
        return answer(prepare(LongRunSpec(**words)), runs=question.runs, close=1.0, seed=question.seed)

    return questions.points(question.words(), run, numbers_of)

"""A question about a cluster as a YAML file; its keys are the options of `gpusim cluster`.

    question: How many GPUs do these jobs need?
    gpus: "? x 8 v100"
    arrivals: jobs.csv
    schedulers: [first_come, best_fit]
    goal: wait p90 1 h
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from gpusim.base.yaml import document, validate
from gpusim.base.yaml.fields import STRICT
from gpusim.studies.cluster.setup import ClusterStudySpec

Words = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class ClusterQuestion:
    """The file; files that it names lie beside it."""

    question: Words
    gpus: Words
    arrivals: Words
    schedulers: Annotated[list[Words], Field(min_length=1)]
    goal: str = ""
    rates: str = ""
    round: str = "360 s"
    restart: str = "0 s"
    failures: str = ""
    every: str = ""
    save: str = "0 s"
    detect: str = "1 min"
    repair: str = "24 h"
    spare: str = ""
    seed: Annotated[int, Field(ge=0)] = 0


def read(path: Path, use: tuple[str, ...] = ()) -> tuple[ClusterQuestion, ClusterStudySpec]:
    """The question and its words.  Raises ConfigError with file:line:col."""
    asked = validate.build(ClusterQuestion, document.read(path))
    spec = ClusterStudySpec(
        gpus=asked.gpus, arrivals=asked.arrivals, schedulers=tuple(asked.schedulers), rates=asked.rates, round=asked.round,
        restart=asked.restart, failures=asked.failures, every=asked.every, save=asked.save, detect=asked.detect,
        repair=asked.repair, spare=asked.spare, seed=asked.seed, use=use, base=path.parent,
    )  # fmt: skip
    return asked, spec

"""What result.json and manifest.json hold, and their versions: both are read from folders that anybody may have made.

Each file says its format and its version.  A file of an earlier version is brought to this one as it is read, step by step
(MIGRATIONS); one of a later version is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StrictInt, ValidationError

from gpusim.base.errors import ResultError

Numbers = dict[str, StrictInt | FiniteFloat]
Hex = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Migration = Callable[[dict[str, Any]], dict[str, Any]]


class RankFile(BaseModel):
    """One rank of a run, whose other files lie in a folder of its number."""

    model_config = ConfigDict(strict=True)
    spec: dict[str, Any]
    outcome: Literal["finished", "oom", "host_oom", "failed"]
    failure: dict[str, Any] | None
    metrics: Numbers
    bounds: Numbers
    files: dict[str, Hex]


class ResultFile(BaseModel):
    """One run, as `results.result.Result` explains it."""

    model_config = ConfigDict(strict=True)
    spec: dict[str, Any]
    outcome: Literal["finished", "oom", "host_oom", "failed"]
    failure: dict[str, Any] | None
    metrics: Numbers
    bounds: Numbers
    files: dict[str, Hex] = {}  # the run's other files -> sha256
    ranks: list[RankFile] = []
    checked: bool | None = None  # in results of earlier versions
    seal: str | None = None


class ManifestFile(BaseModel):
    """What an experiment came to: which runs, measured against which others, from which inputs."""

    model_config = ConfigDict(strict=True)
    inputs: dict[str, str] = {}  # content hashes by name
    runs: list[str]  # keys, in the order of the grid
    versions: dict[str, str] = {}
    results: dict[str, str | None] | None = None  # key of a run with a folder -> seal; None: an earlier version kept none
    references: dict[str, dict[str, list[str]]] = {}  # key of a run -> bound -> keys of runs
    samples: list[str] = []
    columns: dict[str, Annotated[int, Field(gt=0)]] = {}  # file of runs without a folder -> how many


class LaterVersion(ResultError):
    """A file that a later gpusim wrote: nothing is done to it."""


@dataclass(frozen=True)
class Schema:
    """A file of ours: its format, the version that is written, and how earlier ones become it."""

    what: str
    format: str
    version: int
    model: type[BaseModel]
    migrations: Mapping[int, Migration]

    def header(self) -> dict[str, Any]:
        return {"format": self.format, "version": self.version}

    def checked(self, value: dict[str, Any], where: str, repair: str) -> dict[str, Any]:
        """The content of such a file in this version.  ResultError: it is none, is of a later version, or lacks something."""
        version = value.get("version")
        if value.get("format") != self.format or not isinstance(version, int):
            raise ResultError(f"this is no {self.what} of gpusim (format {self.format})", where, repair)
        if version > self.version:
            raise LaterVersion(
                f"a later gpusim wrote this {self.what} (version {version}; this one reads up to {self.version})", where,
                "pip install --upgrade gpusim",
            )  # fmt: skip
        for step in range(version, self.version):
            if step not in self.migrations:
                raise ResultError(f"there is no way from version {version} of this {self.what} to today's", where, repair)
            value = self.migrations[step](value)
        try:
            self.model.model_validate(value)
        except ValidationError as error:
            raise ResultError(f"this {self.what} is not complete: {_first(error)}", where, repair) from None
        return value


def _first(error: ValidationError) -> str:
    """Its first mistake, as a clause."""
    found = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in found["loc"])
    return f"{place}: {found['msg'][0].lower()}{found['msg'][1:]}"


def _with_columns(manifest: dict[str, Any]) -> dict[str, Any]:
    """Version 1 knew runs with a folder each only."""
    return {**manifest, "columns": {}, "version": 2}


RESULT = Schema("result", "gpusim-result", 1, ResultFile, {})
MANIFEST = Schema("manifest", "gpusim-result", 2, ManifestFile, {1: _with_columns})

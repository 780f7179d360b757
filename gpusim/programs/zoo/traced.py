"""The trace of a model of the zoo."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpusim.programs import zoo
from gpusim.programs.record.script import record_program
from gpusim.programs.zoo.catalogue import ask
from gpusim.trace.trace import Trace


def record_zoo(spec: str, options: dict[str, Any], path: Path, *, name: str | None = None, **more: Any) -> Trace:
    """The trace of a model of the zoo, which is named by all that was asked for."""
    asked = ask(spec, options).spec
    return record_program(lambda: zoo.build(asked).run(), path, spec, name=name or asked, **more)


def record_model(spec: str, options: Mapping[str, Any], *, gpu: str = "ampere", cudnn_workspace: int = 0) -> Trace:
    """A model of the zoo, recorded now and kept in no file; its meta says what was asked for.  Raises GpusimError."""
    asked = ask(spec, options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.npz"
        trace = record_zoo(spec, dict(options), path, gpu=gpu, cudnn_workspace=cudnn_workspace, device="cuda")
    entry = asked.entry
    said = {"zoo": entry.name, "parameters": entry.parameters, "asked": dict(asked.options), "cudnn_workspace": cudnn_workspace}
    return replace(trace, name=entry.name, meta={**trace.meta, **asked.options, **said})

"""The trace of a model of the zoo."""

from __future__ import annotations

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

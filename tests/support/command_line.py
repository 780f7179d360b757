"""The command line as tests call it."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner

from gpusim.cli.app import app


def gpusim(*words: object, code: int = 0) -> Any:
    """What the command does, which has to end with this code."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done

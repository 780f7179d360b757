"""The recording that runs now, if one does.  There is one at a time: what it replaces in PyTorch is the process's."""

from __future__ import annotations

from typing import Any

from gpusim.programs.record.where import RecordError, users_line, warn_again

_running: Any = None


def current() -> Any:
    """The recording, or None."""
    return _running


def start(recording: Any) -> None:
    global _running
    if _running is not None:
        raise RecordError("a recording is already running", users_line())
    _running = recording
    warn_again()


def stop() -> None:
    global _running
    _running = None

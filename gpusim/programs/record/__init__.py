"""Recording PyTorch programs: `with gpusim.record("trace.npz"): step()`.

The module itself is called: `gpusim.record(...)` makes a Recording.  `gpusim.record.phase` names a phase, and
`gpusim.record.active` says whether a recording runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from gpusim.programs.record import running
from gpusim.programs.record.where import RecordError

__all__ = ["active", "begin", "phase"]


class _Callable(ModuleType):
    def __call__(self, path: Any = None, **options: Any) -> Any:
        """A recording of what runs inside its `with`; the options are those of `Recording`."""
        return begin(path, **options)


def begin(path: Any = None, *, fake: bool | None = None, **options: Any) -> Any:
    """What calling this module makes: where there is a GPU the program runs on it and is watched, unless `fake` is true."""
    try:
        import torch
    except ModuleNotFoundError:
        raise RecordError("recording needs PyTorch", hint="pip install 'gpusim[torch]'") from None
    if path is not None and not Path(path).parent.is_dir():
        raise RecordError(f"{path}: there is no folder '{Path(path).parent}'")
    if fake is False or (fake is None and torch.cuda.is_available()):
        from gpusim.programs.record.on_gpu import GpuRecording

        return GpuRecording(path, **{key: value for key, value in options.items() if key in ("name", "steps", "issue_ns")})
    from gpusim.programs.record.recording import Recording

    return Recording(path, **options)


def phase(name: str) -> None:
    """What runs from here on is this phase of the trace, such as "prefill" or "decode7"; nothing without a recording."""
    recording = running.current()
    if recording is not None:
        recording.phases.mark(name)


def active() -> bool:
    """Whether the program runs on fake tensors now, so that it must not decide by values that it computes."""
    recording = running.current()
    return recording is not None and bool(recording.fake)


record = sys.modules[__name__]
record.__class__ = _Callable

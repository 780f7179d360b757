"""Recording PyTorch programs: `with gpusim.record("trace.npz"): step()`.

The module itself is called: `gpusim.record(...)` makes a Recording.  `gpusim.record.phase` names a phase, and
`gpusim.record.active` says whether a recording runs.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusim.record.recording import Recording


class _Callable(ModuleType):
    def __call__(self, path: Any = None, **options: Any) -> Recording:
        """A recording of what runs inside its `with`; the options are those of `Recording`."""
        return begin(path, **options)


def begin(path: Any = None, **options: Any) -> Recording:
    """What calling this module makes."""
    try:
        from gpusim.record.recording import Recording
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from gpusim.record.where import RecordError

        raise RecordError("recording needs PyTorch", hint="pip install 'gpusim[torch]'") from None
    return Recording(path, **options)


def phase(name: str) -> None:
    """What runs from here on is this phase of the trace, such as "prefill" or "decode7"; nothing without a recording."""
    running = _current()
    if running is not None:
        running.phases.mark(name)


def active() -> bool:
    """Whether a recording runs now: for what a program must leave out, such as decisions by computed values."""
    return _current() is not None


def _current() -> Recording | None:
    found = sys.modules.get("gpusim.record.recording")
    return found.current() if found else None


record = sys.modules[__name__]
record.__class__ = _Callable

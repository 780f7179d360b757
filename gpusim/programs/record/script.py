"""`gpusim record script.py`: a whole program under the recorder, up to as many training steps as are wanted."""

from __future__ import annotations

import gc
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.programs.record import begin
from gpusim.programs.record.where import RecordError, line_of
from gpusim.trace.trace import Trace


def record_script(script: Path, args: Sequence[str], path: Path, **options: Any) -> Trace:
    """The trace of a script that is run as `python script.py args...` would run it.  Raises GpusimError."""
    if not script.is_file():
        raise RecordError(f"there is no script '{script}'")
    arguments, search = sys.argv, sys.path[:]
    sys.argv, sys.path[0] = [str(script), *args], str(script.resolve().parent)
    try:
        return record_program(lambda: runpy.run_path(str(script), run_name="__main__"), path, str(script), **options)
    finally:
        sys.argv, sys.path[:] = arguments, search


def record_program(program: Callable[[], Any], path: Path, what: str, **options: Any) -> Trace:
    """The trace of what `program` does when it is called, named `what` in errors.  Raises GpusimError."""
    collects = gc.isenabled()
    gc.disable()  # as during the recording: PyTorch is imported faster
    try:
        with begin(path, **options) as recorded:
            try:
                program()
            except SystemExit as end:
                if end.code not in (None, 0):
                    raise RecordError(f"'{what}' ended with exit code {end.code}", line_of(end.__traceback__)) from None
    except GpusimError:
        raise
    except Exception as error:
        first = str(error).strip().splitlines() or [""]
        raise RecordError(f"{type(error).__name__}: {first[0]}", line_of(error.__traceback__), _hint(error)) from error
    finally:
        if collects:
            gc.enable()
    assert recorded.trace is not None
    return recorded.trace


def _hint(error: Exception) -> str:
    """What to do about errors that fake tensors are known to cause."""
    from gpusim.programs.record.readback import HINT, Unknown

    text = str(error)
    if "data pointer" in text or "data_ptr" in text or "doesn't have storage" in text:
        return "an extension reads tensors by itself: give it a fake kernel (torch.library.register_fake) or leave it out"
    if isinstance(error, TypeError) and Unknown.__name__ in text:
        return f"what shows as '?' is a value that a recording does not compute; {HINT}"
    if isinstance(error, ImportError):
        return "the script runs in gpusim's own environment"
    return ""

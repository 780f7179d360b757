"""Where in the user's program something happens, and what is said when a recording cannot go on."""

from __future__ import annotations

import sys
import sysconfig
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType

from gpusim.base.errors import GpusimError

_PACKAGE = str(Path(__file__).resolve().parents[2])
_INSTALLED = tuple({sysconfig.get_path(key) for key in ("purelib", "platlib")})
_LIBRARIES = tuple({sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")})


class RecordError(GpusimError):
    """A program that cannot be recorded: the user's line, and what to do."""


class NothingRan(RecordError):
    """A program of which nothing ran on the GPU."""


class RecordWarning(UserWarning):
    """Something was recorded in another way than it would have run."""


@cache
def _is_users(filename: str) -> bool:
    return not filename.startswith(("<", _PACKAGE, *_LIBRARIES))


def users_frame() -> tuple[str, int]:
    """File and line of the innermost frame that belongs to no library; ("", 0) where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _is_users(frame.f_code.co_filename):
            return _short(frame.f_code.co_filename), frame.f_lineno
        frame = frame.f_back
    return "", 0


def users_line() -> str:
    """The same as "file:line"."""
    file, line = users_frame()
    return f"{file}:{line}" if file else ""


def within() -> str:
    """ ", in library/file.py:line": the library that the program called, where it is the library that asks for something."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_users(frame.f_code.co_filename):
        file = frame.f_code.co_filename
        for root in _INSTALLED:
            if file.startswith(root) and not file.startswith((_PACKAGE, str(Path(root, "torch")))):
                return f", in {Path(file).relative_to(root).as_posix()}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def line_of(traceback: TracebackType | None) -> str:
    """ "file:line" of the innermost frame of a traceback that belongs to no library."""
    found = ""
    while traceback is not None:
        if _is_users(traceback.tb_frame.f_code.co_filename):
            found = f"{_short(traceback.tb_frame.f_code.co_filename)}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found


def calls_from(package: str, depth: int) -> bool:
    """Whether the frame `depth` above the caller belongs to this package."""
    name = sys._getframe(depth + 1).f_globals.get("__name__", "")
    return bool(name == package or name.startswith(package + "."))


def _short(filename: str) -> str:
    """Relative where that is shorter to read."""
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except ValueError:
        return filename


_warned: set[tuple[str, int, str]] = set()


def warn(message: str) -> None:
    """Say what was done instead, as a warning at the user's line; once per line and recording."""
    file, line = users_frame()
    if (file, line, message) not in _warned:
        _warned.add((file, line, message))
        warnings.warn_explicit(message, RecordWarning, file or "gpusim", line)


_times: Counter[tuple[str, int]] = Counter()


def times_here() -> int:
    """How often the user's line has asked so, within this step."""
    _times[users_frame()] += 1
    return _times[users_frame()]


def next_step() -> None:
    _times.clear()


def warn_again() -> None:
    """A recording begins."""
    _warned.clear()
    _times.clear()

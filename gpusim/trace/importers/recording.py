"""A recorded file being read: gzip or not, never more than a bound, and its faults as one sentence."""

from __future__ import annotations

import glob
import gzip
import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from gpusim.base.errors import TraceError, suggest

MAX_BYTES = 4 * 2**30  # of a recording once decompressed
_BUFFER = 1 << 20

Progress = Callable[[int, int], None]
"""Called with (bytes read of the file, its size)."""


def open_recording(path: Path, max_bytes: int = MAX_BYTES, progress: Progress | None = None) -> BinaryIO:
    """The file's content as a stream, decompressed when it is gzip.  Opening and reading raise TraceError."""
    try:
        return io.BufferedReader(_Recording(path, max_bytes, progress), _BUFFER)
    except FileNotFoundError:
        each = sorted(path.parent.glob(f"{glob.escape(path.stem)}.dev*{path.suffix}"))  # RMM writes one log for each device
        raise TraceError("there is no such file", str(path), suggest(path.name, [f.name for f in each])) from None
    except OSError as error:
        raise _unreadable(error, path) from None


def read_bytes(path: Path, max_bytes: int = MAX_BYTES, progress: Progress | None = None) -> bytes:
    """The whole content, decompressed when it is gzip; refuses more than `max_bytes`."""
    with open_recording(path, max_bytes, progress) as file:
        data = file.read()
    if not data.strip():
        raise TraceError("the file is empty", str(path))
    return data


class _Recording(io.RawIOBase):
    def __init__(self, path: Path, max_bytes: int, progress: Progress | None) -> None:
        self._path, self._left, self._max, self._progress = path, max_bytes, max_bytes, progress
        self._size = path.stat().st_size
        if path.is_file() and self._size > max_bytes:
            raise self._too_large()  # before its gigabytes are read
        self._raw = path.open("rb")
        packed = self._raw.read(2) == b"\x1f\x8b"
        self._raw.seek(0)
        self._file: Any = gzip.GzipFile(fileobj=self._raw) if packed else self._raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count = int(self._file.readinto(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise TraceError("the gzip data is cut short or damaged", str(self._path), "copy the file again") from None
        except OSError as error:
            raise _unreadable(error, self._path) from None
        self._left -= count
        if self._left < 0:
            raise self._too_large()
        if self._progress is not None:
            self._progress(self._raw.tell(), self._size)
        return count

    def close(self) -> None:
        if not self.closed and hasattr(self, "_raw"):
            self._raw.close()
        super().close()

    def _too_large(self) -> TraceError:
        limit = f"{self._max / 2**30:g} GiB"
        return TraceError(f"the recording is larger than {limit} unpacked", str(self._path), "record fewer steps")


def _unreadable(error: OSError, path: Path) -> TraceError:
    return TraceError(f"cannot read the file: {error.strerror or error}", str(path))

"""Files of a run folder: each appears whole or not at all, and equal content gives equal bytes."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError, ResultError

Arrays = Mapping[str, npt.NDArray[Any]]
MAX_BYTES = 64 * 2**30  # unpacked; the log of 10^9 records

_HINTS = {
    errno.ENOSPC: "free some space and run again: what is finished is kept",
    errno.EDQUOT: "your quota is used up; what is finished is kept",
    errno.EACCES: "choose another folder with -o",
    errno.EPERM: "choose another folder with -o",
    errno.EROFS: "choose another folder with -o",
    errno.ENOTDIR: "a file is in the way; choose another folder with -o",
    errno.EEXIST: "a file is in the way; choose another folder with -o",
}


@contextmanager
def _said(path: Path, doing: str) -> Iterator[None]:
    """An OSError inside becomes one sentence."""
    try:
        yield
    except OSError as error:
        raise ResultError(
            f"cannot {doing}: {error.strerror or error}", str(path), _HINTS.get(error.errno or 0, "")
        ) from None


def make_folder(path: Path) -> None:
    """The folder and those above it; ResultError when that cannot be."""
    with _said(path, "make the folder"):
        path.mkdir(parents=True, exist_ok=True)


def remove(path: Path) -> None:
    """The file, if it is there; ResultError when it cannot be removed."""
    with _said(path, "remove"):
        path.unlink(missing_ok=True)


def write_atomic(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write beside the target, then rename: a full disk or a kill leaves the old file, or none.  Raises ResultError.

    What is there and is no file, such as /dev/null or a pipe, is written into: a rename would put a file in its place.
    """
    with _said(path, "write"):
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as out:
                write(out)
            return
        path = path.resolve()  # a link stays one
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as out:
                write(out)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """UTF-8, atomic; a file that says so already stays, so that a complete folder on a read-only disk is in no one's way."""
    content = text.encode()
    with suppress(OSError):
        if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
            return
    write_atomic(path, lambda out: out.write(content))


def write_json(path: Path, value: Any) -> None:
    """JSON with sorted keys, numpy scalars as numbers; a number that is not finite is refused."""
    write_text(path, json_text(value, path))


def json_text(value: Any, path: Path) -> str:
    """The text of that JSON, for the file at `path`."""
    try:
        return json.dumps(value, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False, default=_scalar) + "\n"
    except (TypeError, ValueError) as error:
        raise ResultError(f"this result cannot be written as JSON: {error}", str(path)) from None


def read_bytes(path: Path) -> bytes:
    """The content; ResultError when the file cannot be read."""
    with _said(path, "read"):
        return path.read_bytes()


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """A text that a user wrote, open to be read, with or without a byte order mark.  Raises GpusimError where it is none."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield file
    except (UnicodeDecodeError, csv.Error):
        raise GpusimError("is not text in UTF-8", str(path)) from None


def read_json(path: Path, repair: str = "run again with --force") -> dict[str, Any]:
    """A JSON object; ResultError when the file is missing or is not one, with what makes it anew."""
    try:
        value = json.loads(read_bytes(path))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ResultError("this file is damaged: it does not hold a JSON object", str(path), repair)
    return value


def write_arrays(path: Path, arrays: Arrays) -> None:
    """A compressed `.npz` without dates: equal arrays give equal bytes.  Readable by numpy.load."""
    write_atomic(path, lambda out: _write_arrays(out, arrays))


def array_bytes(arrays: Arrays) -> bytes:
    """The content of such a file."""
    out = io.BytesIO()
    _write_arrays(out, arrays)
    return out.getvalue()


def _write_arrays(out: BinaryIO, arrays: Arrays) -> None:
    # Level 1: the columns of a log are narrow and regular, and higher levels cost ten times for a tenth.
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, values in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.ascontiguousarray(values), (1, 0), allow_pickle=False)
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getbuffer(), zipfile.ZIP_DEFLATED, 1)


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """What `write_arrays` wrote; ResultError when the file is missing, damaged, absurdly large, or holds objects."""
    with _said(path, "read"), path.open("rb") as file:
        return _arrays_in(file, path)


def arrays_of(content: bytes, path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays in the content of such a file, which lies at `path`; ResultError as above."""
    return _arrays_in(io.BytesIO(content), path)


def _arrays_in(content: BinaryIO, path: Path) -> dict[str, npt.NDArray[Any]]:
    damaged = ResultError("this file is damaged or cut short", str(path), "run again with --force")
    try:
        with zipfile.ZipFile(content) as file:
            if sum(info.file_size for info in file.infolist()) > MAX_BYTES:
                raise damaged
            return {
                info.filename.removesuffix(".npy"): np.lib.format.read_array(
                    io.BytesIO(file.read(info)), allow_pickle=False
                )
                for info in file.infolist()
            }
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError):
        raise damaged from None


def digest(path: Path) -> str:
    """sha256 of the content; ResultError when the file cannot be read."""
    with _said(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} {value!r} is not a plain value")

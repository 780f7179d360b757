"""Which format a recorded file is in, and the door to the importers."""

from __future__ import annotations

import glob
import gzip
import inspect
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from gpusim.errors import TraceError, suggest
from gpusim.trace.trace import Trace

MAX_BYTES = 4 * 2**30  # of a recording once decompressed
HEAD = 64 * 1024  # bytes by which a format is told


@dataclass(frozen=True)
class Format:
    """One foreign format: its importer is `gpusim.trace.importers.<module>.read(data, path, **options)`."""

    module: str
    help: str
    looks_like: Callable[[bytes], bool]  # judged by the first HEAD bytes


def _first_line(head: bytes) -> str:
    """The first line that is not a comment, lower case, without spaces."""
    for line in head.decode("utf-8-sig", "replace").splitlines():
        if line.strip() and not line.startswith("#"):
            return line.replace(" ", "").lower()
    return ""


def _columns(head: bytes) -> set[str]:
    return set(_first_line(head).split(","))


# In the order of trial: a stricter sign before a looser one.
FORMATS: dict[str, Format] = {
    "pytorch": Format(
        "pytorch_pickle",
        "PyTorch memory snapshot, the pickle of torch.cuda.memory._dump_snapshot",
        lambda head: head[:1] == b"\x80" or head[:2] == b"(d",
    ),
    "recorder": Format(
        "recorder",
        "operator recorder: JSON lines with storages, operators and their accesses",
        lambda head: head.lstrip()[:1] == b"{" and b'"ops"' in head,
    ),
    "pytorch-csv": Format(
        "pytorch_csv",
        "PyTorch memory snapshot turned into CSV: kind,addr,size,stream,extra",
        lambda head: _first_line(head) == "kind,addr,size,stream,extra",
    ),
    "rmm": Format(
        "rmm",
        "log of RMM's logging adaptor: Thread,Time,Action,Pointer,Size,Stream",
        lambda head: {"action", "pointer", "size"} <= _columns(head),
    ),
    "minimalloc": Format(
        "minimalloc",
        "minimalloc problem: id,lower,upper,size[,offset]",
        lambda head: {"lower", "upper", "size"} <= _columns(head),
    ),
    "csv": Format(
        "plain_csv",
        "plain CSV with named columns, at least event,tensor,size",
        lambda head: {"event", "tensor"} <= _columns(head),
    ),
}


def import_trace(path: str | os.PathLike[str], format: str | None = None, **options: Any) -> Trace:
    """Reads a recording in any of FORMATS, recognised by its content unless `format` names it.

    Options are those of the format's own `read` (see `docs/traces.md`); all know `name`.  Raises TraceError.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise TraceError(f"there is no trace format '{format}'", str(path), suggest(format, FORMATS))
    if format is None:
        format = _recognise(_read(path, HEAD), path)
    data = read_bytes(path)
    reader = import_module(f"gpusim.trace.importers.{FORMATS[format].module}").read
    known = [p for p in inspect.signature(reader).parameters if p not in ("data", "path")]
    for option in options:
        if option not in known:
            raise TraceError(f"the importer '{format}' has no option '{option}'", str(path), suggest(option, known))
    trace: Trace = reader(data, str(path), **options)
    return trace


def read_bytes(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """The file's content, decompressed when it is gzip; refuses more than `max_bytes`."""
    too_large = TraceError(
        f"the recording is larger than {max_bytes / 2**30:g} GiB unpacked", str(path), "record fewer steps"
    )
    if path.is_file() and path.stat().st_size > max_bytes:
        raise too_large  # before its gigabytes are read
    data = _read(path, max_bytes + 1)
    if len(data) > max_bytes:
        raise too_large
    return data


def _read(path: Path, count: int) -> bytes:
    """The first `count` bytes of the file, decompressed when it is gzip."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=raw) as file:
                    data = file.read(count)
            else:
                data = raw.read(count)
    except FileNotFoundError:
        each = sorted(path.parent.glob(f"{glob.escape(path.stem)}.dev*{path.suffix}"))  # RMM writes one log for each device
        raise TraceError("there is no such file", str(path), suggest(path.name, [f.name for f in each])) from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise TraceError("the gzip data is cut short or damaged", str(path), "copy the file again") from None
    except OSError as error:
        raise TraceError(f"cannot read the file: {error.strerror or error}", str(path)) from None
    if not data.strip():
        raise TraceError("the file is empty", str(path))
    return data


def _recognise(head: bytes, path: Path) -> str:
    for name, format in FORMATS.items():
        if format.looks_like(head):
            return name
    if head[:4] == b"PK\x03\x04":
        raise TraceError("this is a zip file, not a recording", str(path), "a gpusim trace (.npz) needs no import")
    raise TraceError(
        "cannot tell which format this recording is in",
        str(path),
        "name it with --format, one of: " + ", ".join(FORMATS),
    )

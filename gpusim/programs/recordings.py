"""Which format a recorded file is in, and the door to the importers."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from gpusim.base.errors import TraceError, suggest
from gpusim.trace.importers.chakra_nodes import is_protobuf
from gpusim.trace.importers.libcachesim import is_binary
from gpusim.trace.importers.recording import Progress, open_recording, read_bytes
from gpusim.trace.trace import Trace

# Packages whose modules are imported by name.
LOADS = ("gpusim.trace.importers", "gpusim.programs.serving", "gpusim.programs.exported")
HEAD = 64 * 1024  # bytes by which a format is told


@dataclass(frozen=True)
class RecordingFormat:
    """One foreign format: its importer is `gpusim.<module>.read(data, path, **options)`.

    `data` is the decompressed content as bytes, or, where `streams` is set, a binary file open at its beginning.
    """

    module: str
    help: str
    looks_like: Callable[[bytes], bool]  # judged by the first HEAD bytes
    streams: bool = False


def _first_line(head: bytes) -> str:
    """The first line that is not a comment, lower case, without spaces."""
    for line in head.decode("utf-8-sig", "replace").splitlines():
        if line.strip() and not line.startswith("#"):
            return line.replace(" ", "").lower()
    return ""


def _columns(head: bytes) -> set[str]:
    return set(_first_line(head).split(","))


# In the order of trial: a stricter sign before a looser one.
FORMATS: dict[str, RecordingFormat] = {
    "memory-timeline": RecordingFormat(
        "trace.importers.memory_timeline",
        "torch.profiler's export_memory_timeline, the *.raw.json.gz form",
        lambda head: re.match(rb"\s*\[\s*\[\s*-?\d", head) is not None,
        streams=True,
    ),
    "gpusim-chrome": RecordingFormat(
        "programs.exported.chrome",
        "a run of gpusim as a Chrome trace, by gpusim export --format chrome",
        lambda head: re.match(rb'\s*\{\s*"otherData"\s*:\s*\{\s*"gpusim-run"', head) is not None,
        streams=True,
    ),
    "gpusim-perfetto": RecordingFormat(
        "programs.exported.perfetto",
        "a run of gpusim as a Perfetto trace, by gpusim export --format perfetto",
        lambda head: head[:1] == b"\n" and b"gpusim-run" in head[:256],
        streams=True,
    ),
    "kineto": RecordingFormat(
        "trace.importers.kineto",
        "Kineto or Chrome trace of torch.profiler, best with profile_memory=True and record_shapes=True",
        lambda head: b'"traceEvents"' in head or (head.lstrip()[:1] == b"[" and b'"ph"' in head),
        streams=True,
    ),
    "execution-trace": RecordingFormat(
        "trace.importers.execution_trace",
        "PyTorch execution trace (ExecutionTraceObserver); the Kineto trace of the run adds the times",
        lambda head: head.lstrip()[:1] == b"{" and b'"schema"' in head[:4096] and b'"nodes"' in head,
        streams=True,
    ),
    "chakra": RecordingFormat(
        "trace.importers.chakra",
        "Chakra graph of MLCommons, protobuf or JSON: operators, run times, dependencies, collectives; no tensors",
        lambda head: b'"workload_graph"' in head[:4096] or is_protobuf(head),
    ),
    "libcachesim": RecordingFormat(
        "trace.importers.libcachesim",
        "cache requests: libCacheSim's oracleGeneral, or CSV with obj_id and obj_size",
        lambda head: is_binary(head) or {"obj_id", "obj_size"} <= _columns(head),
    ),
    "pytorch": RecordingFormat(
        "trace.importers.pytorch_pickle",
        "PyTorch memory snapshot, the pickle of torch.cuda.memory._dump_snapshot",
        lambda head: head[:1] == b"\x80" or head[:2] == b"(d",
    ),
    "nsys": RecordingFormat(
        "trace.importers.nsys",
        "Nsight Systems: the SQLite file of nsys export",
        lambda head: head[:16] == b"SQLite format 3\0",
        streams=True,
    ),
    "xla": RecordingFormat(
        "trace.importers.xla",
        "XLA's X-buffer-assignment.txt, of JAX or TensorFlow under XLA_FLAGS=--xla_dump_to=FOLDER",
        lambda head: head.startswith(b"BufferAssignment:"),
        streams=True,
    ),
    "recorder": RecordingFormat(
        "trace.importers.recorder",
        "operator recorder: JSON lines with storages, operators and their accesses",
        lambda head: head.lstrip()[:1] == b"{" and b'"ops"' in head,
    ),
    "g10": RecordingFormat(
        "trace.importers.g10",
        "kernels and tensors of the G10 study: JSON lines g10-neutral-trace/1",
        lambda head: head.lstrip()[:1] == b"{" and b'"g10-neutral-trace/' in head[:256],
    ),
    "dtr": RecordingFormat(
        "trace.importers.dtr",
        "log of DTR's runtime: JSON lines with an INSTRUCTION each",
        lambda head: head.lstrip()[:1] == b"{" and b'"INSTRUCTION"' in head,
    ),
    "pytorch-csv": RecordingFormat(
        "trace.importers.pytorch_csv",
        "PyTorch memory snapshot turned into CSV: kind,addr,size,stream,extra",
        lambda head: _first_line(head) == "kind,addr,size,stream,extra",
    ),
    "rmm": RecordingFormat(
        "trace.importers.rmm",
        "log of RMM's logging adaptor: Thread,Time,Action,Pointer,Size,Stream",
        lambda head: {"action", "pointer", "size"} <= _columns(head),
    ),
    "minimalloc": RecordingFormat(
        "trace.importers.minimalloc",
        "minimalloc problem: id,lower,upper,size[,offset]",
        lambda head: {"lower", "upper", "size"} <= _columns(head),
    ),
    "mooncake": RecordingFormat(
        "programs.serving.llm_requests",
        "requests of an LLM service with hashes of prompt blocks: Mooncake's JSON lines",
        lambda head: head.lstrip()[:1] == b"{" and b'"hash_ids"' in head and b'"input_length"' in head,
        streams=True,
    ),
    "azure-llm": RecordingFormat(
        "programs.serving.llm_requests",
        "requests of an LLM service: Azure's TIMESTAMP,ContextTokens,GeneratedTokens",
        lambda head: {"timestamp", "contexttokens", "generatedtokens"} <= _columns(head),
        streams=True,
    ),
    "csv": RecordingFormat(
        "trace.importers.plain_csv",
        "plain CSV with named columns, at least event,tensor,size",
        lambda head: {"event", "tensor"} <= _columns(head),
        streams=True,
    ),
}

# What people try, though there is no trace in it: (sign, message, hint).
_REFUSED: tuple[tuple[Callable[[bytes], bool], str, str], ...] = (
    (
        lambda head: head.startswith((b"\xfd7zXZ\0", b"BZh", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")),
        "this file is packed with xz, bzip2, zstd or lz4; only gzip is read",
        "unpack it first",
    ),
    (
        lambda head: head[:4] == b"PK\x03\x04",
        "this is a zip file, not a recording",
        "a gpusim trace (.npz) needs no import",
    ),
    (
        lambda head: head[:1] == b"\n" and min(head[1:4096], default=9) < 9,  # a protobuf's first field, and no text
        "a Perfetto trace is read back only where gpusim export has written it",
        "torch.profiler's export_chrome_trace writes the JSON that is imported",
    ),
)


def import_trace(
    path: str | os.PathLike[str], format: str | None = None, *, progress: Progress | None = None, **options: Any
) -> Trace:
    """Reads a recording in any of FORMATS, recognised by its content unless `format` names it.

    Options are those of the format's own `read` (see `docs/traces.md`), as values or as text; all know `name`.
    `progress` is called with (bytes read, bytes of the file).  Raises TraceError.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise TraceError(f"there is no trace format '{format}'", str(path), suggest(format, FORMATS))
    name = format or recognised(path)
    trace: Trace = reading(path, name, import_module(f"gpusim.{FORMATS[name].module}").read, progress, options)
    return trace


def reading(path: Path, name: str, reader: Callable[..., Any], progress: Progress | None, options: Mapping[str, Any]) -> Any:
    """What a reader of a format makes of a file, with options as values or as text.  Raises TraceError."""
    _, _, *known = inspect.signature(reader).parameters.values()
    defaults = {parameter.name: parameter.default for parameter in known}
    given = dict(options)
    for option, value in options.items():
        if option not in defaults:
            hint = "--with is for PyTorch execution traces" if option == "kineto" else suggest(option, defaults)
            raise TraceError(f"the importer '{name}' has no option '{option}'", str(path), hint)
        if isinstance(value, str):
            given[option] = _as(defaults[option], option, value, str(path))
    if not FORMATS[name].streams:
        return reader(read_bytes(path, progress=progress), str(path), **given)
    with open_recording(path, progress=progress) as file:
        return reader(file, str(path), **given)


def _as(default: Any, option: str, text: str, path: str) -> Any:
    """The option's value, of its default's type."""
    if default is None or isinstance(default, str):
        return text
    try:
        return type(default)(int(text)) if isinstance(default, bool | int) else float(text)
    except ValueError:
        number = "number" if isinstance(default, float) else "whole number"
        raise TraceError(f"the option {option}='{text}' is not a {number}", path) from None


def recognised(path: Path) -> str:
    """The format that a file's content tells.  Raises TraceError."""
    with open_recording(path) as file:
        head = file.read(HEAD)
    if not head.strip():
        raise TraceError("the file is empty", str(path))
    for name, format in FORMATS.items():
        if format.looks_like(head):
            return name
    for known, message, hint in _REFUSED:
        if known(head):
            raise TraceError(message, str(path), hint)
    raise TraceError(
        "cannot tell which format this recording is in",
        str(path),
        "gpusim import --format takes it as one of: " + ", ".join(FORMATS),
    )

"""The trace file: a zip of plain numpy arrays (`.npz`), small, equal for equal traces, read without pickle.

Columns are stored in the smallest integer type that holds them; `read_start`, `write_start` and `time` as differences;
a column that repeats one value as that value.  `header.json` carries the format version, names and meta.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import TraceError
from gpusim.trace.build import make_trace
from gpusim.trace.trace import COLUMNS, LATER, LATER_TABLES, NAME_TABLES, Trace, recorded_columns, recorded_tables

FORMAT = "gpusim-trace"
VERSION = 1
MAX_BYTES = 8 * 2**30  # decompressed; a trace of 10^8 events
_HEADER = "header.json"
_MAX_HEADER = 64 * 2**20
_DIFFERENCES = ("read_start", "write_start", "time")
# What write_array puts before flat little-endian numbers.  numpy's own reader evaluates this text, and trips over some.
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<|]i[1248]|<f8)', 'fortran_order': False, 'shape': \((\d{1,15}),\), \} *\n",
    re.DOTALL,
)
RANKS = "ranks.json"
"""Member of a file with the programs of many ranks (`programs.ranks.files`)."""
_OF_RANKS = "it has the programs of many ranks, which `gpusim run` takes; import the recording of one rank alone for a trace"
_NOT_A_TRACE = "import it with `gpusim import` if it is another program's recording"


def save_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Writes the trace; the file appears whole or not at all.  Raises TraceError when it cannot be written."""
    path = Path(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        try:
            with part.open("wb") as out:
                _write(trace, out)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise TraceError(f"cannot write the trace: {error.strerror or error}", str(path)) from None


def load_trace(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Trace:
    """Reads and checks a trace file.  Raises TraceError: not a trace, damaged, or larger than `max_bytes` unpacked."""
    with _opened(Path(path)) as file:
        return _read(file, str(path), max_bytes)


def trace_bytes(trace: Trace) -> bytes:
    """What the trace's file holds."""
    held = io.BytesIO()
    _write(trace, held)
    return held.getvalue()


def trace_of(data: bytes, path: str) -> Trace:
    """The trace of a file with these bytes, inside of the file at `path`.  Raises TraceError as `load_trace` does."""
    with _opened(io.BytesIO(data)) as file:
        return _read(file, path, MAX_BYTES)


def load_meta(path: str | os.PathLike[str]) -> tuple[dict[str, int], dict[str, Any]]:
    """Of a trace file the rows (of its columns `size`, `kind` and `op`) and the meta alone, in a fraction of the time.

    Raises TraceError as `load_trace` does.
    """
    with _opened(Path(path)) as file:
        if _HEADER not in file.namelist():
            hint = _OF_RANKS if RANKS in file.namelist() else _NOT_A_TRACE
            raise TraceError("this file is not a trace: it has no header", str(path), hint)
        header = _header(file.read(_HEADER), str(path))
        return header["rows"], header["meta"]


@contextmanager
def _opened(path: Path | BinaryIO) -> Iterator[zipfile.ZipFile]:
    """The zip file; what goes wrong inside is a TraceError."""
    try:
        with zipfile.ZipFile(path) as file:
            yield file
    except FileNotFoundError:
        raise TraceError("there is no such trace file", str(path)) from None
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError):
        raise TraceError("this is not a trace file, or it is cut short or damaged", str(path), _NOT_A_TRACE) from None
    except OSError as error:
        raise TraceError(f"cannot read the trace: {error.strerror or error}", str(path)) from None
    except MemoryError:
        raise TraceError("the trace does not fit this machine's memory", str(path)) from None


def _write(trace: Trace, out: BinaryIO) -> None:
    # Level 6 halves small files; for columns of hundreds of megabytes level 1 is four times as fast.
    level = 6 if trace.events < 2_000_000 else 1
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as file:
        constant, rows = {}, {"size": trace.tensors, "kind": trace.events, "op": trace.ops}
        packed = []
        for name, values in recorded_columns(trace):
            if name not in rows and len(values) and not name.endswith(("_id", "_start")) and (values == values[0]).all():
                constant[name] = values[0].item()
            else:
                packed.append((name, values))
        header = {
            "format": FORMAT,
            "version": VERSION,
            "name": trace.name,
            "rows": rows,
            "constant": constant,
            **{name: list(table) for name, table in recorded_tables(trace)},
            "meta": trace.meta,
        }
        # A ZipInfo of its own has no date, no owner: equal traces give equal files.
        text = json.dumps(header, sort_keys=True, allow_nan=False).encode()
        file.writestr(zipfile.ZipInfo(_HEADER), text, zipfile.ZIP_DEFLATED, level)
        for name, values in packed:
            member = io.BytesIO()
            np.lib.format.write_array(member, _narrow(_encode(name, values)), (1, 0), allow_pickle=False)
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getbuffer(), zipfile.ZIP_DEFLATED, level)


def _encode(name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.diff(values, prepend=values.dtype.type(0)) if name in _DIFFERENCES else values


def _narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same numbers in the smallest signed integer type; whole-numbered floats become integers."""
    if not len(values):
        return values.astype(np.int8)
    low, high = values.min(), values.max()
    if values.dtype.kind == "f":
        if not (low >= -(2.0**53) and high <= 2.0**53 and (values == np.floor(values)).all()):
            return values
        values = values.astype(np.int64)
    for small in (np.int8, np.int16, np.int32):
        if np.iinfo(small).min <= low and high <= np.iinfo(small).max:
            return values.astype(small)
    return values


def _read(file: zipfile.ZipFile, path: str, max_bytes: int) -> Trace:
    members = {info.filename: info for info in file.infolist()}
    if _HEADER not in members:
        raise TraceError("this file is not a trace: it has no header", path, _OF_RANKS if RANKS in members else _NOT_A_TRACE)
    if members[_HEADER].file_size > _MAX_HEADER:
        raise TraceError("the trace's header is larger than 64 MiB", path)
    header = _header(file.read(_HEADER), path)
    rows, constant = header["rows"], header["constant"]
    unpacked = 8 * (2 * rows["size"] + 6 * rows["kind"] + 12 * rows["op"])
    unpacked += sum(8 * (members[f"{c}.npy"].file_size) for c in ("read_id", "write_id") if f"{c}.npy" in members)
    if unpacked > max_bytes:
        raise TraceError(
            f"unpacked, the trace could need {unpacked / 2**30:.1f} GiB, more than the limit", path, "is it damaged?"
        )
    made: dict[str, npt.NDArray[Any]] = {}
    for name, dtype in COLUMNS.items():
        length = _length(name, rows)
        if name in constant:
            made[name] = _repeated(constant[name], length, dtype, path)
        elif f"{name}.npy" in members:
            made[name] = _array(file, members[f"{name}.npy"], name, length, path)
        elif name in LATER:
            made[name] = np.full(rows["op"], LATER[name], dtype)
        else:
            raise TraceError(f"the trace lacks its column '{name}'", path, "was it written by another version?")
        made[name].flags.writeable = False
    tables = {t: header[t] for t in NAME_TABLES}
    return make_trace(header["name"], made, tables, header["meta"], where=lambda event: path)


def _length(name: str, rows: dict[str, int]) -> int | None:
    """Rows that the column must have; None when the column itself says."""
    if name.endswith("_id"):
        return None
    if name.endswith("_start"):
        return rows["op"] + 1
    return rows["size"] if name in ("size", "category") else rows["kind"] if name in _EVENT_COLUMNS else rows["op"]


_EVENT_COLUMNS = ("kind", "arg", "stream", "time", "addr", "bytes")


def _repeated(value: Any, length: int | None, dtype: np.dtype[Any], path: str) -> npt.NDArray[Any]:
    try:
        if length is None or (dtype.kind != "f" and value != int(value)):
            raise ValueError
        return np.full(length, value, dtype)
    except (ValueError, OverflowError):
        raise TraceError("the trace's header is damaged", path) from None


def _header(raw: bytes, path: str) -> dict[str, Any]:
    try:
        header = json.loads(raw)
        if header["format"] != FORMAT:
            raise KeyError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TraceError("this file is not a trace: its header is not ours", path, _NOT_A_TRACE) from None
    if header.get("version") != VERSION:
        raise TraceError(f"the trace has format version {header.get('version')}, this program reads {VERSION}", path)
    try:
        rows, constant = header["rows"], header["constant"]
        for table in LATER_TABLES.values():
            header.setdefault(table, [])
        whole = all(type(rows[c]) is int and rows[c] >= 0 for c in ("size", "kind", "op"))
        plain = all(c in COLUMNS and type(v) in (int, float) for c, v in constant.items())
        named = all(isinstance(n, str) for t in NAME_TABLES for n in header[t]) and isinstance(header["name"], str)
        if not (whole and plain and named and isinstance(header["meta"], dict)):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TraceError("the trace's header is damaged", path) from None
    return dict(header)


def _array(file: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, length: int | None, path: str) -> npt.NDArray[Any]:
    """One column, widened to its type in memory; what the array claims must be what the member holds."""
    damaged = TraceError(f"the trace's column '{name}' is damaged", path)
    with file.open(info) as member:
        start = member.read(10)
        match = _NPY.fullmatch(start + member.read(int.from_bytes(start[8:10], "little")))
        if match is None:
            raise damaged
        stored, rows = np.dtype(match[1].decode()), int(match[2])
        held = info.file_size - member.tell()
        if rows * stored.itemsize != held or (length is not None and rows != length):
            raise damaged
        values = np.empty(rows, stored)
        if _fill(member, values) != held:
            raise damaged
    if name in _DIFFERENCES:
        return np.cumsum(values, dtype=COLUMNS[name])
    return values.astype(COLUMNS[name])


def _fill(member: Any, values: npt.NDArray[Any]) -> int:
    """Decompresses straight into the array; returns the bytes read."""
    if not values.nbytes:
        return 0
    view, done = values.data.cast("B"), 0
    while done < len(view):
        count = member.readinto(view[done : done + io.DEFAULT_BUFFER_SIZE * 128])
        if not count:
            break
        done += count
    return done

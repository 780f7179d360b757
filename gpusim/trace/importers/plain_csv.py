"""Plain CSV, one event per line, for recordings of one's own: the first line names the columns.

    event        alloc, free, op, phase                                                      (always needed)
    tensor       the tensor's name, of alloc and free; a name may be used again after its free  (always needed)
    size         bytes, of alloc                                                             (always needed)
    stream       whole number, 0 the default stream
    time_ns      host time in ns since any origin; may not fall
    category     of alloc: param, fwd, ...
    addr         recorded address, of alloc
    name         of op: the operator's name; of phase: the phase's
    reads        of op: names of the tensors it reads, separated by blanks
    writes       of op: names of the tensors it writes, separated by blanks
    flops        of op
    read_bytes   of op; else the sizes of the tensors read
    written_bytes  of op; else the sizes of the tensors written
    dtype        of op: float32, bfloat16, ...
    module       of op: where in the program
    duration_ns  of op: its recorded time
    shape        of op: the dimensions of its tensors, as "8x512 512x64 -> 8x64" (gpusim.trace.shapes)

A field that an event does not need is left empty.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import TraceError, suggest
from gpusim.trace.build import make_trace
from gpusim.trace.importers import csv_tables as rows
from gpusim.trace.importers.csv_parse import fill_slots, parse
from gpusim.trace.importers.csv_table import CsvTable
from gpusim.trace.importers.recording import open_recording
from gpusim.trace.trace import COLUMNS, Trace

REQUIRED = ("event", "tensor", "size")
OPTIONAL = (
    "stream", "time_ns", "category", "addr", "name", "reads", "writes", "flops", "read_bytes", "written_bytes", "dtype",
    "module", "duration_ns", "shape",
)  # fmt: skip
_ROLES = {column: role for role, column in enumerate((*REQUIRED, *OPTIONAL))}  # as csv_tables numbers them
_EVENTS = ("alloc", "free", "op", "phase")
_COUNTS = {
    **dict.fromkeys(("kind", "arg", "stream", "time", "addr", "bytes"), rows.EVENTS),
    **dict.fromkeys(("size", "category"), rows.TENSORS),
    **dict.fromkeys(("op", "module", "dtype", "flops", "read_bytes", "written_bytes", "duration", "phase", "shape"), rows.OPS),
    **dict.fromkeys(("read_start", "write_start"), rows.OPS),
    "read_id": rows.READ_IDS,
    "write_id": rows.WRITE_IDS,
}  # column of the trace -> which count of `state` says how far it is filled
_SPACES = {
    "categories": rows.CATEGORIES, "op_names": rows.OP_NAMES, "phases": rows.PHASES, "dtypes": rows.DTYPES,
    "modules": rows.MODULES, "shapes": rows.SHAPES,
}  # fmt: skip
_PIECE = 1 << 18  # bytes read at once
_STEP = 1 << 20  # rows by which a column grows at least
_PARTED = "\x1f"  # stands for the comma in a piece with quotes
_MOST_SUGGESTED = 10_000  # names among which one like the unknown one is looked for


def read(data: BinaryIO, path: str, *, name: str | None = None) -> Trace:
    """The trace of one such file.  Raises TraceError with file:line."""
    head, lines = _head(data)
    table = CsvTable(head, path, required=REQUIRED, optional=OPTIONAL, strict=True)
    reader = _Reader(table.columns, path, lines)
    for block, separator in _blocks(data):
        reader.add(block, separator)
    given = {
        "accesses": bool({"reads", "writes"} & set(table.columns)),
        "times": "time_ns" in table.columns,
        "streams": "stream" in table.columns,
        "kernel times": "duration_ns" in table.columns,
        "flops": "flops" in table.columns,
        "addresses": "addr" in table.columns,
    }
    meta = {
        "format": "csv",
        "lacks": [what for what, there in given.items() if not there],
        "filled": {"bytes": "an operator without read_bytes or written_bytes moves the whole of its tensors"},
    }
    return make_trace(name or "csv", *reader.tables(), meta, where=lambda event: _where(path, event))


def _says(line: bytes) -> bool:
    """Whether a line is neither empty nor a comment."""
    return bool(line.strip()) and not line.removeprefix(b"\xef\xbb\xbf").startswith(b"#")


def _head(data: BinaryIO) -> tuple[bytes, int]:
    """The lines up to the names of the columns, and how many they are."""
    head, lines = b"", 0
    while line := data.readline(rows.LONGEST_LINE + 2):
        head, lines = head + line, lines + 1
        if _says(line) or len(head) > rows.LONGEST_LINE:
            break
    return head, lines


def _blocks(data: BinaryIO) -> Iterator[tuple[bytes, str]]:
    """The rest of the file in pieces of whole lines, and what parts the values in each."""
    while block := data.read(_PIECE):
        block += data.readline(rows.LONGEST_LINE + 2)
        if not block.endswith(b"\n"):
            block += b"\n"
        yield (_without_quotes(block), _PARTED) if b'"' in block else (block, ",")


def _without_quotes(block: bytes) -> bytes:
    lines = block.decode("utf-8", "replace").split("\n")
    for i, line in enumerate(lines):
        if not line.startswith("#"):
            quoted = '"' in line and len(line) < csv.field_size_limit()
            lines[i] = _PARTED.join(next(csv.reader([line])) if quoted else line.split(","))
    return "\n".join(lines).encode()


def _where(path: str, event: int) -> str:
    """ "file:line" of an event; each line that says something is one, after the first."""
    if event < 0:
        return path
    with open_recording(Path(path)) as file:
        saying = (number for number, line in enumerate(file, 1) if _says(line))
        return f"{path}:{next(islice(saying, event + 1, None), 0)}"


class _Reader:
    """Feeds pieces of the file to the compiled parser and grows what it fills."""

    def __init__(self, columns: list[str], path: str, lines: int) -> None:
        self.columns, self.path = columns, path
        self.roles = np.array([_ROLES[c] for c in columns], np.int64)
        self.first, self.last = np.zeros(rows.ROLES, np.int64), np.zeros(rows.ROLES, np.int64)
        self.symbols = np.zeros((1 << 14, rows.SYMBOL), np.int64)
        self.slots = np.full(2 * len(self.symbols), -1, np.int32)
        self.text = np.zeros(1 << 20, np.uint8)
        self.names = np.zeros(rows.SPACES, np.int64)
        self.state = np.zeros(rows.STATE, np.int64)
        self.state[[rows.IN_PHASE, rows.ORIGIN, rows.LATEST]] = -1
        self.state[rows.LINE] = lines
        self.found = {c: np.zeros(0, COLUMNS[c]) for c in rows.CsvTables._fields if c in COLUMNS}

    def add(self, block: bytes, separator: str) -> None:
        """The events of some lines.  Raises TraceError at the first that is at fault."""
        state, lines = self.state, block.count(b"\n")
        for column in self.found:
            room = len(block) // 2 + 1 if column in ("read_id", "write_id") else lines + 1
            self._reserve(column, int(state[_COUNTS[column]]) + room)
        odd = np.empty((lines, 4), np.int64)
        state[rows.AT] = state[rows.ODD] = 0
        verdict = rows.FULL
        while verdict == rows.FULL:
            tables = rows.CsvTables(
                state, self.roles, self.first, self.last, self.slots, self.symbols, self.text, self.names, odd, **self.found
            )
            verdict = parse(np.frombuffer(block, np.uint8), ord(separator), tables)
            if verdict == rows.FULL:
                self._grow()
        if verdict != rows.DONE:
            raise self._error(verdict, block)
        for op, first, last, line in odd[: state[rows.ODD]].tolist():
            self.found["flops"][op] = self._flops(block[first:last], line)

    def tables(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, list[str]]]:
        """Columns and names of the trace."""
        names = {table: [self._text(s) for s in self._symbols(space)] for table, space in _SPACES.items()}
        columns = self.found
        for column, array in columns.items():
            array.resize(int(self.state[_COUNTS[column]]) + (column in ("read_start", "write_start")), refcheck=False)
        for column, table, word in (
            ("category", "categories", "unknown"), ("op", "op_names", "op"), ("phase", "phases", "unnamed"),
            ("arg", "phases", "unnamed"),
        ):  # fmt: skip
            unnamed = columns[column] == rows.UNNAMED
            if unnamed.any():
                names[table] += [word] if word not in names[table] else []
                columns[column][unnamed] = names[table].index(word)
        for column, table in (("category", "categories"), ("dtype", "dtypes")):
            if len(names[table]) > np.iinfo(columns[column].dtype).max:
                raise TraceError(f"there are {len(names[table])} {table}, more than 16 bits can number", self.path)
        for array in columns.values():
            array.flags.writeable = False  # they are the trace's own from now on
        return columns, names

    def _reserve(self, column: str, count: int) -> None:
        array = self.found[column]
        if len(array) < count:  # in place as a rule: the system moves pages, not bytes
            array.resize(max(count, len(array) + _STEP), refcheck=False)

    def _grow(self) -> None:
        """Forgets the names of tensors that are gone, and doubles what is still half full."""
        count, symbols = int(self.state[rows.SYMBOLS]), self.symbols
        kept = (symbols[:count, rows.HASH] % rows.HASH_SPACES != rows.TENSOR_NAMES) | (symbols[:count, rows.VALUE] != rows.GONE)
        starts, ends = symbols[:count, rows.START][kept], symbols[1 : count + 1, rows.START][kept]
        text = np.concatenate([[0], np.cumsum(ends - starts)])
        letters = np.arange(text[-1]) + np.repeat(starts - text[:-1], ends - starts)
        count = self.state[rows.SYMBOLS] = len(starts)
        self.state[rows.TEXT] = text[-1]
        self.symbols = np.zeros((len(symbols) * (1 + (2 * count > len(symbols))), rows.SYMBOL), np.int64)
        self.symbols[:count] = symbols[: len(kept)][kept]
        self.symbols[: count + 1, rows.START] = text
        long = np.zeros(len(self.text) * (1 + (2 * len(letters) > len(self.text))), np.uint8)
        long[: len(letters)] = self.text[letters]
        self.text, self.slots = long, np.full(2 * len(self.symbols), -1, np.int32)
        fill_slots(self.slots, self.symbols, count)

    def _symbols(self, space: int) -> list[int]:
        hashes = self.symbols[: self.state[rows.SYMBOLS], rows.HASH]
        found: list[int] = np.flatnonzero(hashes % rows.HASH_SPACES == space).tolist()
        return found

    def _text(self, symbol: int) -> str:
        first, last = self.symbols[symbol : symbol + 2, rows.START].tolist()
        return self.text[first:last].tobytes().decode("utf-8", "replace")

    def _flops(self, text: bytes, line: int) -> float:
        """A number that is not whole, or too large to be exact."""
        try:
            return float(text)
        except ValueError:
            shown = text[:40].decode("utf-8", "replace")
            raise TraceError(f"'{shown}' in column 'flops' is not a number", f"{self.path}:{line}") from None

    def _error(self, verdict: int, block: bytes) -> TraceError:
        state = self.state
        role, first, last = state[[rows.ROLE, rows.FROM, rows.TO]].tolist()
        text = {r: block[self.first[r] : self.last[r]].decode("utf-8", "replace") for r in _ROLES.values()}
        column = {role: column for column, role in _ROLES.items()}.get(role, "")
        hint = ""
        if verdict == rows.LONG_LINE:
            message, hint = "the line is longer than a million characters", "is this a CSV file?"
        elif verdict == rows.VALUES:
            message = f"the line has {role} values, but there are {len(self.columns)} columns"
            hint = "is the file cut short?"
        elif verdict == rows.UNKNOWN_EVENT:
            message, hint = f"unknown event '{text[rows.EVENT][:40]}'", suggest(text[rows.EVENT], _EVENTS)
        elif verdict == rows.NOT_WHOLE:
            message = f"'{text[role][:40]}' in column '{column}' is not a whole number"
        elif verdict == rows.TOO_LARGE:
            message = f"{text[role][:40]} in column '{column}' overflows 64 bits"
        elif verdict == rows.NO_TENSOR:
            message = "an alloc needs a tensor"
        elif verdict == rows.LIVE_TWICE:
            message = f"tensor '{text[rows.TENSOR][:40]}' is allocated again before it is freed"
            hint = "give it another name"
        elif verdict == rows.NEGATIVE:
            message, hint = f"event {state[rows.EVENTS]}: the size {text[rows.SIZE]} is negative", "sizes are bytes"
        elif verdict == rows.MANY_STREAMS:
            message, hint = f"the stream {text[rows.STREAM]} does not fit 16 bits", "number the streams from 0"
        elif verdict == rows.FALLS:
            message, hint = f"time_ns falls from {first} to {last}", "events stand in the order of issue"
        elif verdict == rows.SUM:
            message = f"a number of operator '{text[rows.NAME][:40]}' does not fit 64 bits"
            hint = "sizes are bytes, times are ns"
        else:
            name = block[first:last].decode("utf-8", "replace")
            verb = {rows.TENSOR: "frees", rows.READS: "reads", rows.WRITES: "writes"}[role]
            known = "was already freed" if self._was_there(name) else "was never allocated"
            message, hint = f"this line {verb} tensor '{name[:40]}', which {known}", self._like(name)
        return TraceError(message, f"{self.path}:{state[rows.LINE]}", hint)

    def _like(self, name: str) -> str:
        live = [s for s in self._symbols(rows.TENSOR_NAMES) if self.symbols[s, rows.VALUE] != rows.GONE]
        return suggest(name, map(self._text, live[-_MOST_SUGGESTED:]))

    def _was_there(self, name: str) -> bool:
        """Whether a line before this one allocates the tensor; the tables forget the names of those that are gone."""
        with open_recording(Path(self.path)) as file:
            before = b"".join(islice(file, int(self.state[rows.LINE]) - 1))
        table = CsvTable(before, self.path, required=REQUIRED, optional=OPTIONAL)
        return any(row["event"] == "alloc" and row["tensor"] == name for row in table)

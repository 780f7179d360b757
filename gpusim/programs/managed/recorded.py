"""Kernels from a recording of their memory accesses: a CSV, as a tool such as NVBit's mem_trace can be made to write one.

    kernel, address, bytes, access[, warp]         address: absolute, as 0x7f..; needs arrays with an `address`
    kernel, array, offset, bytes, access[, warp]   offset: into the array

A row is what one instruction of one warp touched: `bytes` from there on, access `r` or `w`.  Rows stand in the order of issue;
where `kernel` changes a new one begins.  Rows of one `warp` (any number) come one after the other; without that column a warp
does 32 rows at once, one a thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpusim.base.errors import TraceError, suggest
from gpusim.programs.managed.pattern import SECTOR
from gpusim.programs.managed.patterns import grid_for
from gpusim.programs.managed.steps import Access, Kernel
from gpusim.trace.importers.csv_table import CsvTable

LARGEST = 4096  # bytes of one access; larger rows are several
BLOCK = 256     # threads of a thread block, where a thread does one row


class Place(NamedTuple):
    """An array: its bytes, and its address where that is known."""

    bytes: int
    address: int | None


class AccessRow(NamedTuple):
    kernel: str
    array: str
    unit: int     # bytes of an aligned piece of the array, a power of two ...
    piece: int    # ... and which of them
    write: bool
    warp: int


def kernels(path: Path, arrays: Mapping[str, Place]) -> Iterator[Kernel]:
    """The kernels of a recording, in their order.  Raises TraceError at the line that is wrong."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror or error}", str(path)) from None
    if not data.strip():
        raise TraceError("is empty", str(path), "its first line names the columns")
    empty = True
    for name, rows in groupby(_rows(data, path, arrays), lambda row: row.kernel):
        empty = False
        yield _kernel(name, list(rows), f"{path}")
    if empty:
        raise TraceError("has no accesses", str(path))


def _kernel(name: str, rows: list[AccessRow], where: str) -> Kernel:
    """One access for each kind of row; its index has -1 where a thread's row is of another kind."""
    by_warp = rows[0].warp >= 0
    if by_warp:
        lines: dict[int, list[AccessRow]] = defaultdict(list)
        for row in rows:
            lines[row.warp].append(row)
        steps = max(map(len, lines.values()))
        at = [(w * steps + k, row) for w, line in enumerate(lines.values()) for k, row in enumerate(line)]
        size, grid, block = len(lines) * steps, (len(lines), 1), (1, 1)
    else:
        at, size, steps, grid, block = list(enumerate(rows)), len(rows), 1, grid_for(len(rows), BLOCK), (BLOCK, 1)
    index = {(r.array, r.write, r.unit): np.full(size, -1, np.int64) for r in rows}
    for k, r in at:
        index[r.array, r.write, r.unit][k] = r.piece
    tx, bx, inner = (0, steps, 1) if by_warp else (1, BLOCK, 0)
    accesses = [
        Access(array, write, unit, tx=tx, bx=bx, inner=inner, index=table) for (array, write, unit), table in index.items()
    ]
    return Kernel(name, accesses, grid, block, (steps, 1), where=where)


def _rows(data: bytes, path: Path, arrays: Mapping[str, Place]) -> Iterator[AccessRow]:
    named = b"array" in data.split(b"\n", 1)[0].lower() if data else False
    places = ("array", "offset") if named else ("address",)
    table = CsvTable(data, str(path), required=("kernel", *places, "bytes", "access"), optional=("warp",), strict=True)
    by_warp = "warp" in table.columns
    for row in table:
        size = table.whole(row, "bytes")
        if not row["kernel"]:
            raise table.error("the row names no kernel")
        if size < 1:
            raise table.error(f"an access of {size} bytes")
        if named:
            array, offset = row["array"], _address(table, row["offset"])
            if array not in arrays:
                raise table.error(f"no array is called '{array}'", suggest(array, arrays))
        else:
            array, offset = _array_at(table, row["kernel"], _address(table, row["address"]), arrays)
        if offset < 0 or offset + size > arrays[array].bytes:
            at = offset if offset < 0 else max(offset, arrays[array].bytes)
            begin = None if named else arrays[array].address
            where = f"byte {at:,}" if begin is None else f"{begin + at:#x}, byte {at:,}"
            has = f"which has {arrays[array].bytes:,}"
            raise table.error(f"{row['kernel']}: segmentation fault at {where} of '{array}', {has}")
        write = table.known(row["access"].lower(), {"r": "", "w": "w"}) == "w"
        warp = table.whole(row, "warp") if by_warp else -1
        if by_warp and warp < 0:
            raise table.error(f"warp {warp} is below 0")
        for unit, index in _pieces(offset, size):
            yield AccessRow(row["kernel"], array, unit, index, write, warp)


def _pieces(offset: int, size: int) -> Iterator[tuple[int, int]]:
    """Aligned pieces of at most a page that cover the bytes, each as small as holds its part."""
    end = offset + size
    while offset < end:
        stop = min(end, (offset // LARGEST + 1) * LARGEST)
        unit = SECTOR
        while offset // unit != (stop - 1) // unit:
            unit *= 2
        yield unit, offset // unit
        offset = stop


def _address(table: CsvTable, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise table.error(f"'{text[:40]}' is not an address", "write 0x7f0000000000, or a whole number") from None


def _array_at(table: CsvTable, kernel: str, address: int, arrays: Mapping[str, Place]) -> tuple[str, int]:
    for name, place in arrays.items():
        if place.address is not None and place.address <= address < place.address + place.bytes:
            return name, address - place.address
    if all(place.address is None for place in arrays.values()):
        raise table.error("no array has an address", "give the arrays of the program theirs: {bytes: 1 MiB, address: 0x7f..}")
    raise table.error(f"{kernel}: segmentation fault at {address:#x}, which is in no array")

"""minimalloc's planning problems: `id,lower,upper,size[,offset]`, buffers live over [lower, upper) of a logical clock.

At one tick frees come before allocs, since `upper` is exclusive.  The ticks give only an order; they are not times.
"""

from __future__ import annotations

from typing import NamedTuple

from gpusim.base.errors import shown
from gpusim.trace.build import TraceBuilder
from gpusim.trace.importers.csv_table import CsvTable
from gpusim.trace.trace import Trace


class BufferRow(NamedTuple):
    """A buffer; its offset is -1 where the file has none."""

    id: str
    lower: int
    upper: int
    size: int
    offset: int
    line: int


def rows(data: bytes, path: str) -> list[BufferRow]:
    """The buffers in the order of the file.  Raises TraceError."""
    table = CsvTable(data, path, required=("id", "lower", "upper", "size"), optional=("offset",), strict=True)
    found: list[BufferRow] = []
    seen: set[str] = set()
    for row in table:
        lower, upper, size = (table.whole(row, c) for c in ("lower", "upper", "size"))
        if row["id"] in seen:
            raise table.error(f"the buffer '{shown(row['id'])}' is there twice")
        if upper <= lower:
            raise table.error(f"the buffer '{shown(row['id'])}' ends at {upper}, not after its start at {lower}")
        if size < 0:
            raise table.error(f"the size {size} is negative", "sizes are bytes")
        seen.add(row["id"])
        offset = table.whole(row, "offset") if "offset" in row else -1
        found.append(BufferRow(row["id"], lower, upper, size, offset, table.line))
    return found


def read(data: bytes, path: str, *, name: str | None = None) -> Trace:
    """The trace of one problem; an `offset` (a solution) becomes the recorded address.  Raises TraceError."""
    build = TraceBuilder(name or "minimalloc", path)
    buffers = rows(data, path)
    moments: list[tuple[int, int, int]] = []  # (tick, 0 free or 1 alloc, buffer)
    for i, buffer in enumerate(buffers):
        moments += [(buffer.lower, 1, i), (buffer.upper, 0, i)]
    moments.sort()
    tensor: dict[int, int] = {}
    for _, begins, i in moments:
        buffer = buffers[i]
        build.line = buffer.line
        if begins:
            tensor[i] = build.alloc(buffer.size, addr=buffer.offset)
        else:
            build.free(tensor[i], addr=buffer.offset)
    build.meta = {
        "format": "minimalloc",
        "lacks": ["accesses", "operators", "times", "streams"],
        "filled": {"order": "by tick; at equal ticks frees before allocs, then in the order of the file"},
    }
    return build.finish()

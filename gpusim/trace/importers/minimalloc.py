"""minimalloc's planning problems: `id,lower,upper,size[,offset]`, buffers live over [lower, upper) of a logical clock.

At one tick frees come before allocs, since `upper` is exclusive.  The ticks give only an order; they are not times.
"""

from __future__ import annotations

from gpusim.trace.build import TraceBuilder
from gpusim.trace.importers.table import Table
from gpusim.trace.trace import Trace


def read(data: bytes, path: str, *, name: str | None = None) -> Trace:
    """The trace of one problem; an `offset` (a solution) becomes the recorded address.  Raises TraceError."""
    table = Table(data, path, required=("id", "lower", "upper", "size"), optional=("offset",), strict=True)
    build = TraceBuilder(name or "minimalloc", path)
    moments: list[tuple[int, int, int]] = []  # (tick, 0 free or 1 alloc, buffer)
    buffers: list[tuple[int, int, int]] = []  # (size, offset, line)
    seen: set[str] = set()
    for row in table:
        lower, upper, size = (table.whole(row, c) for c in ("lower", "upper", "size"))
        if row["id"] in seen:
            raise table.error(f"the buffer '{row['id']}' is there twice")
        if upper <= lower:
            raise table.error(f"the buffer '{row['id']}' ends at {upper}, not after its start at {lower}")
        seen.add(row["id"])
        moments += [(lower, 1, len(buffers)), (upper, 0, len(buffers))]
        buffers.append((size, table.whole(row, "offset") if "offset" in row else -1, table.line))
    moments.sort()
    tensor: dict[int, int] = {}
    for _, begins, buffer in moments:
        size, offset, build.line = buffers[buffer]
        if begins:
            tensor[buffer] = build.alloc(size, addr=offset)
        else:
            build.free(tensor[buffer], addr=offset)
    build.meta = {
        "format": "minimalloc",
        "lacks": ["accesses", "operators", "times", "streams"],
        "filled": {"order": "by tick; at equal ticks frees before allocs, then in the order of the file"},
    }
    return build.finish()

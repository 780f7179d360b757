"""torch.profiler's export_memory_timeline(*.raw.json.gz): rows of [time in ns, action, bytes, category] of one device.

A row names no tensor.  A tensor's row is told from the others by its bytes and its category, of several by the latest; a
change of version is two rows, which take the tensor out of one category and into the next.
"""

from __future__ import annotations

from typing import BinaryIO

from gpusim.base.errors import TraceError
from gpusim.trace.build import TraceBuilder
from gpusim.trace.importers.json_stream import JsonStream
from gpusim.trace.trace import Trace

# torch/profiler/_memory_profiler.py, PyTorch 2.13: Action, and the order of _CATEGORY_TO_COLORS.
_PREEXISTING, _CREATE, _VERSION, _DESTROY = range(1, 5)
_CATEGORIES = ("param", "opt", "input", "temporary", "activation", "grad", "autograd", "unknown")
_HINT = "export_memory_timeline writes such rows when its file is named *.raw.json.gz"


def read(data: BinaryIO, path: str, *, name: str | None = None) -> Trace:
    """The trace of one such file.  Raises TraceError with the line and the row."""
    rows = _Rows()
    stream = JsonStream(data, path, "rows")
    for number, (_, row) in enumerate(stream):
        try:
            time, action, size, kind = row
            rows.add(int(time), action, int(size), kind)
        except IndexError:
            fault = f"row {number} is of {abs(size)} bytes of category {_CATEGORIES[kind]}, which nothing holds"
            raise TraceError(fault, stream.where, "is a row missing?") from None
        except (TypeError, ValueError, OverflowError):
            raise TraceError(f"row {number} is not [time, action, bytes, category]", stream.where, _HINT) from None
    build = TraceBuilder(name or "timeline", path)
    for at, size, tensor in rows.events:
        if size >= 0:
            build.alloc(size, _CATEGORIES[rows.category[tensor]], time=at)
        else:
            build.free(tensor, time=at)
    build.meta = {
        "format": "memory-timeline",
        "lacks": ["accesses", "operators", "kernel times", "addresses", "streams", "identities of tensors"],
        "filled": {
            "frees": f"of the latest tensor of the same bytes and category; {rows.guessed} of {rows.moves} had several to "
            "choose from",
            "category": "the last that a tensor was in",
        },
        "versions": rows.versions,
    }
    return build.finish()


class _Rows:
    """Rows as allocs and frees of tensors, which are numbered in the order of their allocs."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int, int]] = []  # (ns since the first or -1, bytes or -1 of a free, tensor)
        self.category: list[int] = []  # of each tensor, the last
        self.guessed = self.moves = self.versions = 0
        self._live: dict[tuple[int, int], list[int]] = {}  # (bytes, category) -> tensors, the latest last
        self._moving: list[int] = []  # between the two rows of a change of version
        self._origin = -1

    def add(self, time: int, action: int, size: int, kind: int) -> None:
        if action not in (_PREEXISTING, _CREATE, _VERSION, _DESTROY) or kind not in range(len(_CATEGORIES)):
            raise ValueError
        self._origin = time if self._origin < 0 else self._origin
        at = time - self._origin if time >= 0 else -1
        held = self._live.setdefault((abs(size), kind), [])
        if action in (_PREEXISTING, _CREATE):
            held.append(len(self.category))
            self.category.append(kind)
            self.events.append((at, size, held[-1]))
        elif action == _VERSION and self._moving:
            held.append(self._moving.pop())
            self.category[held[-1]] = kind
        else:
            tensor = held.pop()
            self.guessed += bool(held)
            self.moves += 1
            if action == _DESTROY:
                self.events.append((at, -1, tensor))
            else:
                self._moving.append(tensor)
                self.versions += 1

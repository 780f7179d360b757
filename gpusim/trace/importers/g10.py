"""Kernel and tensor traces of the G10 study: JSON lines, a header, then tensors, then kernels in the order of execution.

    {"format": "g10-neutral-trace/1", "net", "batch", "n_kernels", "n_tensors", ...}
    {"t": id, "bytes", "global": kept over iterations, "ws": a workspace, "first": kernel, "end": one past the last}
    {"k": id, "op", "ms", "ms_in_fault", "ms_all_fault", "in": [ids], "out": [ids], "req": [ids, as the study walks them]}

A tensor lives from its first kernel to its last.  What is global lives always: weights, and in BERT and ViT also constants
that the study broadcasts to the shape of the activations.  The orders in which the study numbers tensors and walks a kernel's
stay in the meta (`order`: the file's id of each tensor; the three lists of each kernel): its replay depends on them.
"""

from __future__ import annotations

import json
from typing import Any

from gpusim.base.errors import TraceError, shown
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import Trace

# Seconds that a line through the study's batches leaves for an empty one; of its transformers 2 and 4.
_CONSTANT = {"Inceptionv3": 53, "ResNet152": 106, "SENet154": 123}

Fields = dict[str, type]

_HINT = "is the file cut short, or of another format?"
_HEADER: Fields = {"net": str, "batch": int, "n_kernels": int, "n_tensors": int}
_TENSOR: Fields = {"t": int, "bytes": int, "global": int, "ws": int}
_LIFE: Fields = {"first": int, "end": int}
_KERNEL: Fields = {
    "k": int, "op": str, "ms": float, "ms_in_fault": float, "ms_all_fault": float, "in": list, "out": list, "req": list,
}  # fmt: skip


def read(data: bytes, path: str, *, name: str | None = None) -> Trace:
    """The trace of one iteration of one network.  Raises TraceError with file:line."""
    return _Reader(data.splitlines(), TraceBuilder("", path)).trace(name)


class _Reader:
    def __init__(self, lines: list[bytes], build: TraceBuilder) -> None:
        self.build = build
        rows = [self._row(number, line) for number, line in enumerate(lines, 1)]
        self.header = self._fields(1, rows[0], _HEADER)
        split = next((i for i, row in enumerate(rows) if "k" in row), len(rows))
        self.line_of_tensors, self.line_of_kernels = 2, split + 1
        self.tensors = self._numbered(rows[1:split], 2, _TENSOR, "t")
        self.kernels = self._numbered(rows[split:], split + 1, _KERNEL, "k")
        self.lives = [self._life(t) for t in self.tensors]

    def trace(self, name: str | None) -> Trace:
        build, header = self.build, self.header
        build.name = name or f"{header['net']}-b{header['batch']}".lower()
        born: list[list[int]] = [[] for _ in self.kernels]
        dies: list[list[int]] = [[] for _ in self.kernels]
        ids: dict[int, int] = {}  # the file's -> the trace's
        for t, (first, end) in enumerate(self.lives):
            if first < 0:
                build.line = self.line_of_tensors + t
                ids[t] = build.alloc(self.tensors[t]["bytes"], "param")
            else:
                born[first].append(t)
                dies[end - 1].append(t)
        phase = "fwd"
        build.begin_phase("step0.fwd")
        for k, kernel in enumerate(self.kernels):
            build.line = self.line_of_kernels + k
            if phase == "fwd" and "_Backward" in kernel["op"]:
                phase = "bwd"
                build.begin_phase("step0.bwd")
            for t in born[k]:
                ids[t] = build.alloc(self.tensors[t]["bytes"], "workspace" if self.tensors[t]["ws"] else phase)
            reads, writes = self._accesses(k, "in"), self._accesses(k, "out")
            build.op(
                kernel["op"], [ids[t] for t in reads], [ids[t] for t in writes], duration=_ns(kernel["ms"]),
                read_bytes=sum(self.tensors[t]["bytes"] for t in reads),
                written_bytes=sum(self.tensors[t]["bytes"] for t in writes),
            )  # fmt: skip
            for t in dies[k]:
                build.free(ids[t])
        doubt = f"{_CONSTANT.get(header['net'])} s of the kernel times do not depend on the batch: compare with this study only"
        build.meta = {
            "format": "g10",
            "source": header.get("source", "github.com/platformxlab/G10"),
            "licence": "Apache-2.0",
            "lacks": ["host times", "addresses", "streams", "flops", "bytes moved"],
            "filled": {
                "bytes": "a kernel moves the whole of the tensors that it reads and writes",
                "phases": "the backward pass begins with the first operator of that name; it holds the optimizer as well",
            },
            "g10": {key: value for key, value in header.items() if key not in ("format", "source")},
            "warnings": [doubt] if header["net"] in _CONSTANT else [],
            "fault_ns": {key: [_ns(k[f"ms_{key}_fault"]) for k in self.kernels] for key in ("in", "all")},
            "order": {
                "file": sorted(ids, key=lambda t: ids[t]),
                **{key: [[ids[t] for t in k[key]] for k in self.kernels] for key in ("in", "out", "req")},
            },
        }
        return build.finish()

    def _row(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise self._error(number, "this line is not a JSON object", _HINT)
        return row

    def _fields(self, number: int, row: dict[str, Any], wanted: Fields) -> dict[str, Any]:
        for field, kind in wanted.items():
            value = row.get(field)
            if type(value) is not kind and not (kind is float and type(value) is int):
                raise self._error(number, f"'{field}' is missing, or not {kind.__name__}", _HINT)
            if kind in (int, float) and not 0 <= row[field] < 2**53:
                raise self._error(number, f"'{field}' is {shown(value)}", "sizes are bytes, times ms")
        return row

    def _numbered(self, rows: list[dict[str, Any]], line: int, wanted: Fields, key: str) -> list[dict[str, Any]]:
        what = {"t": "tensor", "k": "kernel"}[key]
        for i, row in enumerate(rows):
            if self._fields(line + i, row, wanted)[key] != i:
                fault = f"{what} {shown(row[key])} stands where {what} {i} is due"
                raise self._error(line + i, fault, "they are numbered in order")
        if len(rows) != self.header[f"n_{what}s"]:
            said = self.header[f"n_{what}s"]
            raise self._error(line + len(rows) - 1, f"there are {len(rows)} {what}s, but the header says {shown(said)}", _HINT)
        return rows

    def _life(self, row: dict[str, Any]) -> tuple[int, int]:
        """(first kernel, one past the last); (-1, ...) of what is global."""
        if row["global"]:
            return -1, len(self.kernels)
        number = self.line_of_tensors + row["t"]
        self._fields(number, row, _LIFE)
        first, end = int(row["first"]), int(row["end"])
        if not first < end <= len(self.kernels):
            life = f"lives from kernel {shown(first)} to before kernel {shown(end)}"
            raise self._error(number, f"tensor {row['t']} {life}", _HINT)
        return first, end

    def _accesses(self, k: int, side: str) -> list[int]:
        """The tensors in the order in which the study walks them."""
        kernel, number = self.kernels[k], self.line_of_kernels + k
        for t in kernel[side] + kernel["req"]:
            if type(t) is not int or not 0 <= t < len(self.tensors):
                raise self._error(number, f"kernel {k} uses tensor {shown(t)}, but there are {len(self.tensors)}")
            first, end = self.lives[t]
            if not first <= k < end:
                life = f"lives from kernel {first} to before kernel {end}"
                raise self._error(number, f"kernel {k} uses tensor {t}, which {life}")
        place = {t: i for i, t in enumerate(kernel["req"])}
        return sorted(kernel[side], key=lambda t: place.get(t, len(place)))

    def _error(self, number: int, message: str, hint: str = "") -> TraceError:
        self.build.line = number
        return TraceError(message, self.build.where, hint)


def _ns(ms: float) -> int:
    return round(ms * 1_000_000)

"""XLA's buffer assignment, as `XLA_FLAGS=--xla_dump_to=FOLDER` writes it for JAX and TensorFlow: memory as it was planned.

    X-buffer-assignment.txt           allocations with sizes, and the values in them with offsets: the file to import
    X-buffer-assignment-values.txt    what makes and uses each value; part of the first file in older versions
    X-live-range.txt                  the schedule, and from which to which instruction of it a value lives; likewise
    X.txt                             the program, for flops; may be missing

Instructions that only name memory (parameter, tuple, bitcast, while, ...) are no operators; a fusion is one.  A value lives
from the instruction that makes it to the last that uses it.  An operator that works in place makes a value where one lies
that ends with it: both are one tensor (`in_place=0`: each is its own, as in XLA's figure of the peak).
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import BinaryIO

from gpusim.trace.build import TraceBuilder
from gpusim.trace.importers.xla_dump import Dump, Value, beside, parse, stem
from gpusim.trace.importers.xla_hlo import DTYPES, flops, opcode
from gpusim.trace.trace import Trace

_ALIGN = 256  # bytes, of allocations as they are laid out here
_SCOPE = re.compile(r'op_name="([^"]*)"')
_NO_WORK = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call", "after-all",
            "add-dependency", "opt-barrier", "domain", "partition-id", "replica-id", ""}  # fmt: skip


def read(file: BinaryIO, path: str, *, name: str | None = None, in_place: int = 1) -> Trace:
    """The trace of one module.  Raises TraceError."""
    dump = parse(file, path)
    live = [value for value in dump.values.values() if value.start >= 0]
    tensors = _tensors(live, bool(in_place))
    build = TraceBuilder(name or re.sub(r"^module_\d+\.|\.[\w.]+_after_optimizations$", "", stem(path)), path)
    _events(build, dump, live, tensors, flops(beside(path, ".txt")))
    peak = sum(value.size for value in live if value.start <= dump.peak_at <= value.end)
    allocated = sum(allocation.size for allocation in dump.allocations)
    build.meta = {
        "format": "xla",
        "lacks": ["times", "streams", "how often loops run"],
        "filled": {
            "times": "kernel times are modelled on the machine that is asked for",
            "loops": "their instructions stand once, as in XLA's schedule",
            "addresses": "XLA's offsets, its allocations one after another",
        },
        "allocations": len(dump.allocations),
        "allocated_bytes": allocated,
        "values": len(live),
        "peak_of_values": peak,
        "host_bytes": dump.host,
        "warnings": [
            *([f"the values at the peak have {peak:,} bytes, but XLA states {dump.peak:,}"] if peak != dump.peak else []),
            *([f"the allocations have {allocated:,} bytes, but XLA states {dump.total:,}"] if allocated != dump.total else []),
        ],
    }
    return build.finish()


@dataclass
class _Tensor:
    first: Value
    size: int
    end: int
    id: int = -1


def _tensors(live: list[Value], merge: bool) -> dict[int, _Tensor]:
    """Tensor of each value by the value's identity; values made in place have that of the one that they continue."""
    found: dict[int, _Tensor] = {}
    latest: dict[tuple[int, int], _Tensor] = {}  # (allocation, offset) -> what lay there last
    for value in sorted(live, key=lambda v: (v.start, v.end)):
        place = value.allocation, value.offset
        before = latest.get(place)
        if merge and before is not None and value.start <= before.end:
            before.size, before.end = max(before.size, value.size), max(before.end, value.end)
            found[id(value)] = before
        else:
            found[id(value)] = latest[place] = _Tensor(value, value.size, value.end)
    return found


def _events(
    build: TraceBuilder, dump: Dump, live: list[Value], tensors: dict[int, _Tensor], flops: dict[str, float]
) -> None:  # fmt: skip
    scope = {name: found[1] for name, text in dump.makers.items() if (found := _SCOPE.search(text))}
    trained = any("transpose(" in text for text in scope.values())
    bases = _bases(dump)
    begins, ends = defaultdict[int, list[_Tensor]](list), defaultdict[int, list[_Tensor]](list)
    makes, uses = defaultdict[str, list[Value]](list), defaultdict[str, list[Value]](list)
    for tensor in {id(t): t for t in tensors.values()}.values():
        begins[tensor.first.start].append(tensor)
        ends[tensor.end].append(tensor)
    for value in live:
        makes[value.maker].append(value)
        for user in dict.fromkeys(value.users):
            uses[user].append(value)
    for i, instruction in enumerate(dump.schedule):
        for tensor in begins[i]:
            first = tensor.first
            what = dump.allocations[first.allocation].what
            category = _category(what, scope.get(first.maker, ""), trained)
            tensor.id = build.alloc(tensor.size, category, addr=bases[first.allocation] + first.offset)
        text = dump.makers.get(instruction, "")
        if opcode(text) not in _NO_WORK:
            reads, writes = uses[instruction], makes[instruction]
            build.op(
                _name(instruction, text), {tensors[id(v)].id: None for v in reads}, {tensors[id(v)].id: None for v in writes},
                read_bytes=sum(v.size for v in reads), written_bytes=sum(v.size for v in writes),
                flops=flops.get(instruction, 0.0), dtype=DTYPES.get(writes[0].dtype) if writes else None,
                module=scope.get(instruction),
            )  # fmt: skip
        for tensor in ends[i]:
            build.free(tensor.id, addr=bases[tensor.first.allocation] + tensor.first.offset)


def _name(instruction: str, text: str) -> str:
    """What the operator does: the instruction's name without its number, which for a fusion says what is fused."""
    return re.sub(r"(\.\w*\d+)+$", "", instruction) if opcode(text) == "fusion" else opcode(text)


def _category(what: str, scope: str, trained: bool) -> str:
    """JAX names the scope of what it differentiates jvp(...), and of the gradient transpose(...)."""
    if ", parameter" in what:
        return "input"
    if ", constant" in what:
        return "buffer"
    if not scope:
        return "unknown"
    return "bwd" if "transpose(" in scope else "optim" if trained and "jvp(" not in scope else "fwd"


def _bases(dump: Dump) -> list[int]:
    """Address of each allocation."""
    found, end = [], 0
    for allocation in dump.allocations:
        found.append(end)
        end += -(-allocation.size // _ALIGN) * _ALIGN
    return found

"""Operator recordings: JSON lines of storages, operators with their accesses, and phases; no times.

The first line is an object (workload, operator and module names); every further line is an array:

    ["a", id, bytes, class, device]   a storage appears; class: param, buffer, input, opt, or the phase that made it
    ["z", id, bytes]                  it is resized: modelled as the free of one tensor and the alloc of another
    ["f", id]                         it is freed
    ["p", name]                       a phase begins: step0.fwd, decode7, ...
    ["o", op, [read ids], [written ids], read_bytes, written_bytes, flops, dtype, module]   an operator ran
"""

from __future__ import annotations

import json
import re
from typing import Any

from gpusim.base.errors import TraceError, shown
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import Trace

_STEP = re.compile(r"^step\d+\.|\d+$")  # step1.fwd -> fwd, decode7 -> decode
_HEADER_LISTS = ("ops", "modules")
_FIELDS = {"a": 5, "z": 3, "f": 2, "p": 2, "o": 9}
_HINT = "is the file cut short, or of another format?"


def read(data: bytes, path: str, *, name: str | None = None) -> Trace:
    """The trace of one recording; `name` defaults to the header's workload.  Raises TraceError with file:line."""
    lines = data.splitlines()
    header = _json(lines[0], f"{path}:1")
    if not (isinstance(header, dict) and all(_strings(header.get(key)) for key in _HEADER_LISTS)):
        raise TraceError("the first line is not a recorder's header with 'ops' and 'modules'", f"{path}:1", _HINT)
    ops, modules = header["ops"], header["modules"]
    build = TraceBuilder(name or str(header.get("workload", "recording")), path)
    tensor: dict[int, int] = {}  # recorder id -> tensor id, of live storages
    category: dict[int, str] = {}
    resized = 0
    for number, line in enumerate(lines[1:], 2):
        build.line = number
        event = _json(line, build.where)
        try:
            kind = event[0]
            if len(event) != _FIELDS[kind]:
                raise ValueError
            if kind == "a":
                key = _fresh(event[1], tensor, category, build)
                category[key] = _STEP.sub("", event[3])
                tensor[key] = build.alloc(_whole(event[2]), category[key])
            elif kind == "f":
                build.free(_live(event[1], tensor, category, build, "frees"))
                del tensor[event[1]]
            elif kind == "z":
                build.free(_live(event[1], tensor, category, build, "resizes"))
                tensor[event[1]] = build.alloc(_whole(event[2]), category[event[1]])
                resized += 1
            elif kind == "p":
                build.begin_phase(str(event[1]))
            else:
                _, op, reads, writes, read_bytes, written_bytes, flops, dtype, module = event
                build.op(
                    ops[_whole(op)],
                    [_live(i, tensor, category, build, "reads") for i in reads],
                    [_live(i, tensor, category, build, "writes") for i in writes],
                    read_bytes=_whole(read_bytes),
                    written_bytes=_whole(written_bytes),
                    flops=float(flops),
                    dtype=dtype,
                    module=None if module is None else modules[_whole(module)],
                )
        except TraceError:
            raise
        except (ValueError, TypeError, KeyError, IndexError):
            raise TraceError("this line is not a recorder event", build.where, _HINT) from None
    build.meta = {
        "format": "recorder",
        "recorder": {key: value for key, value in header.items() if key not in _HEADER_LISTS},
        "lacks": ["times", "addresses", "streams", "library workspaces"],
        "filled": {"times": "kernel times are modelled on the machine that is asked for"},
        "resized_storages": resized,
    }
    return build.finish()


def _json(line: bytes, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise TraceError("this line is not JSON", where, _HINT) from None


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _fresh(key: Any, tensor: dict[int, int], category: dict[int, str], build: TraceBuilder) -> int:
    if key in category:
        state = "is still live" if key in tensor else "was freed, and ids are never reused"
        raise TraceError(f"storage {shown(key)} appears again, but it {state}", build.where, "give the new storage its own id")
    return _whole(key)


def _live(key: Any, tensor: dict[int, int], category: dict[int, str], build: TraceBuilder, verb: str) -> int:
    found = tensor.get(key)
    if found is None:
        state = "was already freed" if key in category else "never appeared"
        fault = f"this line {verb} storage {shown(key)}, which {state}"
        raise TraceError(fault, build.where, "every storage needs an 'a' line first")
    return found

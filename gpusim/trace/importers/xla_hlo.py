"""Flops of the instructions of a compiled XLA program, from its text: matrix products, convolutions, and fusions of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

DTYPES = {"f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16", "s64": "int64", "s32": "int32",
          "s16": "int16", "s8": "int8", "u8": "uint8", "pred": "bool"}  # fmt: skip
_COMPUTATION = re.compile(r"(?:ENTRY )?%?(\S+) \(.*\{$")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?(\S+) = (.*)")
_OPCODE = re.compile(r" ([a-z][a-z0-9\-]*)\((.*)")
_SHAPE = re.compile(r"\(?\w+\[([\d,]*)\]")
_OPERAND = re.compile(r"%?([^\s,()%]+)[,)]")
_CONTRACTED = re.compile(r"lhs_contracting_dim(?:ension)?s\"?[=:]\s*[\{\[]([^\}\]]*)[\}\]]")
_LABELS = re.compile(r"dim_labels=\w+_(\w+)->")
_CALLS = re.compile(r"(?:calls|to_apply)=%?([^\s,]+)")


def opcode(text: str) -> str:
    """Of an instruction's text behind its `=`."""
    found = _OPCODE.search(text)
    return found[1] if found else ""


def flops(lines: Iterator[str]) -> dict[str, float]:
    """Instruction -> flops, of those that have any.  A loop's are its body's, which the schedule holds itself."""
    counted: dict[str, float] = {}  # computations too: names of both kinds differ
    computation, shapes = "", dict[str, list[int]]()
    for line in lines:
        if found := _COMPUTATION.match(line):
            computation, shapes = found[1], {}
        elif found := _INSTRUCTION.match(line):
            name, text = found.groups()
            shape, rest = _SHAPE.match(text), _OPCODE.search(text)
            shapes[name] = [int(n) for n in shape[1].split(",") if n] if shape else []
            if rest is None:
                continue
            amount = _own(rest[1], rest[2], shapes[name], shapes)
            called = _CALLS.search(rest[2])
            if called and rest[1] in ("fusion", "call", "async-start"):
                amount += counted.get(called[1], 0.0)
            if amount:
                counted[name] = amount
                counted[computation] = counted.get(computation, 0.0) + amount
    return counted


def _own(what: str, rest: str, result: list[int], shapes: dict[str, list[int]]) -> float:
    """2 flops for each product that is summed up."""
    operands = [shapes.get(name, []) for name in _OPERAND.findall(rest.split(")")[0] + ")")]
    if what in ("dot", "custom-call") and (found := _CONTRACTED.search(rest)) and operands:
        axes = [int(n) for n in re.findall(r"\d+", found[1])]
        summed = [operands[0][axis] for axis in axes if axis < len(operands[0])]
        return 2.0 * math.prod(result) * math.prod(summed)
    if what == "convolution" and (found := _LABELS.search(rest)) and len(operands) > 1 and len(found[1]) == len(operands[1]):
        return 2.0 * math.prod(result) * math.prod(n for n, label in zip(operands[1], found[1], strict=True) if label != "o")
    return 0.0

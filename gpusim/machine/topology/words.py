"""Names of nodes and pairs of them, as a machine's file writes them."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpusim.base.errors import GpusimError

_RANGE = re.compile(r"([A-Za-z][\w.-]*?)\{(\d{1,4})\.\.(\d{1,4})\}")
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_PAIR = re.compile(r"(?:(\d{1,3})\s*x\s+)?(\S+)\s+-\s+(\S+)")


class WiredPair(NamedTuple):
    """Two nodes and how many wires run between them."""

    a: str
    b: str
    wires: int


def nodes(text: str) -> list[str]:
    """`gpu0`, or gpu0 to gpu7 from `gpu{0..7}`.  Raises GpusimError."""
    if (match := _RANGE.fullmatch(text)) and int(match[2]) <= int(match[3]):
        return [f"{match[1]}{i}" for i in range(int(match[2]), int(match[3]) + 1)]
    if not _NAME.fullmatch(text):
        raise GpusimError(f"'{text}' is not a node", hint="write gpu0, or gpu{0..7} for several")
    return [text]


def pairs(text: str) -> list[WiredPair]:
    """The pairs of `2 x gpu0 - gpu3` or `gpu{0..7} - switch{0..3}`; of the longer list each takes its turn.

    Raises GpusimError.
    """
    match = _PAIR.fullmatch(text.strip())
    if not match:
        raise GpusimError(f"'{text}' is no pair of nodes", hint="write gpu0 - gpu1, or 2 x gpu0 - gpu1 for two wires")
    left, right = nodes(match[2]), nodes(match[3])
    longer, shorter = max(len(left), len(right)), min(len(left), len(right))
    if longer % shorter:
        raise GpusimError(f"'{text}' pairs {len(left)} nodes with {len(right)}, of which neither is a multiple of the other")
    wires = int(match[1] or 1)
    made = [WiredPair(left[i * len(left) // longer], right[i * len(right) // longer], wires) for i in range(longer)]
    for pair in made:
        if pair.a == pair.b:
            raise GpusimError(f"'{text}' wires '{pair.a}' to itself")
        if not pair.wires:
            raise GpusimError(f"'{text}' has no wires at all")
    return made

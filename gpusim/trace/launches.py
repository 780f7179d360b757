"""Launch configurations of kernels, as one text of numbers: "grid=108x2x1 block=256x1x1 registers=40 shared=49152".

    grid       thread blocks, along up to three axes
    block      threads of a block, along up to three axes
    registers  of a thread; 0 where the recording does not say
    shared     bytes of shared memory of a block; 0 where the recording does not say
    resident   blocks that a multiprocessor holds at once, where the recording says so itself; the others then say no more
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from gpusim.base.errors import TraceError, shown

_AXES = re.compile(r"[1-9]\d{0,9}(x[1-9]\d{0,9}){0,2}")
_NUMBER = re.compile(r"\d{1,10}")
_HINT = "a launch is written as grid=108x2x1 block=256x1x1 registers=40 shared=49152"


class LaunchConfiguration(NamedTuple):
    """Blocks of a grid, threads of a block, registers of a thread, bytes of shared memory of a block, 0 where they are unknown;
    blocks that a multiprocessor holds at once, 0 where that follows from the others."""

    blocks: int
    threads: int
    registers: int = 0
    shared: int = 0
    resident: int = 0


def launch_text(grid: Sequence[int], block: Sequence[int], registers: int = 0, shared: int = 0) -> str:
    """The text of a launch; what is 0 is left out.  Raises TraceError for numbers that are none of a launch."""
    words = [f"grid={'x'.join(map(str, grid))}", f"block={'x'.join(map(str, block))}"]
    words += [f"{name}={number}" for name, number in (("registers", registers), ("shared", shared)) if number]
    text = " ".join(words)
    parse_launch(text)
    return text


def parse_launch(text: str) -> LaunchConfiguration:
    """The numbers in a text.  Raises TraceError."""
    found: dict[str, int] = {}
    for word in text.split():
        key, _, value = word.partition("=")
        pattern = _AXES if key in ("grid", "block") else _NUMBER if key in ("registers", "shared", "resident") else None
        if pattern is None or key in found or not pattern.fullmatch(value):
            raise TraceError(f"'{shown(word)}' is no part of a launch configuration", hint=_HINT)
        found[key] = math.prod(map(int, value.split("x")))
    if not (found.get("grid") and (found.get("block") or found.get("resident"))):
        raise TraceError(f"the launch configuration '{shown(text)}' lacks its grid or block", hint=_HINT)
    rest = (found.get(name, 0) for name in ("block", "registers", "shared", "resident"))
    return LaunchConfiguration(found["grid"], *rest)

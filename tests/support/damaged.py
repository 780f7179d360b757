"""Small valid files, and ways to damage them: values of wrong types, huge, negative or missing, cut files, wrong references.

What reads a damaged file is run by `outcome` under a limit of work (calls of functions) and of memory (address space), not
of time.
"""

from __future__ import annotations

import copy
import gzip
import json
import lzma
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

HUGE = "@huge@"  # stands for a number of 5,000 digits, which Python's own writers refuse
DEEP = "@deep@"  # for lists inside each other
_AS_TEXT = {f'"{HUGE}"': "9" * 5000, f'"{DEEP}"': 5000 * "[" + 5000 * "]", f'"{DEEP}{DEEP}"': 300 * "[" + 300 * "]"}
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**30, HUGE, 1.5, -0.5, 1e300, float("inf"), float("nan"), "",
    "x", "-1", "1e999", "9" * 5000, "\0", "ü", [], [1], [[1]], {}, {"a": 1}, [None] * 3, (), DEEP, DEEP + DEEP,
)  # fmt: skip


class TooMuchWork(Exception):
    """More calls of functions than any valid file of that size needs."""


@contextmanager
def limited(calls: int = 300_000, memory: int = 1 << 30) -> Iterator[None]:
    """Within, more calls raise TooMuchWork, and more bytes of address space than now and these MemoryError."""
    left = calls

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            sys.setprofile(None)
            raise TooMuchWork(f"more than {calls:,} calls")

    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    old = sys.getprofile()
    resource.setrlimit(resource.RLIMIT_AS, (now + memory, before[1]))
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(old)
        resource.setrlimit(resource.RLIMIT_AS, before)


def text(tree: Any) -> str:
    """As JSON."""
    found = json.dumps(tree)
    for mark, meaning in _AS_TEXT.items():
        found = found.replace(mark, meaning)
    return found


def places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value inside."""
    found, todo = [], [tree]
    while todo:
        inside = todo.pop()
        keys = list(inside) if isinstance(inside, dict) else range(len(inside)) if isinstance(inside, list) else ()
        for key in keys:
            found.append((inside, key))
            todo.append(inside[key])
    return found


def damaged_tree(tree: Any, random: Random) -> Any:
    """One to three values replaced, removed, repeated, exchanged, so that references form rings."""
    tree = copy.deepcopy(tree)
    for _ in range(random.randint(1, 3)):
        spots = places(tree)
        if not spots:
            break
        inside, key = random.choice(spots)
        way = random.random()
        if way < 0.6:
            inside[key] = copy.deepcopy(random.choice(HOSTILE))
        elif way < 0.7:
            del inside[key]
        elif way < 0.75 and isinstance(inside, list):
            inside.insert(key, copy.deepcopy(inside[key]))
        elif way < 0.95:
            other, there = random.choice(spots)
            inside[key], other[there] = copy.deepcopy(other[there]), copy.deepcopy(inside[key])
        elif isinstance(inside[key], int):
            inside[key] = -inside[key] if random.random() < 0.5 else inside[key] << random.choice((8, 20, 40))
    return tree


def _word(value: Any) -> str:
    return "9" * 5000 if value == HUGE else value if isinstance(value, str) else str(value)


def damaged_lines(lines: list[str], random: Random, comma: str = ",") -> list[str]:
    """Cells of a table replaced or removed, lines removed, repeated or exchanged."""
    lines = list(lines)
    for _ in range(random.randint(1, 3)):
        at, way = random.randrange(len(lines)), random.random()
        if way < 0.7:
            cells = lines[at].split(comma)
            cell = random.randrange(len(cells))
            if random.random() < 0.9:
                cells[cell] = _word(random.choice(HOSTILE))
            else:
                del cells[cell]
            lines[at] = comma.join(cells)
        elif way < 0.8 and len(lines) > 1:
            del lines[at]
        elif way < 0.9:
            lines.insert(random.randrange(len(lines) + 1), lines[at])
        else:
            other = random.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
    return lines


def damaged_bytes(data: bytes, random: Random) -> bytes:
    """A few bytes replaced, put in or taken out; perhaps cut short, perhaps packed, whole or damaged."""
    found = bytearray(data)
    for _ in range(random.randint(0, 4)):
        at, way = random.randrange(len(found) or 1), random.random()
        if way < 0.5 and found:
            found[at] = random.randrange(256)
        elif way < 0.75:
            found[at:at] = random.choice((b"\xff", b"\0" * 9, b"[", b"{", b"9" * 40, b"-", b'"', found[: at // 2]))
        else:
            del found[at : at + random.choice((1, 7, 100))]
    if random.random() < 0.3:
        del found[random.randrange(len(found) + 1) :]
    packed = random.random()
    made = bytes(found)
    if packed > 0.7:
        made = gzip.compress(made, 1) if packed < 0.9 else lzma.compress(made)
        if random.random() < 0.7:
            return damaged_bytes(made, random)
    return made


def outcome(work: Callable[[], object], expected: type[Exception], *, calls: int = 300_000) -> Exception | None:
    """None where the work was done, or the error of the kind expected; every other exception passes through."""
    try:
        with limited(calls):
            work()
    except expected as error:
        return error
    return None

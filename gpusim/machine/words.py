"""A machine in one word: a name or file, with other numbers, or several GPUs of it.

    l40s                            a profile by name
    mine.yaml                       a profile in a file
    l40s(link.h2d=20 GB/s)          with a number of its own
    4 x l40s                        four of them
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gpusim.base.calls import listed
from gpusim.base.errors import ProfileError
from gpusim.base.yaml import find
from gpusim.base.yaml.values import machine
from gpusim.machine import variant
from gpusim.machine.profile import Profile

_SEVERAL = re.compile(r"\s*(\d+)\s*[x×]\s+(\S.*?)\s*", re.DOTALL)
_LIMIT = 100_000  # GPUs in a word


def counted(text: str) -> tuple[int, str]:
    """(GPUs, the machine that each is) of "4 x l40s"; 1 where no number stands before it.  Raises ProfileError for none."""
    match = _SEVERAL.fullmatch(text)
    if not match:
        return 1, text.strip()
    count = int(match[1]) if len(match[1]) < 10 else _LIMIT + 1
    if not 0 < count <= _LIMIT:
        raise ProfileError(f"'{text}' is no number of GPUs", hint=f"write {match[2]}, or 2 x {match[2]}")
    return count, match[2]


def one(text: str, asker: str) -> str:
    """The machine of a word that means one GPU.  Raises ProfileError for several, which `asker` ("a run") cannot use."""
    count, name = counted(text)
    if count > 1:
        raise ProfileError(f"'{text}' is {count} GPUs, and {asker} simulates one", hint=f"write {name}")
    return name


def split(texts: Sequence[str]) -> list[str]:
    """The words of a list: each text may hold several, separated by commas outside of parentheses."""
    return list(dict.fromkeys(word for text in texts for word in listed(text) if word))


def load(text: str, base: Path | None = None) -> Profile:
    """The profile of one GPU of this machine; `base` is the folder of the file that names it.

    Raises ProfileError (no such machine or number), UnitError (its value) or ConfigError (a profile with mistakes).
    """
    _, name = counted(text)
    return variant.load(find.find("profile", machine(name)[0], base), name)

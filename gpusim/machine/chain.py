"""How a chain of tiers is written: "host(capacity=24 GiB) > nvme(direct=1)"; what it means on a machine is for `tiers`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpusim.base.calls import split
from gpusim.base.errors import ProfileError, UnitError, suggest
from gpusim.base.units import parse_bytes, parse_rate

MOST_REQUESTS = 1 << 16  # in one queue, by the NVMe standard
MOST_GPUS = 1024  # of one node: more than any has
PARAMETERS = {
    "host": ("capacity", "pageable", "pool", "numa", "gpus"),
    "nvme": ("capacity", "read", "write", "queue_depth", "request", "direct"),
    "peer": ("capacity", "of"),
    "cxl": ("capacity",),
    "remote": ("capacity", "of"),
}
LENDERS = {"peer": ("any",), "remote": ("rdma", "gpus")}
"""Of a tier the words for memories of the machine that other programs use as well."""
_BARE = re.compile(r"\((\s*)(\w+)(?=\s*[,)])")
POOLS = (READY, GROW, FRESH) = ("ready", "grow", "fresh")
NODES = (LOCAL, REMOTE, INTERLEAVE, FIRST_TOUCH) = ("local", "remote", "interleave", "first_touch")


@dataclass(frozen=True)
class Wanted:
    """One tier as it is written."""

    kind: str
    capacity: int | None = None  # None: what the machine has
    of: str = ""  # whose memory it is, a word of LENDERS; "": an exclusive one
    pageable: int = 0
    pool: str = READY
    numa: str = LOCAL
    gpus: int = 1
    read: float | None = None  # bytes/s
    write: float | None = None
    queue_depth: int = 32
    request: int = 1 << 20
    direct: int = 0


def read(text: str) -> list[Wanted]:
    """The tiers of a chain, nearest first.  Raises ProfileError for what no machine has."""
    parts = [part.strip() for part in text.split(">")]
    if "" in parts:
        raise ProfileError(f"'{text}' has an empty place between its tiers", hint="write tier > tier(parameter=value)")
    found = []
    for part in parts:
        kind, given = split(_BARE.sub(r"(\1of=\2", part), "a tier")
        if kind not in PARAMETERS:
            raise ProfileError(f"there is no tier '{kind}'", hint=suggest(kind, PARAMETERS))
        if wrong := next((key for key in given if key not in PARAMETERS[kind]), None):
            raise ProfileError(f"tier '{kind}' has no parameter '{wrong}'", hint=suggest(wrong, PARAMETERS[kind]))
        values: Mapping[str, Any] = {key: _value(kind, key, text) for key, text in given.items()}
        found.append(Wanted(kind, **values))
    if twice := next((part for part, wanted in zip(parts, found, strict=True) if found.count(wanted) > 1), None):
        raise ProfileError(f"'{twice}' stands twice in '{text}'", hint="remove one of them")
    return found


def lends(text: str) -> bool:
    """Whether a chain has memories in it that other programs of the machine use as well: peer(any), remote(rdma)."""
    return any(wanted.of for wanted in read(text))


def _value(kind: str, key: str, text: str) -> Any:
    """The value of a parameter; ProfileError when it is none."""
    try:
        value = _READERS[key](text.strip("'\""))
    except (UnitError, ValueError) as error:
        message, hint = (error.message, error.hint) if isinstance(error, UnitError) else (str(error), "")
        raise ProfileError(f"parameter '{key}' of tier '{kind}': {message}", hint=hint) from None
    if key == "of" and value not in LENDERS[kind]:
        written = " or ".join(f"{kind}({word})" for word in LENDERS[kind])
        raise ProfileError(f"tier '{kind}' has no parameter '{value}'", hint=f"write {kind}, or {written}")
    if key in ("read", "write", "capacity", "request") and not value:
        raise ProfileError(f"parameter '{key}' of tier '{kind}' is 0", hint="leave the tier out")
    return value


def _yes(text: str) -> int:
    if text not in ("0", "1"):
        raise ValueError(f"'{text}' is neither 0 nor 1")
    return int(text)


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def chosen(text: str) -> str:
        if text not in words:
            raise UnitError(f"'{text}' is none of {', '.join(words)}", hint=suggest(text, words))
        return text

    return chosen


def _gpus(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_GPUS:
        raise ValueError(f"'{text}' is not a whole number from 1 to {MOST_GPUS}")
    return int(text)


def _depth(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_REQUESTS:
        raise ValueError(f"'{text}' is not a whole number from 1 to {MOST_REQUESTS:,}")
    return int(text)


_READERS: Mapping[str, Callable[[str], int | float | str]] = {
    "capacity": parse_bytes, "pageable": _yes, "pool": _one_of(POOLS), "numa": _one_of(NODES), "gpus": _gpus,
    "read": parse_rate, "write": parse_rate, "queue_depth": _depth, "request": parse_bytes, "direct": _yes, "of": str,
}  # fmt: skip

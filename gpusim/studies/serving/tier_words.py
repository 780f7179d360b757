"""Tiers of keys and values as they are written: host(64 GiB, s3fifo, fp8) > nvme(1 TB) > remote(4 TB, rdma, rate=50 GB/s)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpusim.base.calls import listed
from gpusim.base.errors import GpusimError
from gpusim.base.text import join
from gpusim.base.units import BYTES, RATE, parse, write
from gpusim.machine.serving.codecs import is_codec

_TIER = re.compile(r"\s*(\w+)\s*\((.+)\)\s*", re.DOTALL)
TIERS = ("host", "nvme", "remote")
RDMA, TCP = NETWORKS = ("rdma", "tcp")
PRIVATE, SHARED = OWNERS = ("private", "shared")


@dataclass(frozen=True)
class TierWord:
    """A tier in words.

    codec    in which keys and values lie there; "": as above
    network  of a remote one: rdma or tcp
    owner    of a remote one: one pool that all replicas share, or so much of it for each, private
    rate     bytes/s at which the remote node reads, and writes; 0: its network cards decide
    """

    name: str
    size: int
    policy: str = "lru"
    codec: str = ""
    network: str = ""
    owner: str = ""
    rate: float = 0.0

    def text(self) -> str:
        """As `tiers_of` reads it."""
        rate = f"rate={write(self.rate, RATE)}" if self.rate else ""
        words = (write(self.size, BYTES), self.policy, self.codec, self.network, self.owner, rate)
        return f"{self.name}({', '.join(filter(None, words))})"


def tiers_of(text: str) -> list[TierWord]:
    """The tiers in words, nearest first.  Raises GpusimError."""
    found: list[TierWord] = []
    for part in text.split(">"):
        match = _TIER.fullmatch(part)
        if match is None:
            raise GpusimError(f"'{part.strip()}' is no tier of keys and values", hint="write host(64 GiB) > nvme(1 TB, s3fifo)")
        if match[1] not in TIERS:
            raise GpusimError(f"there is no tier '{match[1]}' for keys and values", hint=f"there are {join(TIERS)}")
        if found and TIERS.index(match[1]) <= TIERS.index(found[-1].name):
            raise GpusimError(f"'{match[1]}' cannot lie below '{found[-1].name}'", hint=" > ".join(TIERS))
        found.append(_tier(match[1], listed(match[2])))
    return found


def _tier(name: str, words: list[str]) -> TierWord:
    given: dict[str, str] = {}
    for word in words[1:]:
        key, value = _meant(name, word)
        if key in given:
            raise GpusimError(f"'{given[key]}' and '{value}' are two of one kind in {name}(...)", hint="leave one of them out")
        given[key] = value
    rate = float(parse(given.pop("rate"), RATE)) if "rate" in given else 0.0
    if name == "remote":
        given = {"network": RDMA, "owner": SHARED} | given
    return TierWord(name, int(parse(words[0], BYTES)), **given, rate=rate)


def _meant(name: str, word: str) -> tuple[str, str]:
    """Which field of a tier the word is, and its value."""
    key, equals, value = (part.strip() for part in word.partition("="))
    kinds = {"rate": bool(equals) and key == "rate", "network": word in NETWORKS, "owner": word in OWNERS}
    kind = next((kind for kind, is_it in kinds.items() if is_it), "codec" if is_codec(word) else "policy")
    if kind in kinds and name != "remote":
        raise GpusimError(f"'{word}' is said of remote memory, not of {name}", hint="remote(1 TB, rdma, rate=50 GB/s)")
    if kind == "policy" and equals and "(" not in key:
        raise GpusimError(f"a tier has no parameter '{key}'", hint="host(64 GiB, s3fifo), remote(1 TB, rdma, rate=50 GB/s)")
    return kind, value if kind == "rate" else word

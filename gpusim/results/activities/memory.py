"""Memory and links over time, from the event log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.results import log as lg
from gpusim.results.activities.rows import SWAP_IN, SWAP_OUT, Counter, level
from gpusim.results.heap_over_time import settled
from gpusim.trace import trace as tr
from gpusim.trace.trace import I64, Trace

DEVICE = 0
BOTH = "both"  # a limit of the two directions of a link together, and no link
LINKS = {  # that the program's own copies pass
    "h2d": (tr.COPY_IN,), "d2h": (tr.COPY_OUT,), "peer": (tr.COLLECTIVE, tr.COPY_PEER), "nvme_read": (tr.NVME_READ,),
    "nvme_write": (tr.NVME_WRITE,),
}  # fmt: skip


def counters(log: npt.NDArray[Any], spec: Mapping[str, Any]) -> dict[str, Counter]:
    """Bytes by the allocator, and in the memories below."""
    out = {}
    change = (log["kind"] == lg.PLACE) * 1 - (log["kind"] == lg.UNPLACE)
    held = (log["kind"] == lg.RESERVE) * 1 - (log["kind"] == lg.RELEASE)
    kinds = [tier["kind"] for tier in tiers(spec)]
    for name, sign, memories in (
        ("allocated", change, [DEVICE]), ("reserved", held, [DEVICE]),
        *((kind, change, [m for m, k in enumerate(kinds, 1) if k == kind]) for kind in dict.fromkeys(kinds)),
    ):  # fmt: skip
        at = np.flatnonzero((sign != 0) & np.isin(log["b"], memories))
        if len(at):
            out[name] = level(log["t"][at], sign[at] * log["bytes"][at])
    return out


def owners(log: npt.NDArray[Any], trace: Trace) -> dict[str, Counter]:
    """Bytes of blocks on the device by the category of their tensors."""
    log = settled(log)
    at = np.flatnonzero(np.isin(log["kind"], (lg.PLACE, lg.UNPLACE)) & (log["b"] == DEVICE))
    sign, category = np.where(log["kind"][at] == lg.PLACE, 1, -1), trace.category[log["a"][at]]
    found = {}
    for number, name in enumerate(trace.categories):
        mine = np.flatnonzero(category == number)
        if len(mine):
            found[name] = level(log["t"][at[mine]], sign[mine] * log["bytes"][at[mine]])
    return found


def rates(rows: npt.NDArray[np.void], copy: I64, spec: Mapping[str, Any]) -> dict[str, Counter]:
    """Bytes/s on each link: of each copy its bytes over its time, of those at the same time the sum.

    copy  of each row what the log says in `b` of a swap's COPY, -1 of operators
    """
    tier = np.where(copy >= 0, np.maximum(copy >> 8 & 255, copy & 255), 0)
    passing = {name: np.isin(rows["kind"], kinds) for name, kinds in LINKS.items()}
    for number, memory in enumerate(tiers(spec), 1):
        for kind, names in ((SWAP_IN, memory["in"]), (SWAP_OUT, memory["out"])):
            for name in names:
                passing[name] = passing.get(name, False) | ((rows["kind"] == kind) & (tier == number))
    took = rows["end"] - rows["start"]
    found = {}
    for name, mine in passing.items():
        at = np.flatnonzero(mine & (took > 0) & (rows["bytes"] > 0))
        if name != BOTH and len(at):
            rate = np.rint(rows["bytes"][at] * (1e9 / took[at])).astype(np.int64)
            times = np.concatenate([rows["start"][at], rows["end"][at]])
            found[name] = level(times, np.concatenate([rate, -rate]))
    return found


def tiers(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The memories below the device; without a word about them the host's behind the device's own link."""
    found: list[dict[str, Any]] = spec.get("memories") or [
        {"kind": "host", "queue": "copy", "in": ["h2d", BOTH], "out": ["d2h", BOTH]}
    ]
    return found

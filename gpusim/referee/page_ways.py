"""Which way flows go under unified memory: that of what moves there, as often through the memory as the way passes it.

To a GPU and from it flows what its records copy, no more, and in an ordered run no less; remote accesses are no more than the
run has counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpusim.referee.activities import NEVER
from gpusim.referee.report import Findings
from gpusim.results.page_log import COPY, HOST
from gpusim.results.result import FINISHED, Result
from gpusim.trace.trace import KERNEL

TICKS = 2  # ns: begins are whole numbers
ROUNDED = 1.0  # bytes of a flow

Ways = Mapping[tuple[int, int], tuple[list[int], list[int]]]


def check(result: Result, flows: Mapping[str, Any], moved: Any, of: tuple[Ways, Any], found: Findings) -> bool:
    """Whether the flows can have flowed: only then it makes sense to ask when they end.

    moved: bytes of each; of: the ways that there are, and how often that of each flow passes the memory
    """
    ways, through = of
    log, said = result.pages or {}, result.spec["paging"]["traffic"]
    cap, passes = log["flow_cap"], flows["passes"]
    wrong = ~((cap > 0) & np.isfinite(cap) & (moved >= 0) & np.isfinite(moved) & (flows["begin"] <= flows["end"]))
    for k in np.flatnonzero(wrong).tolist():
        what = f"flow {k} of {moved[k]:g} bytes at {cap[k]:g} bytes/ns is from {flows['begin'][k]} to {flows['end'][k]} ns"
        found.say(-1, what, "a rate above 0, a size, and an end behind the begin")
    of_time = (flows["way"] == KERNEL) & (passes == 0) & (cap <= 1.0)  # work that needs no bandwidth: ns, at a share of one
    for k in np.flatnonzero((passes != through) & ~of_time).tolist():
        found.say(-1, f"flow {k} passes the memory {passes[k]} times", f"{through[k]}, as way {flows['way'][k]} does")
    if "pages" in said:
        for process, gpu in enumerate(said["gpus"]):
            _of_pages(result, flows, moved, (process, gpu), ways, found)
        _remote(result, flows, moved, found)
    return not wrong.any()


def _of_pages(
    result: Result, flows: Mapping[str, Any], moved: Any, of: tuple[int, int], ways: Ways, found: Findings
) -> None:
    """What comes to a GPU and leaves it for the host: flows against the records of copies."""
    log, paging = result.pages or {}, result.spec["paging"]
    page, began, said = paging["page"], paging["began_ns"], paging["traffic"]
    process, gpu = of
    mine = flows["process"] == process
    copies = log["kind"] == COPY
    comes = copies & (log["processor"] == gpu)  # of another GPU as well: through the host, where no link is between them
    leaves = copies & (log["processor"] == HOST) & (log["source"] == gpu)
    for way, direction, records in zip(said["pages"], ("to", "from"), (comes, leaves), strict=False):
        those, rows = np.flatnonzero(mine & (flows["way"] == way)), np.flatnonzero(records)
        copied, flowed = int(log["pages"][rows].sum()) * page, float(moved[those].sum())
        room = ROUNDED * len(those) + 1e-5 * copied
        if flowed > copied + room:
            found.say(-1, f"{flowed:.0f} bytes have flown {direction} GPU {gpu}", f"at most {copied}, as its copies")
        rates = [said["rates"][link] for link in ways[process, way][0]]
        cut = (log["flow_cap"][those] >= min(rates, default=np.inf) * (1 - 1e-9)).any()  # such a flow stands for more bytes
        if not cut and paging["ordered"] and result.outcome == FINISHED and (flows["end"] < NEVER).all():
            later = (log["since"][rows] - began >= flows["begin"].min() - TICKS) & (log["until"][rows] > log["since"][rows])
            least = int(log["pages"][rows[later]].sum()) * page
            if flowed < least - room:
                found.say(-1, f"{flowed:.0f} bytes have flown {direction} GPU {gpu}", f"at least {least}, as its copies")


def _remote(result: Result, flows: Mapping[str, Any], moved: Any, found: Findings) -> None:
    """Kernels access no more remotely than was counted."""
    paging = result.spec["paging"]
    said, counted = paging["traffic"], result.metrics.get("remote_bytes")
    if counted is None or "together" in paging:
        return
    for process, those in enumerate(said["remote"]):
        mine = (flows["process"] == process) & np.isin(flows["way"], those[:2])
        if moved[mine].sum() > counted + ROUNDED * mine.sum() + 1e-6 * counted:
            what = f"{moved[mine].sum():.0f} bytes were accessed remotely by GPU {said['gpus'][process]}"
            found.say(-1, what, f"at most {counted}")

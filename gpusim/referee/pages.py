"""Unified memory, recomputed from its log: where every page is after each record, and what that adds up to.

It knows the log's columns (engine/pages/events.py says what they mean) and how a program's allocations lie in windows of 2 MiB,
and nothing else of the driver's model.  Of each record it asks: does time go on, do the pages exist, was a page where it is
said to come from or to leave, has an eviction left a copy, and does what is on the GPU fit its chunks?
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import callee, kept
from gpusim.referee.report import Findings, Report
from gpusim.results.result import Result

WINDOW = 2 << 20  # bytes: a block at most, and a chunk of GPU memory
BATCH, READ, WRITE, COPY, FILL, KEEP, GONE = range(7)  # kinds of records; others say nothing of where pages are
DEMAND, PREFETCH, EVICTION, EXPLICIT, COUNTER = range(5)  # causes
HOST = 0  # processors: the host, then GPUs
WORDS = 8
NOTHING, ONE = np.uint64(0), np.uint64(1)

SAYS = (
    ("time goes back to {x} ns", "no less than before"),
    ("block {x} has no such pages", "pages of its allocation"),
    ("{x} pages of block {y} are copied from where they are not", "a source that holds them"),
    ("{x} pages of block {y} come to where they are", "pages that were missing there"),
    ("{x} pages of block {y} are made anew though somebody has them", "a copy of them"),
    ("{x} pages of block {y} leave where they are not", "pages that are there"),
    ("{x} pages of block {y} were evicted and are nowhere", "a copy on the host"),
    ("the GPU holds {x} bytes or chunks, more than {y}", "at most its memory"),
    ("the record says {x} pages and names {y}", "as many as it names"),
)
BACK, NO_SUCH, NO_SOURCE, TWICE, ANEW, NOT_THERE, LOST, FULL, MISCOUNTED = range(len(SAYS))
FAULTS, HOST_FAULTS, BATCHES, IN, OUT, EVICTED = 0, 1, 2, 3, 8, 9  # columns of the sums; IN: one for each cause
SUMS = 10


def check(result: Result) -> Report:
    """Recompute a run under unified memory from its log; without one, or with one cut short, it is unchecked (ok is None)."""
    log, said = result.pages, result.spec.get("paging")
    if log is None or said is None or said["events"] > len(log["time"]):
        return Report(ok=None)
    found = Findings()
    page = int(said["page"])
    blocks, whole = _blocks(said["allocations"], page)
    whole &= said["whole"]  # some policies evict pieces of chunks, and pack blocks into what is free
    sums = np.zeros(SUMS, np.int64)
    out = np.zeros((1000, 4), np.int64)
    resident = np.zeros((int(said["processors"]), len(blocks), WORDS), np.uint64)
    held = np.zeros((2, len(resident)), np.int64)
    mask = np.ascontiguousarray(log["mask"]).astype(np.uint64)
    names = ("kind", "cause", "processor", "source", "block", "pages")
    columns = [np.ascontiguousarray(log[name]).astype(np.int64) for name in names]
    wrong = _each_record(
        np.ascontiguousarray(log["time"]), *columns, mask, blocks, whole, resident, *held, int(said["chunks"]), page,
        int(said["began"]), sums, out,
    )  # fmt: skip
    for record, code, x, y in out[:wrong].tolist():
        what, expected = SAYS[code]
        found.say(record, what.format(x=x, y=y), expected)
    found.count("records", len(log["time"]))
    _totals(result, sums, page, found)
    return found.report()


def _totals(result: Result, sums: npt.NDArray[np.int64], page: int, found: Findings) -> None:
    """The metrics are what the log adds up to."""
    expected = {
        "gpu_faults": sums[FAULTS], "cpu_faults": sums[HOST_FAULTS], "fault_batches": sums[BATCHES],
        "demanded_bytes": sums[IN + DEMAND] * page, "prefetched_bytes": sums[IN + PREFETCH] * page,
        "explicit_bytes": sums[IN + EXPLICIT] * page, "counter_bytes": sums[IN + COUNTER] * page,
        "h2d_bytes": sums[IN : IN + 5].sum() * page, "d2h_bytes": sums[OUT] * page, "evicted_bytes": sums[EVICTED] * page,
    }  # fmt: skip
    for name, value in expected.items():
        if result.metrics.get(name) != value:
            found.say(-1, f"{name} is {result.metrics.get(name)}", f"{int(value)}, as the log adds up")
    found.count("totals", len(expected))


def _blocks(allocations: Any, page: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pages of each block, and whether it takes a chunk of its own: the allocations begin in windows one after another."""
    pages, whole = [], []
    for size, at, kind in allocations:
        for window in range(-(-(at + size) // WINDOW)):
            first = max(at - window * WINDOW, 0) // page
            end = -(-min(at + size - window * WINDOW, WINDOW) // page)
            pages.append(end - first)
            whole.append(end - first == WINDOW // page and kind == "managed")
    return np.array(pages, np.int64), np.array(whole, np.int64)


def _count(word: Any) -> int:
    """How many bits are set."""
    n = 0
    while word != NOTHING:
        word &= word - ONE
        n += 1
    return n


count = callee(_count)


@kept(_nrt=False)
def _each_record(
    time: Any, kind: Any, cause: Any, processor: Any, source: Any, block: Any, pages: Any, mask: Any, blocks: Any, whole: Any,
    resident: Any, held: Any, taken: Any, chunks: int, page: int, began: int, sums: Any, out: Any,
) -> int:  # fmt: skip
    """The records in their order; how many contradictions are in `out`: record, code, and two numbers.

    held: pages on each processor; taken: blocks there that take a chunk of their own.
    """
    said = 0
    last = time[0] if len(time) else 0.0
    for i in range(len(time)):
        if said >= len(out):
            return said
        k, p, b = kind[i], processor[i], block[i]
        if time[i] < last:
            out[said] = i, BACK, int(time[i]), 0
            said += 1
        last = time[i]
        counted = i >= began
        if k == BATCH:
            sums[BATCHES] += counted and p != HOST
            continue
        if k > GONE:
            continue
        named, before, present, elsewhere, absent, outside = 0, 0, 0, 0, 0, 0
        for w in range(WORDS):
            m, here, others = mask[i, w], resident[p, b, w], NOTHING
            for q in range(len(resident)):
                if q != p:
                    others |= resident[q, b, w]
            named += count(m)
            before += count(here)
            present += count(m & here)
            elsewhere += count(m & others)
            if k == COPY:
                absent += count(m & ~resident[source[i], b, w])
            left = blocks[b] - 64 * w
            if left < 64:
                outside += count(m >> np.uint64(max(left, 0)))
        code, x, y = -1, 0, b
        if named != pages[i]:
            code, x, y = MISCOUNTED, pages[i], named
        elif outside > 0:
            code, x = NO_SUCH, b
        elif k == COPY and absent > 0:
            code, x = NO_SOURCE, absent
        elif k in (COPY, FILL, KEEP) and present > 0:
            code, x = TWICE, present
        elif k == FILL and elsewhere > 0:
            code, x = ANEW, elsewhere
        elif k == GONE and present < named:
            code, x = NOT_THERE, named - present
        elif k == GONE and cause[i] == EVICTION and elsewhere < named:
            code, x = LOST, named - elsewhere
        if code >= 0 and said < len(out):
            out[said] = i, code, x, y
            said += 1
        if k in (READ, WRITE):
            sums[FAULTS if p != HOST else HOST_FAULTS] += named * counted
            continue
        change = -present if k == GONE else named - present
        for w in range(WORDS):
            if k == GONE:
                resident[p, b, w] &= ~mask[i, w]
            else:
                resident[p, b, w] |= mask[i, w]
        held[p] += change
        if whole[b]:
            taken[p] += (before + change > 0) * 1 - (before > 0) * 1
        if k == COPY and p != HOST:
            sums[IN + cause[i]] += named * counted
        elif k == COPY:
            sums[OUT] += named * counted
            sums[EVICTED] += named * counted * (cause[i] == EVICTION)
        if p != HOST and chunks > 0 and (taken[p] > chunks or held[p] * page > chunks * WINDOW) and said < len(out):
            out[said] = i, FULL, max(taken[p], held[p] * page), chunks
            said += 1
    return said



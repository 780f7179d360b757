"""The walk over the log of unified memory: where every page is after each record.

Of each record it asks: does time go on, do the pages exist, was a page where it is said to come from or to leave, has an
eviction left a copy, and does what is on the GPU fit its chunks?
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import kept
from gpusim.referee.report import MOST
from gpusim.referee.world import step
from gpusim.results.page_log import BATCH, COPY, DEMAND, EVICTION, FILL, GONE, HOST, KEEP, PREFETCH, READ, WINDOW, WORDS, WRITE

NOTHING, ONE = np.uint64(0), np.uint64(1)

SAYS = (
    ("time goes back to {x} ns", "no less than before"),
    ("block {x} has no such pages", "pages of its allocation"),
    ("{x} pages of block {y} are copied from where they are not", "a source that holds them"),
    ("{x} pages of block {y} come to where they are", "pages that were missing there"),
    ("{x} pages of block {y} are made anew though a copy exists", "a copy of them"),
    ("{x} pages of block {y} leave where they are not", "pages that are there"),
    ("{x} pages of block {y} were evicted or moved and are nowhere", "a copy elsewhere"),
    ("the GPU holds {x} bytes or chunks, more than {y}", "at most its memory"),
    ("the record says {x} pages and names {y}", "as many as it names"),
    ("{x} pages of block {y} come on demand without a fault at that time", "a fault on them"),
    ("{x} pages of block {y} that have faulted are prefetched", "pages without a fault"),
)
(BACK, NO_SUCH, NO_SOURCE, TWICE, ANEW, NOT_THERE, LOST, FULL, MISCOUNTED, UNASKED, ASKED) = range(len(SAYS))
RIGHT = -1  # what a record without a contradiction has for a code
FAULTS, HOST_FAULTS, BATCHES, IN, OUT, EVICTED = 0, 1, 2, 3, 8, 9  # columns of the sums; IN: one for each cause
SUMS = 10


class Pages(NamedTuple):
    """The log's columns, N records long, the machine's numbers, and the state of the walk."""

    time: Any       # float64[N] ns
    kind: Any       # int64[N]
    cause: Any      # int64[N]
    processor: Any  # int64[N]
    source: Any     # int64[N]
    block: Any      # int64[N]
    pages: Any      # int64[N]
    mask: Any       # uint64[N, WORDS] pages of the block, from its start

    blocks: Any     # int64[B] pages of each block
    whole: Any      # int64[B] 1: it takes a chunk of its own
    chunks: int     # chunks of GPU memory; 0: as many as are wanted
    page: int       # bytes
    began: int      # records before the run was timed
    ordered: int    # 1: one thread wrote them; drivers of several GPUs, and hosts that touch memory, decide ahead of each other

    resident: Any   # uint64[P, B, WORDS] pages on each processor
    held: Any       # int64[P] pages on each processor
    taken: Any      # int64[P] blocks there that take a chunk of their own
    fault: Any      # int64[B] the last record of a fault on each block, -1 none
    sums: Any       # int64[SUMS]
    out: Any        # int64[MOST, 4]: record, code, x, y of what is wrong
    said: Any       # int64[1]: how many


class Counts(NamedTuple):
    """One record's pages: how many it names, and how many of these are where."""

    named: int
    before: int     # pages of the block, named or not, at the processor
    present: int    # at the processor
    elsewhere: int  # at another
    absent: int     # not at the source of a copy, or of what stays as it was
    outside: int    # behind the end of the block
    faulted: int    # that have faulted at that time


def pages(log: Mapping[str, Any], said: Mapping[str, Any], blocks: npt.NDArray[Any], whole: npt.NDArray[Any]) -> Pages:
    """Before the first record.  said: `paging` of the result's spec."""
    names = ("kind", "cause", "processor", "source", "block", "pages")
    columns = {name: np.ascontiguousarray(log[name]).astype(np.int64) for name in names}
    held = np.zeros((2, int(said["processors"])), np.int64)
    return Pages(
        time=np.ascontiguousarray(log["time"]), **columns, mask=np.ascontiguousarray(log["mask"]).astype(np.uint64),
        blocks=blocks, whole=whole, chunks=int(said["chunks"]), page=int(said["page"]), began=int(said["began"]),
        ordered=int(said.get("ordered", True)),
        resident=np.zeros((held.shape[1], len(blocks), WORDS), np.uint64), held=held[0], taken=held[1],
        fault=np.full(len(blocks), -1), sums=np.zeros(SUMS, np.int64), out=np.zeros((MOST, 4), np.int64),
        said=np.zeros(1, np.int64),
    )  # fmt: skip


@step
def _bits(word: Any) -> int:
    """How many bits are set."""
    n = 0
    while word != NOTHING:
        word &= word - ONE
        n += 1
    return n


@step
def _say(w: Pages, record: int, code: int, x: int, y: int) -> None:
    """Write down what is wrong, while there is room."""
    if w.said[0] < w.out.shape[0]:
        row = w.out[w.said[0]]
        row[0], row[1], row[2], row[3] = record, code, x, y
        w.said[0] += 1


@step
def _elsewhere(w: Pages, p: int, b: int, word: int) -> Any:
    """Pages of one word of a block that other processors than `p` hold."""
    others = NOTHING
    for q in range(w.resident.shape[0]):
        if q != p:
            others |= w.resident[q, b, word]
    return others


@step
def _faulted(w: Pages, i: int, word: int) -> Any:
    """Pages of one word that have faulted in the service that record i is of: reads and writes are a record each."""
    f = w.fault[w.block[i]]
    if f < 0 or w.time[f] != w.time[i]:
        return NOTHING
    if f > 0 and w.kind[f - 1] == READ and w.block[f - 1] == w.block[f] and w.time[f - 1] == w.time[f]:
        return w.mask[f, word] | w.mask[f - 1, word]
    return w.mask[f, word]


@step
def _counts(w: Pages, i: int) -> Counts:
    """Where the pages of record i are before it."""
    p, b = w.processor[i], w.block[i]
    named, before, present, elsewhere, absent, outside, faulted = 0, 0, 0, 0, 0, 0, 0
    for word in range(WORDS):
        m, here = w.mask[i, word], w.resident[p, b, word]
        named += _bits(m)
        before += _bits(here)
        present += _bits(m & here)
        elsewhere += _bits(m & _elsewhere(w, p, b, word))
        if w.kind[i] in (COPY, KEEP):
            absent += _bits(m & ~w.resident[w.source[i], b, word])
        left = w.blocks[b] - 64 * word
        if left < 64:
            outside += _bits(m >> np.uint64(max(left, 0)))
        if w.kind[i] == COPY:
            faulted += _bits(m & _faulted(w, i, word))
    return Counts(named, before, present, elsewhere, absent, outside, faulted)


@step
def _contradiction(w: Pages, i: int, n: Counts) -> tuple[int, int, int]:
    """(code, x, y) of the first that record i has with what was before it; RIGHT for a code when it has none."""
    k, b = w.kind[i], w.block[i]
    if n.named != w.pages[i]:
        return MISCOUNTED, w.pages[i], n.named
    if n.outside > 0:
        return NO_SUCH, b, b
    if k in (COPY, KEEP) and n.absent > 0:
        return NO_SOURCE, n.absent, b
    if k in (COPY, FILL, KEEP) and n.present > 0:
        return TWICE, n.present, b
    if k == FILL and n.elsewhere > 0:
        return ANEW, n.elsewhere, b
    if k == GONE and n.present < n.named:
        return NOT_THERE, n.named - n.present, b
    if k == GONE and w.cause[i] >= DEMAND and n.elsewhere < n.named:
        return LOST, n.named - n.elsewhere, b
    if k == COPY and w.cause[i] == DEMAND and n.faulted < n.named:
        return UNASKED, n.named - n.faulted, b
    if k == COPY and w.cause[i] == PREFETCH and n.faulted > 0:
        return ASKED, n.faulted, b
    return RIGHT, 0, b


@step
def _carry_out(w: Pages, i: int, n: Counts) -> None:
    """The record's pages come or leave; GPU memory stays within its chunks."""
    k, p, b = w.kind[i], w.processor[i], w.block[i]
    for word in range(WORDS):
        if k == GONE:
            w.resident[p, b, word] &= ~w.mask[i, word]
        else:
            w.resident[p, b, word] |= w.mask[i, word]
    change = -n.present if k == GONE else n.named - n.present
    w.held[p] += change
    if w.whole[b]:
        w.taken[p] += (n.before + change > 0) * 1 - (n.before > 0) * 1
    if p != HOST and w.chunks > 0 and (w.taken[p] > w.chunks or w.held[p] * w.page > w.chunks * WINDOW):
        _say(w, i, FULL, max(w.taken[p], w.held[p] * w.page), w.chunks)


@step
def _add_up(w: Pages, i: int, n: Counts) -> None:
    """Faults and copied pages of a record of the timed part."""
    k, p = w.kind[i], w.processor[i]
    if k in (READ, WRITE):
        w.sums[FAULTS if p != HOST else HOST_FAULTS] += n.named
    elif k == COPY and p != HOST:
        w.sums[IN + w.cause[i]] += n.named
    elif k == COPY:
        w.sums[OUT] += n.named
        w.sums[EVICTED] += n.named * (w.cause[i] == EVICTION)


def _each_record(w: Pages) -> int:
    """The records in their order; returns how many contradictions are in `out`."""
    last = w.time[0] if len(w.time) else 0.0
    for i in range(len(w.time)):
        if w.said[0] >= w.out.shape[0]:
            break
        if w.time[i] < last and w.ordered:
            _say(w, i, BACK, int(w.time[i]), 0)
        last = w.time[i]
        if w.kind[i] == BATCH:
            w.sums[BATCHES] += i >= w.began and w.processor[i] != HOST
        elif w.kind[i] > GONE:
            named = 0
            for word in range(WORDS):
                named += _bits(w.mask[i, word])
            if named != w.pages[i]:
                _say(w, i, MISCOUNTED, w.pages[i], named)
        else:
            n = _counts(w, i)
            code, x, y = _contradiction(w, i, n)
            if code != RIGHT:
                _say(w, i, code, x, y)
            if i >= w.began:
                _add_up(w, i, n)
            if w.kind[i] > WRITE:
                _carry_out(w, i, n)
            else:
                w.fault[w.block[i]] = i
    return int(w.said[0])


walk = kept(_nrt=False)(_each_record)

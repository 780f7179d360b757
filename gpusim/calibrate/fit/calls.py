"""What calls for memory cost the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from gpusim.calibrate.fit.estimate import Estimate, Found, Left, best_known, middle, plateau
from gpusim.calibrate.meaning import nanoseconds
from gpusim.calibrate.rows import Row

_GIB = 2**30
_BLOCK = 2 * 2**20


def fit(rows: Sequence[Row]) -> Iterator[Found]:
    """cudaMalloc, cudaFree, host memory, virtual memory, the stream-ordered pool; with the spread of single calls as bars."""
    return map(_spread, _calls(rows))


def _spread(found: Found) -> Found:
    """The bar reaches from the tenth to the 99th of a hundred calls, where rows say these: a call has a long tail."""
    if not isinstance(found, Estimate):
        return found
    said = ((row.value, *_percentiles(row)) for row in found.rows)
    known = [(p10 / median, p99 / median) for median, p10, p99 in said if p99 and median]
    if not known:
        return found
    low, high = (float(q) for q in np.median(known, axis=0) * found.value)
    return replace(found, low=min(low, found.value if found.low is None else found.low), high=max(high, found.high or 0.0))


def _percentiles(row: Row) -> tuple[float, float]:
    """p10 and p99 as they stand in a row's note; zeros where they do not."""
    note = dict(part.partition("=")[::2] for part in row.note.split(";"))
    try:
        return float(note["p10"]), float(note["p99"])
    except (KeyError, ValueError):
        return 0.0, 0.0


def _calls(rows: Sequence[Row]) -> Iterator[Found]:
    rows = best_known([r for r in rows if r.metric in _CALLS])
    for name, metric in (("malloc", "cudamalloc_us"), ("free", "cudafree_us")):
        yield from _line(name, [r for r in rows if r.metric == metric])
    pinned = [r for r in rows if r.metric == "cudahostalloc_us" and r.size_bytes]
    if pinned:
        per_gib = [nanoseconds(r) * _GIB / (r.size_bytes or 1) for r in pinned]
        yield middle("allocation.host_alloc_per_gib", pinned, per_gib, "time by size")
    else:
        yield Left("allocation.host_alloc_per_gib", "no rows")
    hits = [r for r in rows if r.metric == "cudamallocasync_us" and r.params.get("pool", "hit") == "hit"]
    path = "allocation.cached_alloc"
    yield middle(path, hits, [nanoseconds(r) for r in hits], "median") if hits else Left(path, "no rows")
    yield _block(rows, "allocation.map", ("cumemcreate_us", "cumemmap_us", "cumemsetaccess_us"), "vmm_create_map_per_chunk_us")
    yield _block(rows, "allocation.unmap", ("cumemunmap_us", "cumemrelease_us"), "")


_CALLS = (
    "cudamalloc_us", "cudafree_us", "cudahostalloc_us", "cudamallocasync_us", "vmm_create_map_per_chunk_us",
    "cumemcreate_us", "cumemmap_us", "cumemsetaccess_us", "cumemunmap_us", "cumemrelease_us",
)  # fmt: skip


def _block(rows: Sequence[Row], path: str, parts: Sequence[str], whole: str) -> Found:
    """One physical block: each call at the smallest size of at least 2 MiB, or all of them as one row has it."""
    groups = [[r for r in rows if r.metric == part and (r.size_bytes or 0) >= _BLOCK] for part in parts]
    if all(groups):
        used = [min(group, key=lambda r: r.size_bytes or 0) for group in groups]
        return Estimate(path, sum(nanoseconds(r) for r in used), tuple(used), "sum of the calls for the smallest block")
    mine = [r for r in rows if r.metric == whole]
    if mine:
        return middle(path, mine, [nanoseconds(r) for r in mine], "median")
    return Left(path, "some of its calls have no rows")


def others(rows: Sequence[Row]) -> Iterator[Found]:
    """The CPU's memory, with as many threads as were tried, and the disk."""
    most = max((int(r.params.get("threads", 0)) for r in rows if r.metric == "host_copy_bw"), default=0)
    rows = [r for r in rows if r.metric != "host_copy_bw" or int(r.params.get("threads", 0)) == most]
    for path, metrics in (
        ("host.bandwidth", ("host_copy_bw",)),
        ("nvme.read", ("nvme_read_bw",)),
        ("nvme.write", ("nvme_write_bw",)),
    ):
        mine = best_known([r for r in rows if r.metric in metrics])
        yield plateau(path, mine, lambda r: r.value * 1e9, "median at the largest sizes") or Left(path, "no rows")
    reads = best_known([r for r in rows if r.metric == "nvme_read_latency_us"])
    path = "nvme.latency"
    yield middle(path, reads, [nanoseconds(r) for r in reads], "median") if reads else Left(path, "no rows")


def _line(name: str, rows: Sequence[Row]) -> Iterator[Found]:
    """Start and slope over the size; with one size only the start."""
    path = f"allocation.{name}"
    if not rows:
        yield Left(path, "no rows")
        yield Left(f"{path}_per_gib", "no rows")
        return
    x, y = np.array([(r.size_bytes or 0) / _GIB for r in rows]), np.array([nanoseconds(r) for r in rows])
    if len(set(x)) < 3:
        yield middle(path, rows, y.tolist(), "median")
        yield Left(f"{path}_per_gib", "fewer than 3 sizes")
        return
    slope, start = (max(0.0, float(v)) for v in np.polyfit(x, y, 1, w=1 / y))
    off = y - (start + slope * x)
    bar = float(np.quantile(np.abs(off), 0.9))
    yield Estimate(path, start, tuple(rows), "line over the size", max(0.0, start - bar), start + bar)
    per = bar / float(x.max())
    yield Estimate(f"{path}_per_gib", slope, tuple(rows), "slope over the size", max(0.0, slope - per), slope + per)

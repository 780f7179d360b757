"""The ways out of the device: to the host's memory, pinned or not, and to other GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpusim.calibrate.fit.estimate import LEAST, Curve, Estimate, Found, Left, best_known, middle, plateau, thinned
from gpusim.calibrate.meaning import PEER, nanoseconds, sent, streams, synchronised
from gpusim.calibrate.rows import Row
from gpusim.hardware.profile import Profile
from gpusim.hardware.streaming import at

_SMALL = 16 * 1024  # bytes: start-up is all that such a copy costs
_OFF = 0.05  # a line that misses by more is a curve


def fit(rows: Sequence[Row], base: Profile, gap: float) -> Iterator[Found]:
    """Rates, latencies and curves; `gap` is what the engine itself puts between two kernels of a stream, ns."""
    host = best_known([r for r in rows if r.metric.startswith(("h2d_", "d2h_")) and "_sm_" not in r.metric])
    rates: dict[str, float] = {}
    for direction in ("h2d", "d2h"):
        mine = [r for r in host if r.metric == f"{direction}_pinned_bw" and streams(r) == 1]
        estimate = plateau(f"link.{direction}", mine, _rate, "median at the largest sizes")
        rates[direction] = estimate.value if estimate else getattr(base.link, direction).value
        yield estimate or Left(f"link.{direction}", "no rows")
        staged = [r for r in host if r.metric == f"{direction}_pageable_bw"]
        pageable = plateau(f"host.pageable_{direction}", staged, _rate, "median at the largest sizes")
        yield pageable or Left(f"host.pageable_{direction}", "no rows")
    yield _both(host, sum(rates.values()))
    copies = [r for r in host if r.metric in ("h2d_pinned_bw", "h2d_pinned_time_us") and r.size_bytes and streams(r) == 1]
    yield from _start([r for r in copies if synchronised(r)], "link.latency_synchronised", rates["h2d"])
    queued = [r for r in copies if not synchronised(r)]
    start = list(_start(queued, "link.latency_queued", rates["h2d"]))
    yield from start
    yield _size_curve(queued, start[0], rates["h2d"])
    if base.peer is not None:
        yield from _peer(rows, gap)


def _rate(row: Row) -> float:
    return row.value * 1e9


def _both(rows: Sequence[Row], most: float) -> Found:
    """Both directions together: the sum, or twice the one that is known, and no more than both alone."""
    ways = [[r for r in rows if r.metric == f"{d}_pinned_bidir_bw"] for d in ("h2d", "d2h")]
    parts = [p for p in (plateau("link.both", way, _rate, "") for way in ways) if p]
    if not parts:
        return Left("link.both", "no rows of both directions at once")
    times = 2 / len(parts)
    value = min(times * sum(p.value for p in parts), most)
    low = times * sum(p.value if p.low is None else p.low for p in parts)
    high = times * sum(p.value if p.high is None else p.high for p in parts)
    rows_used = tuple(row for p in parts for row in p.rows)
    how = "sum of the directions" if len(parts) == 2 else "twice the direction that was measured"
    return Estimate("link.both", value, rows_used, how, min(low, value), max(high, value))


def _start(rows: Sequence[Row], path: str, rate: float) -> Iterator[Found]:
    small = [r for r in rows if (r.size_bytes or 0) <= _SMALL]
    if len(small) < 3:
        yield Left(path, "fewer than 3 small copies")
        return
    times = [max(0.0, nanoseconds(r) - (r.size_bytes or 0) / rate * 1e9) for r in small]
    yield middle(path, small, times, f"time of copies up to {_SMALL} B less their bytes at the full rate")


def _size_curve(rows: Sequence[Row], start: Found, rate: float) -> Found:
    path = "link.size_curve"
    if len({r.size_bytes for r in rows}) < LEAST or not isinstance(start, Estimate):
        return Left(path, f"fewer than {LEAST} sizes of queued copies")
    line = [start.value + (r.size_bytes or 0) / rate * 1e9 for r in rows]
    off = [abs(t / nanoseconds(r) - 1) for t, r in zip(line, rows, strict=True)]
    if float(np.quantile(off, 0.9)) <= _OFF:
        return Left(path, "start-up and rate say it")
    rates = [(float(r.size_bytes or 0), (r.size_bytes or 0) / nanoseconds(r) * 1e9) for r in rows]
    points = thinned(rates)
    residual = float(np.median([abs(at(points, int(size)) / known - 1) for size, known in rates]))
    return Curve(path, points, tuple(rows), "medians by size, start-up included", residual)


def _peer(rows: Sequence[Row], gap: float) -> Iterator[Found]:
    """What is measured between two GPUs rules; where that is missing, what a collective reaches in all."""
    copies = [r for r in rows if r.metric in PEER]
    collectives = [r for r in rows if sent(r) and r.size_bytes]
    if copies:
        estimate = plateau("peer.rate", copies, _rate, "median at the largest sizes")
        assert estimate is not None
        yield estimate
    elif collectives:
        largest = max(r.size_bytes or 0 for r in collectives)
        top = [r for r in collectives if (r.size_bytes or 0) == largest]
        rates = [(sent(r) or 0) * largest / nanoseconds(r) * 1e9 for r in top]
        yield middle("peer.rate", top, rates, "bytes that a GPU sends in the largest collectives, by their time")
    else:
        yield Left("peer.rate", "no rows")
    small = [r for r in rows if r.metric == "p2p_latency_us"]
    if small:
        times = [max(0.0, nanoseconds(r) - gap) for r in small]
        yield middle("peer.latency", small, times, "time of a small write among many, less launch.gap")
    elif collectives and not copies:
        small = [r for r in collectives if (r.size_bytes or 0) <= _SMALL]
        times = [max(0.0, nanoseconds(r) - gap) for r in small]
        yield middle("peer.latency", small, times, "time of the smallest collectives, less launch.gap")
    else:
        yield Left("peer.latency", "no rows")

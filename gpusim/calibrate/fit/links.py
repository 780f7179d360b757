"""The ways out of the device: to the host's memory, pinned or not, to another GPU, and among several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gpusim.calibrate.fit.estimate import LEAST, Curve, Estimate, Found, Left, best_known, middle, plateau, thinned
from gpusim.calibrate.meaning import PEER, nanoseconds, sent, streams, synchronised, together_with
from gpusim.calibrate.rows import Row
from gpusim.machine.profile import Profile
from gpusim.machine.streaming import at

_SMALL = 16 * 1024  # bytes: start-up is all that such a copy costs
_FULL = 4  # bytes that a thread accesses: with its neighbours it fills requests
_OFF = 0.05  # a line that misses by more is a curve


def fit(rows: Sequence[Row], base: Profile, gap: float) -> Iterator[Found]:
    """Rates, latencies and curves; `gap` is what the engine itself puts between two kernels of a stream, ns."""
    host = of_host(rows)
    rates: dict[str, float] = {}
    for direction in ("h2d", "d2h"):
        mine = [r for r in host if r.metric == f"{direction}_pinned_bw" and streams(r) == 1]
        estimate = plateau(f"link.{direction}", mine, _rate, "median at the largest sizes")
        rates[direction] = estimate.value if estimate else getattr(base.link, direction).value
        yield estimate or Left(f"link.{direction}", "no rows")
        staged = [r for r in host if r.metric == f"{direction}_pageable_bw"]
        pageable = plateau(f"host.pageable_{direction}", staged, _rate, "median at the largest sizes")
        yield pageable or Left(f"host.pageable_{direction}", "no rows")
        path = "host.pageable_curve" if direction == "h2d" else "host.pageable_curve_d2h"
        several = len({r.size_bytes for r in staged}) >= LEAST
        points = [(float(r.size_bytes or 0), nanoseconds(r)) for r in staged]
        yield _curve(path, staged, points) if several else Left(path, f"fewer than {LEAST} sizes")
    yield _both("link.both", host, ("h2d_pinned_bidir_bw", "d2h_pinned_bidir_bw"), sum(rates.values()))
    yield from _in_place(rows, host)
    yield from _all_gpus(rows, rates)
    copies = {d: [r for r in host if r.metric in (f"{d}_pinned_bw", f"{d}_pinned_time_us") and r.size_bytes and streams(r) == 1]
              for d in rates}  # fmt: skip
    awaited = {d: [r for r in copies[d] if synchronised(r)] for d in rates}
    queued = {d: [r for r in copies[d] if not synchronised(r)] for d in rates}
    small = [r for r in rows if r.metric == "memcpy_sync_small_us"]
    if small and len(awaited["h2d"] + awaited["d2h"]) < 3:
        times = [nanoseconds(r) for r in small]
        yield middle("link.latency_synchronised", small, times, "time of a copy of 4 bytes with its wait")
    else:
        yield _start(awaited, "link.latency_synchronised", rates)
    start = _start(queued, "link.latency_queued", rates)
    yield start
    inward = _size_curve("link.size_curve", queued["h2d"], start, rates["h2d"], 0.9)
    yield inward
    # Without a curve of its own the way out would have that of the way in, however straight it is.
    yield _size_curve("link.size_curve_d2h", queued["d2h"], start, rates["d2h"], 0.9 if isinstance(inward, Left) else 0.0)
    if base.peer is not None:
        yield from _peer(rows)
    yield from _without_links(rows)
    yield from _collective(rows, gap)


def of_host(rows: Sequence[Row]) -> list[Row]:
    """The rows about copies between host and device, of the one host that the profile is to be of."""
    return best_known([r for r in rows if r.metric.startswith(("h2d_", "d2h_")) and "_sm_" not in r.metric])


def _rate(row: Row) -> float:
    """Bytes/s, of all GPUs together where several did the same."""
    return row.value * 1e9 * together_with(row)


def _in_place(rows: Sequence[Row], host: Sequence[Row]) -> Iterator[Found]:
    """Kernels that work on host memory of the same host as the copies."""
    systems = {r.system for r in host}
    for name, copy in (("read", "h2d_sm_copy_bw"), ("write", "d2h_sm_copy_bw")):
        metrics = (copy, f"zero_copy_{name}_bw")
        mine = [r for r in rows if r.metric in metrics and int(r.params.get("access_bytes", _FULL)) >= _FULL]
        mine = [r for r in mine if r.system in systems] if systems else best_known(mine)
        path = f"link.kernel_{name}"
        yield plateau(path, mine, _rate, "median at the largest sizes") or Left(path, "no rows")


def _all_gpus(rows: Sequence[Row], rates: Mapping[str, float]) -> Iterator[Found]:
    """What the GPUs of a node have together when all copy at once."""
    several = best_known([r for r in rows if r.metric.startswith(("host_to_all_", "all_to_host_")) and together_with(r) > 1])
    for direction, metric in (("h2d", "host_to_all_bw"), ("d2h", "all_to_host_bw")):
        path = f"host.all_{direction}"
        mine = [r for r in several if r.metric == metric]
        yield plateau(path, mine, _rate, "sum over all GPUs that copy at once") or Left(path, "no rows of several GPUs")
    most = sum(rates.values()) * max((together_with(r) for r in several), default=1)
    yield _both("host.all_both", several, ("host_to_all_bidir_bw", "all_to_host_bidir_bw"), most)


def _both(path: str, rows: Sequence[Row], metrics: Sequence[str], most: float) -> Found:
    """Both directions together: the sum, or twice the one that is known, and no more than both alone."""
    ways = [[r for r in rows if r.metric == metric] for metric in metrics]
    parts = [p for p in (plateau(path, way, _rate, "") for way in ways) if p]
    if not parts:
        return Left(path, "no rows of both directions at once")
    times = 2 / len(parts)
    value = min(times * sum(p.value for p in parts), most)
    low = times * sum(p.value if p.low is None else p.low for p in parts)
    high = times * sum(p.value if p.high is None else p.high for p in parts)
    rows_used = tuple(row for p in parts for row in p.rows)
    how = "sum of the directions" if len(parts) == 2 else "twice the direction that was measured"
    return Estimate(path, value, rows_used, how, min(low, value), max(high, value))


def _start(rows: Mapping[str, Sequence[Row]], path: str, rates: Mapping[str, float]) -> Found:
    """The profile has one start for both directions."""
    small = [(r, rates[d]) for d, mine in rows.items() for r in mine if (r.size_bytes or 0) <= _SMALL]
    if len(small) < 3:
        return Left(path, "fewer than 3 small copies")
    times = [max(0.0, nanoseconds(r) - (r.size_bytes or 0) / rate * 1e9) for r, rate in small]
    return middle(path, [r for r, _ in small], times, f"time of copies up to {_SMALL} B less their bytes at the full rate")


def _size_curve(path: str, rows: Sequence[Row], start: Found, rate: float, straight: float) -> Found:
    """None where a line says at least the share `straight` of the rows."""
    if len({r.size_bytes for r in rows}) < LEAST or not isinstance(start, Estimate):
        return Left(path, f"fewer than {LEAST} sizes of queued copies")
    line = [start.value + (r.size_bytes or 0) / rate * 1e9 for r in rows]
    off = [abs(t / nanoseconds(r) - 1) for t, r in zip(line, rows, strict=True)]
    if straight and float(np.quantile(off, straight)) <= _OFF:
        return Left(path, "start-up and rate say it")
    return _curve(path, rows, [(float(r.size_bytes or 0), nanoseconds(r)) for r in rows])


def _curve(path: str, rows: Sequence[Row], times: Sequence[tuple[float, float]]) -> Curve:
    """From (bytes, ns)."""
    rates = [(size, size / ns * 1e9) for size, ns in times]
    points = thinned(rates)
    residual = float(np.median([abs(at(points, int(size)) / known - 1) for size, known in rates]))
    return Curve(path, points, tuple(rows), "medians by size, start-up included", residual)


def _peer(rows: Sequence[Row]) -> Iterator[Found]:
    """What is measured between two GPUs."""
    copies = [r for r in rows if r.metric in PEER]
    yield plateau("peer.rate", copies, _rate, "median at the largest sizes") or Left("peer.rate", "no rows")
    both = [r for r in rows if r.metric == "p2p_nvlink_bidir_total_bw"]
    yield plateau("peer.both", both, _rate, "median at the largest sizes") or Left("peer.both", "no rows")
    small = [r for r in rows if r.metric == "p2p_latency_us"]
    if small:
        yield middle("peer.latency", small, [nanoseconds(r) for r in small], "time of a small write among many")
    else:
        yield Left("peer.latency", "no rows")


def _without_links(rows: Sequence[Row]) -> Iterator[Found]:
    """What is measured between two GPUs that meet over the links to the host, past its memory or by way of it."""
    for word, name in (("pcie", "link.peer"), ("staged", "link.staged")):
        mine = best_known([r for r in rows if r.metric.startswith(f"p2p_{word}_") and r.metric.endswith("_bw")])
        for path, ending in ((name, f"p2p_{word}_bw"), (f"{name}_both", f"p2p_{word}_bidir_total_bw")):
            copies = [r for r in mine if r.metric == ending]
            yield plateau(path, copies, _rate, "median at the largest sizes") or Left(path, "no rows")
    small = best_known([r for r in rows if r.metric == "p2p_staged_latency_us"])
    path = "link.staged_latency"
    yield middle(path, small, [nanoseconds(r) for r in small], "time of a small write") if small else Left(path, "no rows")


def _collective(rows: Sequence[Row], gap: float) -> Iterator[Found]:
    """By the bytes that one GPU sends.  An all-to-all is as many transfers as there are peers and has another start."""
    rows = [r for r in rows if sent(r) and r.size_bytes and not r.metric.startswith("nccl_alltoall")]
    if not rows:
        yield from (Left(f"collective.{name}", "no rows") for name in ("rate", "latency", "size_curve"))
        return
    size = {id(r): (sent(r) or 0.0) * (r.size_bytes or 0) for r in rows}
    most = max(size.values())
    top = [r for r in rows if size[id(r)] > most / 2]
    rates = [size[id(r)] / nanoseconds(r) * 1e9 for r in top]
    yield middle("collective.rate", top, rates, "bytes that a GPU sends in the largest collectives, by their time")
    small = [r for r in rows if (r.size_bytes or 0) <= _SMALL]
    times = [max(0.0, nanoseconds(r) - gap) for r in small]
    path = "collective.latency"
    how = "time of the smallest collectives, less launch.gap"
    yield middle(path, small, times, how) if small else Left(path, "no small ones")
    path = "collective.size_curve"
    if len({r.size_bytes for r in rows}) < LEAST:
        yield Left(path, f"fewer than {LEAST} sizes")
    else:
        yield _curve(path, rows, [(size[id(r)], max(1.0, nanoseconds(r) - gap)) for r in rows])

"""What kernels on the device reach: rates of memory and of L2, and what one costs beside its bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpusim.calibrate import meaning
from gpusim.calibrate.as_programs.kernels import blocks
from gpusim.calibrate.fit.estimate import LEAST, Curve, Estimate, Found, Left, middle, plateau, thinned
from gpusim.calibrate.meaning import local, nanoseconds
from gpusim.calibrate.rows import Row, series
from gpusim.machine.generations import generation
from gpusim.machine.loads import ARRIVAL, WORD, little
from gpusim.machine.profile import Profile
from gpusim.machine.streaming import IN_TURN, at, rates

_LONG = 0.125, 0.5
"""Shares of L2's size between which kernels are long beside their start, and all that they touch is in L2."""
_SHORT = 1 / 16
"""Of L2's size: below, a kernel is all start."""
_FAR = 4  # times the size of L2: nothing of it is seen any more
_UNSATURATED = 0.7  # of the rate of a full device: above, the number of threads says little
_HALVINGS = 40  # of an interval, until nothing is left of it


def fit(rows: Sequence[Row], base: Profile) -> Iterator[Found]:
    """Rates of memory, curves of L2, launch."""
    l2 = base.gpu.l2.value
    one = [r for r in rows if r.metric != "hbm_copy_2stream_bw"]
    far = [r for r in one if _touched(r) >= _FAR * l2 and meaning.full(r)]
    found: dict[str, Estimate | None] = {}
    for name, wanted in (("read", (1, 0)), ("write", (0, 1)), ("copy", (1, 1))):
        mine = [r for r in far if _kind(r) == wanted and not _by_driver(r) and not meaning.shared(r)]
        mine = mine or [r for r in far if _kind(r) == wanted and not _by_driver(r)]
        found[name] = plateau(f"memory.{name}", mine, _rate, "median over series at sizes far above L2")
    found["copy_engine"] = plateau("memory.copy_engine", [r for r in far if _by_driver(r)], _rate, "median over series")
    for name, estimate in found.items():
        yield estimate or Left(f"memory.{name}", "no rows")
    queued = series(_queued(rows))
    gaps = {name: _gap(group, l2 * _SHORT, l2 / 2) for name, group in queued.items()}
    copying = found["copy"].value if found["copy"] else base.memory.copy.value
    reading = found["read"].value if found["read"] else base.memory.read.value
    yield _curve("memory.copy_curve", list(_copies(rows, l2)), copying, l2)
    yield _curve("memory.read_curve", [(r, r.value * 1e9) for r in rows if _reads_in_l2(r)], reading, l2)
    same = [r for r in rows if r.metric == "l2_or_dram_read_bw" and meaning.shared(r)]
    beyond = plateau("memory.shared_curve", [r for r in same if _touched(r) >= _FAR * l2], _rate, "")
    yield _curve("memory.shared_curve", [(r, r.value * 1e9) for r in same], beyond.value if beyond else reading, l2)
    for path, metric in (("memory.in_step_curve", "l1_or_l2_read_bw"), ("memory.latency_curve", "load_latency_ns")):
        yield _as_measured(path, [r for r in rows if r.metric == metric])
    yield _turnaround(rows, {(1, 0): reading, (1, 1): copying}, base)
    yield _multiply_adds(rows, reading)
    yield from _chases(rows)
    yield from _launch(rows, gaps, base)
    yield _barrier(rows, found, base)


def _as_measured(path: str, rows: Sequence[Row]) -> Found:
    """A curve of the rows' own values, by size."""
    if len({r.size_bytes for r in rows}) < LEAST:
        return Left(path, f"fewer than {LEAST} sizes")
    unit = 1.0 if rows[0].unit == "ns" else 1e9
    points = thinned((float(r.size_bytes or 0), r.value * unit) for r in rows)
    off = [abs(at(points, r.size_bytes or 0) / (r.value * unit) - 1) for r in rows]
    return Curve(path, points, tuple(rows), "medians by size", float(np.median(off)))


def _turnaround(rows: Sequence[Row], full: dict[tuple[int, int], float], base: Profile) -> Found:
    """The time at which Little's law says a row, in the middle of all."""
    path, said, times = "memory.turnaround", [], []
    processors, most = base.gpu.sm_count.value, generation(base).threads * base.gpu.sm_count.value
    for row in rows:
        if not local(row) or meaning.full(row) or row.value * 1e9 > _UNSATURATED * full.get(_kind(row), 0.0):
            continue
        threads, width, rate = meaning.occupancy(row, processors) * most, float(WORD * sum(_kind(row))), full[_kind(row)]
        slow, fast = np.log(threads * width / (row.value * 1e9) * 1e9) + np.array([-3.0, 3.0])
        for _ in range(_HALVINGS):  # longer times mean less bandwidth
            tried = (slow + fast) / 2
            if little(rate, width, threads, most, float(np.exp(tried))) > row.value * 1e9:
                slow = tried
            else:
                fast = tried
        said.append(row)
        times.append(float(np.exp(slow)))
    if len(said) < LEAST:
        return Left(path, f"fewer than {LEAST} rows of a device with few threads")
    return middle(path, said, times, "time at which Little's law says the rates of few threads")


def _multiply_adds(rows: Sequence[Row], reading: float) -> Found:
    """What loops of multiply-adds reach where the bytes hardly matter any more."""
    mine = [r for r in rows if r.metric == "fp32_fma_gflops" and "flop_per_byte" in r.params]
    if len(mine) < LEAST:
        return Left("gpu.fma", f"fewer than {LEAST} intensities")
    most = max(_intensity(r) for r in mine)
    top = [r for r in mine if _intensity(r) >= most / 2]
    # ns of a byte, less what of moving it does not hide behind computing
    found = [_intensity(r) / (_intensity(r) / r.value - IN_TURN / reading * 1e9) * 1e9 for r in top]
    return middle("gpu.fma", top, found, "loops of multiply-adds at the highest intensities")


def _intensity(row: Row) -> float:
    return float(row.params["flop_per_byte"])


def _chases(rows: Sequence[Row]) -> Iterator[Found]:
    for path, at_ in (("link.load", "host"), ("peer.load", "peer")):
        mine = [r for r in rows if meaning.chased(r) == at_]
        yield middle(path, mine, [nanoseconds(r) for r in mine], "median") if mine else Left(path, "no rows")


def _barrier(rows: Sequence[Row], found: dict[str, Estimate | None], base: Profile) -> Found:
    """What is left of a pass within L2 when its bytes and its thread blocks are taken off."""
    mine = [r for r in rows if r.metric == "queued_kernel_scale_bw" and meaning.launch(r) in meaning.LOOPS]
    mine = [r for r in mine if (r.size_bytes or 0) <= base.gpu.l2.value * _LONG[0]]
    if len(mine) < LEAST:
        return Left("launch.barrier", "fewer than 5 small sizes of looping kernels")
    clock = base.gpu.boost_clock.value / 1e9
    left = []
    for row in mine:
        size = row.size_bytes or 0
        moving = size / rates(base, size)[1] * 1e9
        left.append(max(0.0, nanoseconds(row) - moving - ARRIVAL / clock * blocks(row, base)))
    return middle("launch.barrier", mine, left, "passes in L2 less their bytes and thread blocks")


def _touched(row: Row) -> int:
    """Bytes that a local test went over; a memcpy's size is that of its source alone."""
    return (row.size_bytes or 0) * (2 if _by_driver(row) else 1) if local(row) else 0


def _kind(row: Row) -> tuple[int, int]:
    """Whether it read, wrote, or did as much of both; (2, 1) and the like are mixtures of these and decide nothing."""
    streams = local(row)
    assert streams is not None
    if streams.reads and streams.writes:
        return streams.reads, streams.writes
    return min(streams.reads, 1), min(streams.writes, 1)


def _by_driver(row: Row) -> bool:
    streams = local(row)
    return streams is not None and streams.by_driver


def _rate(row: Row) -> float:
    streams = local(row)
    assert streams is not None
    return row.value * 1e9 / streams.counted


def _reads_in_l2(row: Row) -> bool:
    return row.metric == "l2_or_dram_read_bw" and meaning.full(row) and not meaning.shared(row)


def _gap(group: Sequence[Row], *most: float, least: float = 0) -> float:
    """ns of an empty kernel: where the line through the times of kernels of such sizes meets the axis.

    most  the largest size; the next one where there are too few
    """
    for limit in most:
        inside = [r for r in group if least <= (r.size_bytes or 0) <= limit]
        if len({r.size_bytes for r in inside}) >= LEAST:
            x, y = [float(r.size_bytes or 0) for r in inside], [nanoseconds(r) for r in inside]
            return float(np.polyfit(x, y, 1)[1])
    return min(nanoseconds(r) for r in group)


def _queued(rows: Sequence[Row]) -> Iterator[Row]:
    """Kernels that follow each other; those that loop have no start each."""
    return (r for r in rows if r.metric == "queued_kernel_scale_bw" and meaning.launch(r) not in meaning.LOOPS)


def _copies(rows: Sequence[Row], l2: float) -> Iterator[tuple[Row, float]]:
    """Rows that say how fast a kernel of reads and writes alike is at a size, start-up excluded.

    The start of a kernel ends with its last wave's, which small ones do not have: theirs is no part of what is taken off.
    """
    queued = series(_queued(rows))
    starts = {name: _gap(group, l2 * _LONG[1], least=l2 * _LONG[0]) for name, group in queued.items()}
    for row in rows:
        if row.metric in ("l2_or_dram_scale_bw", "l2_or_dram_copy_bw") and meaning.full(row):
            yield row, row.value * 1e9
        elif row.series_id in starts:
            moving = nanoseconds(row) - starts[row.series_id]
            if (row.size_bytes or 0) >= l2 * _LONG[0] and moving > 0:
                yield row, (row.size_bytes or 0) / moving * 1e9


def _curve(path: str, said: Sequence[tuple[Row, float]], plateau: float, l2: float) -> Found:
    if len({row.size_bytes for row, _ in said}) < LEAST:
        return Left(path, f"fewer than {LEAST} sizes")
    measured = [(float(row.size_bytes or 0), rate) for row, rate in said]
    how = "medians by size, the rate of memory from four times L2 on"
    if max(size for size, _ in measured) <= l2:
        measured += [(float(l2), measured[-1][1]), (2.0 * l2, plateau)]
        how += "; beyond the rows L2 holds to its size, and memory's rate comes from twice that on"
    points = (*thinned(m for m in measured if m[0] < _FAR * l2), (int(_FAR * l2), float(f"{plateau:.4g}")))
    off = [abs(at(points, row.size_bytes or 0) / rate - 1) for row, rate in said]
    return Curve(path, points, tuple(row for row, _ in said), how, float(np.median(off)))


def _launch(rows: Sequence[Row], gaps: dict[str, float], base: Profile) -> Iterator[Found]:
    """Empty kernels follow each other in a stream after their own time and the gap; in a graph almost after the gap alone."""
    queued = _of_mode(rows, "queued_kernel_scale_bw", "stream")
    least = min((nanoseconds(r) for r in queued), default=0.0)
    own = [r for r in queued if nanoseconds(r) < 1.1 * least]
    gap = _period("launch.gap", rows, gaps, "graph")
    yield gap or Left("launch.gap", "no kernels of a graph")
    period = _period("launch.empty", rows, gaps, "stream")
    tiny = [r for r in rows if r.metric == "local_copy_latency_us"]
    if period is None and tiny:
        how = "time of a copy of 16 bytes among many in a stream"
        period = middle("launch.empty", tiny, [nanoseconds(r) for r in tiny], how)
    off = gap.value if gap else base.launch.gap.value
    if period is None:
        yield Left("launch.empty", "no kernels queued in a stream")
    else:
        bars = [None if bar is None else max(0.0, bar - off) for bar in (period.low, period.high)]
        value = max(0.0, period.value - off)
        yield Estimate("launch.empty", value, period.rows, f"{period.how}, less launch.gap", *bars)
    if tiny:
        how = "time of a copy of 16 bytes among many, less launch.gap"
        yield middle("launch.copy", tiny, [max(0.0, nanoseconds(r) - off) for r in tiny], how)
    else:
        yield Left("launch.copy", "no small copies within the device's memory")
    calls = [r for r in rows if r.metric in ("kernel_launch_us", "kernel_submit_us")]
    if calls:
        yield middle("launch.submit", calls, [nanoseconds(r) for r in calls], "median")
    elif queued:
        yield middle("launch.submit", own, [nanoseconds(r) for r in own], "no more than the shortest kernels in a stream take")
    else:
        yield Left("launch.submit", "no rows")


def _of_mode(rows: Sequence[Row], metric: str, mode: str) -> list[Row]:
    return [r for r in rows if r.metric == metric and meaning.launch(r) == mode]


def _period(path: str, rows: Sequence[Row], gaps: dict[str, float], mode: str) -> Estimate | None:
    """ns from one empty kernel to the next."""
    empty = _of_mode(rows, "null_kernel_us", mode)
    if empty:
        return middle(path, empty, [nanoseconds(r) for r in empty], f"time of an empty kernel among many in a {mode}")
    queued = _of_mode(rows, "queued_kernel_scale_bw", mode)
    if not queued:
        return None
    least = min(nanoseconds(r) for r in queued)
    near = [nanoseconds(r) for r in queued if nanoseconds(r) < 1.1 * least]
    starts = [gaps[name] for name in series(queued)]
    how = f"where the line through times in L2 of kernels in a {mode} meets the axis"
    return Estimate(path, float(np.median(starts)), tuple(queued), how, min(*starts, least), max(*starts, *near))

"""Copies between host and device, to peers, and collectives, as programs."""

from __future__ import annotations

from gpusim.calibrate import meaning
from gpusim.calibrate.as_programs.row_program import BIG, LARGE, MANY, RowProgram, started
from gpusim.calibrate.meaning import sent
from gpusim.calibrate.rows import Row
from gpusim.machine import peers
from gpusim.machine.profile import Profile
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import COLLECTIVE, COPY_IN, COPY_OUT, COPY_PEER, SYNC


def copies(row: Row, profile: Profile) -> RowProgram:
    """Copies in a row: behind a kernel, or each awaited by the host."""
    size, inward = row.size_bytes or 0, row.metric.startswith("h2d")
    count = LARGE if size >= BIG else MANY
    builder = TraceBuilder(row.series_id)
    awaited = meaning.synchronised(row)
    if not awaited:
        started(builder)
    for _ in range(count):
        builder.op("copy", (), (), read_bytes=size, stream=1, activity=COPY_IN if inward else COPY_OUT)
        if awaited:
            builder.event(SYNC)
    curve = "link.size_curve" if inward or not profile.link.size_curve_d2h else "link.size_curve_d2h"
    uses: tuple[str, ...] = (f"link.{row.metric[:3]}",)
    if size < BIG:
        uses += ("link.latency_synchronised",) if awaited else ("link.latency_queued", curve)
    return RowProgram(builder.finish(), count, uses, None if awaited else 1, moved=0.0 if row.unit == "us" else size)


def several_streams(row: Row) -> RowProgram:
    """One copy on each of several streams, all released together; their time is until all are done."""
    size, inward = row.size_bytes or 0, row.metric.startswith("h2d")
    builder, held = TraceBuilder(row.series_id), TraceBuilder(row.series_id)
    count = meaning.streams(row)
    started(builder, count)
    started(held, count)
    for stream in range(1, count + 1):
        builder.op("copy", (), (), read_bytes=size, stream=stream, activity=COPY_IN if inward else COPY_OUT)
    return RowProgram(builder.finish(), 1, (f"link.{row.metric[:3]}",), without=held.finish(), moved=size * count)


def both_ways(row: Row) -> RowProgram:
    """Copies of the direction that is measured, while the other one is busy for longer."""
    size, inward = row.size_bytes or 0, row.metric.startswith("h2d")
    builder = TraceBuilder(row.series_id)
    started(builder)
    for _ in range(LARGE):
        builder.op("copy", (), (), read_bytes=size, stream=1, activity=COPY_IN if inward else COPY_OUT)
        for _ in range(2):
            builder.op("copy", (), (), read_bytes=size, stream=2, activity=COPY_OUT if inward else COPY_IN)
    return RowProgram(builder.finish(), LARGE, ("link.both",), 1, moved=size)


def peer(row: Row, profile: Profile) -> RowProgram:
    """Copies to another GPU of the node, which may copy as much back."""
    size, way, both = row.size_bytes or BIG, meaning.way(row), "bidir" in row.metric
    rate = row.metric.endswith("_bw")
    count = LARGE if rate else MANY
    builder = TraceBuilder(row.series_id)
    started(builder)
    for _ in range(count):
        builder.op("to a peer", (), (), read_bytes=size, stream=1, activity=COPY_PEER)
    name = {peers.LINKS: "peer.", peers.PCIE: "link.peer", peers.HOST: "link.staged"}[way]
    if way == peers.LINKS:
        uses = f"{name}both" if both else f"{name}rate" if rate else f"{name}latency"
    else:
        uses = f"{name}_both" if both else name if rate else f"{name}_latency"
    machine = peers.meeting(profile, way, both)
    return RowProgram(builder.finish(), count, (uses,), 1, moved=size * (1 + both) if rate else 0, machine=machine)


def collective(row: Row, profile: Profile) -> RowProgram:
    """Collectives of one kind in a row, over the links between GPUs, or over that to the host where there are none."""
    size = round((sent(row) or 0) * (row.size_bytes or 0))
    builder = TraceBuilder(row.series_id)
    started(builder)
    for _ in range(LARGE):
        builder.op(row.metric.split("_")[1], (), (), read_bytes=size, stream=1, activity=COLLECTIVE)
    uses: tuple[str, ...] = ("collective.rate", "collective.latency", "collective.size_curve")
    if profile.collective is None:
        uses = ("peer.rate", "peer.latency") if profile.peer else ("link.both", "link.latency_queued")
    return RowProgram(builder.finish(), LARGE, uses, 1, moved=size if row.unit == "GB/s" else 0)

"""What is known about a collective on a machine, as plain rows: the graph, and times by size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.base.units import BYTES, TIME, show
from gpusim.machine.collectives.nccl import Channels
from gpusim.machine.collectives.passes import Kind
from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.topology.topology import Topology

Row = dict[str, str]
SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 24, 1 << 28, 1 << 32)
"""Bytes of collectives whose time is told."""


def gpus_named(machine: Topology, text: str) -> tuple[str, ...]:
    """GPUs of a text: none, all; "8", the first eight; "n0.gpu0,n1.gpu0", these.  Raises GpusimError."""
    if not text:
        return machine.gpus
    if not text.isdecimal():
        return tuple(name.strip() for name in text.split(","))
    if not 2 <= int(text) <= len(machine.gpus):
        raise GpusimError(f"machine '{machine.name}' has {len(machine.gpus)} GPUs for a collective, not {text}")
    return machine.gpus[: int(text)]


def collective(machine: Topology, kind: Kind, gpus: Sequence[str]) -> dict[str, Any]:
    """Channels of these GPUs, and the collective's time by size.  Raises GpusimError."""
    times = CollectiveTimes(machine)
    rows = [_row(times, kind, gpus, size) for size in SIZES]
    graph = times.graph(gpus)
    several = len(graph.nodes) > 1
    return {
        "collective": kind, "gpus": list(gpus), "nodes": len(graph.nodes), "rings": _channels(graph.ring, several),
        "trees": _channels(graph.tree, several), "nvls": _channels(graph.nvls, several), "times": rows,
    }  # fmt: skip


def _row(times: CollectiveTimes, kind: Kind, gpus: Sequence[str], size: int) -> Row:
    time = times.of(kind, gpus, size)
    low, high = (show(share * time.ns, TIME, 3) for share in time.spread)
    return {
        "bytes": show(size, BYTES, 4), "algorithm": time.algorithm or "direct", "protocol": time.protocol,
        "time": show(time.ns, TIME, 4), "8 of 10 between": f"{low} and {high}",
        "NCCL's estimate": show(time.estimate, TIME, 4) if time.estimate else "", "multiprocessors": str(time.blocks),
    }  # fmt: skip


def _channels(found: Channels | None, several: bool) -> str:
    if found is None:
        return ""
    between = f", {found.outer:g} GB/s between nodes" if several and found.outer != found.rate else ""
    return f"{found.count} x {found.rate:g} GB/s{between}"

"""What the rows of a metric say: which way their bytes went, what moved them, and how they were counted."""

from __future__ import annotations

import math
from typing import NamedTuple

from gpusim.calibrate.rows import Row
from gpusim.machine.peers import HOST, LINKS, PCIE


class Local(NamedTuple):
    """Bytes that moved within the device's memory."""

    reads: int
    """Streams that were read, beside ..."""
    writes: int
    """... those that were written."""
    by_driver: bool
    """A memcpy, not a kernel of the test."""
    counted: float
    """Share of the moved bytes that the value counts."""


_STREAMS = {
    "hbm_read_bw": (1, 0), "hbm_dot_bw": (2, 0), "l2_or_dram_read_bw": (1, 0),
    "hbm_write_bw": (0, 1), "hbm_memset_bw": (0, 1),
    "l2_or_dram_write_bw": (0, 1),
    "hbm_copy_bw": (1, 1), "hbm_scale_bw": (1, 1), "hbm_mul_bw": (1, 1), "hbm_copy_once_bw": (1, 1),
    "hbm_copy_2stream_bw": (1, 1), "hbm_stencil3_bw": (1, 1), "hbm_stencil5_bw": (1, 1), "l2_or_dram_scale_bw": (1, 1),
    "l2_or_dram_copy_bw": (1, 1), "queued_kernel_scale_bw": (1, 1),
    "hbm_triad_bw": (2, 1), "hbm_add_bw": (2, 1), "l2_or_dram_triad_bw": (2, 1),
}  # fmt: skip
_DRIVER = ("p2pbandwidthlatencytest", "bandwidthtest", "device_local_copy", "memcpy")
PEER = ("p2p_nvlink_bw", "p2p_nvlink_read_bw", "p2p_nvlink_write_bw")


def local(row: Row) -> Local | None:
    """What a row of a local test moved; None for other metrics."""
    streams = _STREAMS.get(row.metric)
    if streams is None:
        return None
    if row.metric == "hbm_triad_bw" and "triad = 3R" in row.method:
        streams = (3, 1)
    driver = "copy" in row.metric and any(word in row.method.lower() for word in _DRIVER)
    return Local(*streams, driver, 0.5 if row.metric == "hbm_copy_once_bw" else 1.0)


def full(row: Row) -> bool:
    """The device was full of threads, as far as the row says."""
    return float(row.params.get("occupancy_pct", 100)) >= 100


def occupancy(row: Row, processors: int) -> float:
    """Share of the threads that a device of so many multiprocessors holds; 1 where the row does not say.

    The percentage is rounded, and the count may leave out that several blocks run at once: together they say the exact share.
    """
    percent, threads = float(row.params.get("occupancy_pct", 100)), row.params.get("threads")
    if percent >= 100 or not threads:
        return percent / 100
    each = int(threads) / processors
    whole = min(_THREADS, key=lambda most: abs(math.log(each / most / percent * 100)))
    return each / whole


_THREADS = (1024, 1536, 2048)  # that a multiprocessor holds


def launch(row: Row) -> str:
    """How the kernels were launched: into a "stream", by a "graph", or one that waits between its passes."""
    return row.params.get("mode", "stream")


def way(row: Row) -> str:
    """Which way copies to another GPU went (`gpusim.machine.peers`); "" for other rows."""
    if row.metric in (*PEER, "p2p_latency_us", "p2p_nvlink_bidir_total_bw"):
        return LINKS
    if row.metric in ("p2p_pcie_bw", "p2p_pcie_bidir_total_bw"):
        return PCIE
    return HOST if row.metric in ("p2p_staged_bw", "p2p_staged_bidir_total_bw", "p2p_staged_latency_us") else ""


LOOPS = ("coop_gridsync", "persistent_atomic")
"""Modes of one kernel that goes over its bytes again and again and whose thread blocks wait for each other in between."""


def chased(row: Row) -> str:
    """Whose memory a chain of loads goes through: "device", "host" or "peer"; "" for other rows."""
    return _CHASES.get(row.metric, "")


_CHASES = {
    "load_latency_ns": "device", "l1_latency_cycles": "device", "l2_latency_cycles": "device", "hbm_latency_cycles": "device",
    "host_access_latency_ns": "host", "peer_access_latency_ns": "peer",
}  # fmt: skip


def repeated(row: Row) -> bool:
    """One kernel went over the same bytes again and again."""
    return row.metric.startswith("l2_or_dram")


def together(row: Row) -> bool:
    """The size is that of all arrays together, not of each."""
    return repeated(row) or row.method.startswith("own ")


def shared(row: Row) -> bool:
    """Every multiprocessor read all bytes, instead of a part each."""
    return "shared data set" in row.method or "same buffer" in row.method


def synchronised(row: Row) -> bool:
    """The host waited for each copy."""
    return "synchron" in row.method.lower() or row.params.get("mode") in ("sync", "synchronised")


def streams(row: Row) -> int:
    """On how many streams copies of one direction ran at once."""
    return int(row.params.get("streams", 1))


def together_with(row: Row) -> int:
    """How many GPUs of the node did what the row says, all at once."""
    if not row.metric.startswith(("host_to_all", "all_to_host")):
        return 1
    return int(row.params.get("gpus", _of_node(row) or 1))


def _of_node(row: Row) -> int | None:
    """GPUs of the machine, where its name begins like "8x H100", or "1x node, 8x H100"."""
    words = f"{row.system} {row.param}".split()
    return next((int(w[:-1]) for w in words if w.endswith("x") and w[:-1].isdigit() and w != "1x"), None)


def nanoseconds(row: Row) -> float:
    """The time of one copy or call."""
    if row.unit == "GB/s":
        counted = (sent(row) or 1.0) if row.metric.endswith("_busbw") else 1.0
        return counted * (row.size_bytes or 0) / row.value
    return row.value * {"ns": 1.0, "us": 1e3, "ms": 1e6}[row.unit]


RANKS = 8
"""Where a collective's row does not say how many GPUs took part."""


def sent(row: Row) -> float | None:
    """Bytes that one GPU sends in a collective, for each byte of its size; None for what is no collective.

    Those of a ring, or of a tree for those with a root.
    """
    ranks = _of_node(row) or RANKS
    return {
        "nccl_allreduce_time_us": 2 * (ranks - 1) / ranks,
        "nccl_allreduce_busbw": 2 * (ranks - 1) / ranks,
        "nccl_allgather_time_us": (ranks - 1) / ranks,
        "nccl_reducescatter_time_us": (ranks - 1) / ranks,
        "nccl_alltoall_time_us": (ranks - 1) / ranks,
        "nccl_broadcast_time_us": 1.0,
        "nccl_reduce_time_us": 1.0,
    }.get(row.metric)

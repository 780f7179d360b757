"""How long the program's own copies, collectives and work on the CPU take on a machine when nothing else is under way."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.machine.profile import Profile
from gpusim.trace.trace import COLLECTIVE, COPY_IN, COPY_OUT, COPY_PEER, HOST_WORK, I64, KERNEL, NVME_READ, NVME_WRITE, Trace

STAGED = ("gpusim::pageable_in", "gpusim::pageable_out")  # work of the CPU beside a copy: the driver's staging
# Calls that the host makes itself, by the bytes that are read: pinned memory is had, and given back when the device is idle.
CALLS = (ALLOCATED, FREED) = ("gpusim::host_alloc", "gpusim::host_free")


def calls(trace: Trace, names: tuple[str, ...] = CALLS) -> npt.NDArray[np.bool_]:
    """(O,) operators that are no work beside the device: the host's thread makes them before it goes on."""
    at = [trace.op_names.index(name) for name in names if name in trace.op_names]
    found: npt.NDArray[np.bool_] = np.isin(trace.op, at) & (trace.activity == HOST_WORK)
    return found


def waits(trace: Trace) -> npt.NDArray[np.bool_]:
    """(O,) those of them that wait for the device first."""
    return calls(trace, (FREED,))


def host_bytes(trace: Trace) -> I64:
    """(O,) bytes of host memory that the CPU's work reads and writes where it may meet other work: in a program of several
    streams.  0 of other operators.
    """
    works = (trace.activity == HOST_WORK) & ~calls(trace) & (trace.stream.max(initial=0) > 0)
    return np.where(works, trace.read_bytes + trace.written_bytes, 0)


def transfer_times(trace: Trace, profile: Profile) -> tuple[I64, I64]:
    """(n,) operators that are no kernels, and (n,) their times in ns.

    Bytes over a link take its start-up and its rate; GPUs without links of their own meet over that to the host.  The CPU
    works at the rate of its memory, an optimizer's step does a few operations on each number that it reads; or at that of its
    cores, where the profile has it and that is longer.  What it adds to a copy from or to memory that is not pinned (`STAGED`)
    takes so long that both, in turn, reach the profile's pageable rate.
    """
    rows = np.flatnonzero(trace.activity != KERNEL)
    link, peer, together = profile.link, profile.peer, profile.collective
    between = (peer.latency.value, peer.rate.value) if peer else (
        link.latency_queued.value, min(link.h2d.value, link.d2h.value, link.both.value / 2)
    )  # fmt: skip
    start, rate = np.zeros(len(trace.op)), np.ones(len(trace.op))
    bytes_moved = trace.read_bytes + np.where(trace.activity == HOST_WORK, trace.written_bytes, 0)
    for activity, latency, speed in (
        (COPY_IN, link.latency_queued.value, link.h2d.value),
        (COPY_OUT, link.latency_queued.value, link.d2h.value),
        (COPY_PEER, *between),
        (COLLECTIVE, *((together.latency.value, together.rate.value) if together else between)),
        (NVME_READ, profile.nvme.latency.value, profile.nvme.read.value),
        (NVME_WRITE, profile.nvme.latency.value, profile.nvme.write.value),
        (HOST_WORK, 0.0, profile.host.bandwidth.value),
    ):  # fmt: skip
        start[trace.activity == activity], rate[trace.activity == activity] = latency, speed
    for name, pageable, pinned in (
        (STAGED[0], profile.host.pageable_h2d.value, link.h2d.value),
        (STAGED[1], profile.host.pageable_d2h.value, link.d2h.value),
    ):
        if name in trace.op_names:
            staged = trace.op == trace.op_names.index(name)
            rate[staged] = 1 / max(1 / pageable - 1 / pinned, 1e-30)
    took = start + bytes_moved / rate * 1e9
    if profile.host.compute:
        took = np.maximum(took, np.where(trace.activity == HOST_WORK, trace.flops / profile.host.compute.value * 1e9, 0))
    cost = profile.allocation
    for name, call, per_gib in (
        (ALLOCATED, cost.host_alloc.value, cost.host_alloc_per_gib.value), (FREED, 0.0, cost.host_free_per_gib.value)
    ):  # fmt: skip
        if name in trace.op_names:
            at = trace.op == trace.op_names.index(name)
            took[at] = call + trace.read_bytes[at] / 2**30 * per_gib
    return rows, np.rint(took[rows]).astype(np.int64)

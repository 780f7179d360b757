"""A kernel's turn: what it needs, what its hints ask for, what faults, and what that costs."""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.studies.g10.extent_tables import (
    AHEAD,
    DEVICE,
    FAULT,
    HOST,
    NONE,
    NOWHERE,
    OUT,
    RUNNING,
    SSD,
    WAITING,
    KernelWork,
    PagedState,
)
from gpusim.studies.g10.extents import discard, wait
from gpusim.studies.g10.service import open_faults, passed_over


@kernel
def follow(M: PagedState, tensor: int, to: int) -> None:
    """Carry out one hint for all pages of the tensor that do not wait for something already; NOWHERE frees them now."""
    e = M.tensors[tensor].extent
    while e != NONE:
        x = M.extents[e]
        if x.queue == NONE:
            if to == NOWHERE:
                discard(M, e)
            elif to == DEVICE and x.where != DEVICE:
                wait(M, e, AHEAD + x.where)
            elif to != DEVICE and x.where == DEVICE:
                wait(M, e, OUT + to)
        e = x.after


@outlined
def prepare(M: PagedState, W: KernelWork, again: bool) -> None:
    """Mark what the kernel and the policy's window need, begin the search for victims anew, follow the hints (once)."""
    s = M.state[0]
    k = s.kernel
    s.launch += 1
    for i in range(W.in_start[k], W.in_start[k + 1]):
        M.tensors[W.used[i]].needed = s.launch
    for ahead in range(s.degree):
        j = (k + ahead) % s.kernels
        for i in range(W.in_start[j], W.in_start[j + 1]):
            M.tensors[W.used[i]].window = s.launch
    e = s.oldest
    while e != NONE and passed_over(M, e, False):
        e = M.extents[e].newer
    s.candidate = e
    if again:
        return
    if k == 0 and s.iteration > 0:
        for i in range(W.hint_start[s.kernels], W.hint_start[s.kernels + 1]):
            follow(M, W.hints[i, 0], W.hints[i, 1])
    for i in range(W.hint_start[k], W.hint_start[k + 1]):
        follow(M, W.hints[i, 0], W.hints[i, 1])


@kernel
def ready(M: PagedState, W: KernelWork) -> bool:
    """Is all that the kernel needs on the device, and no fault open?"""
    if open_faults(M) > 0:
        return False
    k = M.state[0].kernel
    for i in range(W.in_start[k], W.in_start[k + 1]):
        e = M.tensors[W.used[i]].extent
        while e != NONE:
            x = M.extents[e]
            if x.where != DEVICE or x.queue != NONE:
                return False
            e = x.after
    return True


@kernel
def penalty(
    W: KernelWork, k: int, total_in: int, ssd_in: int, faults_in: int, total_out: int, ssd_out: int, faults_out: int
) -> int:  # fmt: skip
    """Cycles that the study adds to a kernel for its faults: the longer of what comes from the SSD and all else.

    New pages count as bytes over PCIe.  A rate of 0 remains for all else where the SSD takes all of PCIe, or for a side without
    pages whose faults were profiled as slow.  There the study divides by zero: nothing by nothing leaves the SSD's time alone,
    and something by nothing no time at all.  Arguments: pages of its inputs, those that fault from the SSD, all that fault; and
    the same of its outputs.  Source: platformxlab/G10, `performance_model`.
    """
    pcie, ssd, far, flash, page, hertz = W.links[0], W.links[1], W.links[2], W.links[3], W.links[4], W.links[5]
    share_in = faults_in / total_in if total_in > 0 else 0.0
    share_out = faults_out / total_out if total_out > 0 else 0.0
    of_ssd_in = ssd_in / faults_in if faults_in > 0 else 0.0
    of_ssd_out = ssd_out / faults_out if faults_out > 0 else 0.0
    bytes_in, bytes_out = total_in * page, total_out * page
    rate_in, rate_out = W.rates[k, 0], W.rates[k, 1]
    flash_in = min(rate_in * far / (far + flash), ssd) if ssd_in > 0 else 0.0
    flash_out = min(rate_out * far / (far + flash), ssd) if ssd_out > 0 else 0.0
    rest = pcie - max(flash_in, flash_out)
    rate_in, rate_out = min(rate_in, rest), min(rate_out, rest)
    from_ssd = 0.0
    if ssd_in > 0:
        from_ssd += share_in * of_ssd_in * bytes_in / flash_in
    if ssd_out > 0:
        from_ssd += share_out * of_ssd_out * bytes_out / flash_out
    else_in, else_out = share_in * (1 - of_ssd_in) * bytes_in, share_out * (1 - of_ssd_out) * bytes_out
    if (rate_in == 0 and else_in == 0) or (rate_out == 0 and else_out == 0):
        others = 0.0
    elif rate_in == 0 or rate_out == 0:
        return 0
    else:
        others = else_in / rate_in + else_out / rate_out
    return int(max(from_ssd, others) / 1000.0 * hertz)


@kernel
def fault(M: PagedState, W: KernelWork) -> None:
    """What is elsewhere joins the queues of faults, inputs first; the kernel waits for that and for what is on its way."""
    s = M.state[0]
    k = s.kernel
    log = M.launches[s.iteration * s.kernels + k]
    total_in = total_out = ssd_in = ssd_out = faults_in = faults_out = 0
    s.awaited = 0
    for i in range(W.in_start[k], W.in_start[k + 1]):
        t = M.tensors[W.used[i]]
        from_ssd, faults = 0, 0
        e = t.extent
        while e != NONE:
            x = M.extents[e]
            if x.queue != NONE:
                s.awaited += x.pages
                log.on_the_way += x.pages
            elif x.where != DEVICE:
                wait(M, e, FAULT + x.where)
                s.awaited += x.pages
                faults += x.pages
                if x.where == SSD:
                    from_ssd += x.pages
                elif x.where == HOST:
                    log.from_host += x.pages
                else:
                    log.new += x.pages
            e = x.after
        log.from_ssd += from_ssd
        if i < W.out_start[k]:
            total_in, ssd_in, faults_in = total_in + t.pages, ssd_in + from_ssd, faults_in + faults
        else:
            total_out, ssd_out, faults_out = total_out + t.pages, ssd_out + from_ssd, faults_out + faults
    s.due = s.start + W.cycles[k] + penalty(W, k, total_in, ssd_in, faults_in, total_out, ssd_out, faults_out)


@outlined
def launch(M: PagedState, W: KernelWork, now: int, again: bool) -> bool:
    """The turn of kernel `s.kernel` at `now`: it runs, or faults and waits.  `again`: what it waited for has come.

    False when it does not run although it should.
    """
    s = M.state[0]
    prepare(M, W, again)
    if not again:
        s.start = now
    if not ready(M, W):
        fault(M, W)
        s.mode = WAITING
        return not again
    s.mode = RUNNING
    s.next = max(s.due, now) if again else now + W.cycles[s.kernel]
    s.seen = s.now
    log = M.launches[s.iteration * s.kernels + s.kernel]
    log.start, log.end = s.start, s.next
    log.host_used, log.device_used = s.host_used, s.device - s.free
    M.iterations[s.iteration].end = s.next
    return True

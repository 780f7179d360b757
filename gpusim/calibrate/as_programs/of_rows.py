"""A measurement row as a program for the simulator, or the reason why the engine cannot run it."""

from __future__ import annotations

from dataclasses import replace

from gpusim.calibrate import meaning
from gpusim.calibrate.as_programs import below, calls, kernels, paged, transfers
from gpusim.calibrate.as_programs.lacks import lacking
from gpusim.calibrate.as_programs.paged import Managed
from gpusim.calibrate.as_programs.row_program import Cannot, RowProgram
from gpusim.calibrate.rows import Row
from gpusim.machine.peers import LINKS
from gpusim.machine.profile import Profile


def program(row: Row, profile: Profile) -> RowProgram | Managed | Cannot:
    """The row's program."""
    metric, size = row.metric, row.size_bytes
    why = lacking(row)
    if why:
        return Cannot(why)
    if metric == "queued_kernel_scale_bw" and size:
        return kernels.looping(row, profile) if meaning.launch(row) in meaning.LOOPS else kernels.queued_kernels(row)
    if metric == "l1_or_l2_read_bw" and size:
        return kernels.in_step(row, profile)
    if at := meaning.chased(row):
        part = {"device": None, "host": profile.link, "peer": profile.peer}[at]
        known = at == "device" or (part is not None and part.load is not None)
        return kernels.chase(row, profile) if known else Cannot(f"the profile has no time of a load from the {at}'s memory")
    if metric == "fp32_fma_gflops":
        return kernels.computing(row)
    if meaning.local(row):
        return kernels.local(row, profile)
    if metric == "memcpy_sync_small_us":
        return transfers.copies(replace(row, metric="h2d_pinned_time_us", size_bytes=4, param="mode=sync"), profile)
    if metric in ("h2d_pinned_bw", "d2h_pinned_bw", "h2d_pinned_time_us", "d2h_pinned_time_us"):
        return transfers.several_streams(row) if meaning.streams(row) > 1 else transfers.copies(row, profile)
    if metric in ("h2d_pinned_bidir_bw", "d2h_pinned_bidir_bw"):
        return transfers.both_ways(row)
    if size and metric.startswith(("managed_", "um_")):
        return paged.managed(row, profile)
    if metric in ("h2d_pageable_bw", "d2h_pageable_bw") and size:
        return below.pageable(row)
    if size and ("_sm_" in metric or metric.startswith("zero_copy")):
        return below.in_place(row, profile)
    if size and metric.startswith(("host_to_all", "all_to_host")):
        alone = replace(row, metric=metric.replace("host_to_all", "h2d_pinned").replace("all_to_host", "d2h_pinned"))
        return below.among(row, profile, transfers.both_ways(alone) if "bidir" in metric else transfers.copies(alone, profile))
    if way := meaning.way(row):
        return transfers.peer(row, profile) if profile.peer or way != LINKS else Cannot("the profile has no links between GPUs")
    if meaning.sent(row) and size:
        return transfers.collective(row, profile)
    if metric in ("local_copy_latency_us", "null_kernel_us"):
        return kernels.tiny(row)
    if metric == "elementwise_bw" and size:
        return kernels.elementwise(row)
    if metric == "gemm_gflops":
        return kernels.product(row)
    if metric in ("cudamalloc_us", "cudafree_us"):
        return calls.calls(row)
    if metric == "cudamallocasync_us":
        return calls.pool(row)
    return Cannot("the engine has nothing of this kind")

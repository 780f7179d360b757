"""What reality does that the model does not, for series that it misses."""

from __future__ import annotations

from gpusim.calibrate import meaning
from gpusim.calibrate.compare.score import FITTED, Series
from gpusim.calibrate.fit.fitting import ALL, SOME
from gpusim.calibrate.meaning import PEER, local
from gpusim.calibrate.rows import Row
from gpusim.machine.profile import Profile
from gpusim.machine.quantity import Quantity

MEDIAN, P90 = 0.05, 0.15
"""Errors above these are misses."""
_SMALL = 1 << 22  # bytes


def _of_link(series: Series, profile: Profile) -> str:
    """Why queued copies of pinned memory go at another rate."""
    both = [getattr(profile.link, name).source.startswith((SOME, ALL)) for name in ("h2d", "d2h")]
    if sum(both) == 1:
        return "the directions of this host differ, and only one was fitted"
    if series.part == FITTED:
        return "copies of one size on one host differ between runs and programs; the profile has one rate"
    return "hosts differ: the profile's link is that of another one"


def _of_tests(row: Row) -> str:
    """Of loads, loops and few threads."""
    if row.unit == "cycles":
        return "papers and gpu-latency count the cycles of one chip differently"
    if meaning.chased(row):
        return "where the levels end, and what lies between them, is taken from other GPUs of the generation"
    if row.metric.startswith("l1_or_l2"):
        return "what L1 gives, and where it ends, is taken from other GPUs of the generation"
    if meaning.launch(row) in meaning.LOOPS:
        return "what it costs that thread blocks wait for each other is taken from an A40, by the latency of L2"
    if not meaning.full(row):
        return "with few threads the rate of memory falls less, or more, sharply than one form says"
    return ""


def effect(series: Series, profile: Profile) -> str:
    """Why the series is missed on this profile, in a few words; "" when it is not."""
    if not series.points or (series.median <= MEDIAN and series.p90 <= P90):
        return ""
    row = series.points[0].row
    moved = local(row)
    small = any((p.row.size_bytes or 0) < _SMALL for p in series.points)
    if row.metric.startswith("nccl") and profile.peer is None:
        return "without links between GPUs the driver decides whether they meet directly or in the host's memory"
    if row.metric.startswith("nccl"):
        if row.metric.startswith("nccl_alltoall"):
            return "an all-to-all starts as many transfers as there are peers; the engine starts one"
        return "a collective changes its protocol with the size; the engine has one start-up and one rate"
    if said := _of_tests(row):
        return said
    if row.metric.startswith(("l2_or_dram", "queued_kernel")) and not profile.memory.copy_curve:
        return "L2: the profile has no curve of it, so that a rule by generation decides"
    if meaning.shared(row):
        return "between L2 and memory a few per cent of size decide, and where they part is taken from other machines"
    if row.metric.startswith("l2_or_dram"):
        return "waves: a loop inside one kernel has no ramp at its ends, unlike the single kernels that the curve is from"
    if row.metric == "queued_kernel_scale_bw":
        return "between L2 and memory a few per cent of size decide, and tests disagree where"
    if row.metric == "fp32_fma_gflops":
        return "how much of the shorter of computing and reading is hidden differs between chips, and so do their clocks"
    if "_sm_" in row.metric:
        if "bidir" in row.metric or "all_" in row.metric:
            return "kernels on host memory share link and host otherwise than copies; the profile has one limit for both"
        return "kernels on host memory: machines of this kind differ"
    if "pageable" in row.metric:
        number: Quantity = getattr(profile.host, f"pageable_{row.metric[:3]}")
        known = "so do sizes and runs" if number.basis == "measured" else "the profile's rate is an estimate"
        return f"the host's processor stages pageable copies: hosts differ, and {known}"
    if row.metric in ("h2d_pinned_bw", "d2h_pinned_bw", "h2d_pinned_time_us", "d2h_pinned_time_us", "memcpy_sync_small_us"):
        if meaning.synchronised(row):
            return "what the host's wait for a copy costs differs with the size"
        return _of_link(series, profile)
    if row.metric.endswith(("pinned_bidir_bw", "to_all_bidir_bw", "to_host_bidir_bw")):
        return "the directions lose unequally when both are busy; link.both has their sum"
    if row.metric.startswith(("p2p_staged", "p2p_pcie")):
        return "GPUs on one socket and on two meet at different rates; the profile has one of each kind"
    if row.metric == "p2p_latency_us":
        return "the way from one peer to another differs, and two machines of this kind do; the profile has one latency"
    if row.metric in PEER:
        return "reads, writes and test programs differ; the profile has one rate to a peer"
    if row.metric == "local_copy_latency_us":
        return "a copy's start differs from that of an empty kernel"
    if row.metric.startswith("cuda"):
        return "calls for memory differ more between machines and drivers than between sizes"
    if moved and moved.by_driver:
        if small:
            return "small copies: the driver's copy has a start of its own, above launch.gap, and the rows scatter"
        return "two machines of this kind differ"
    if moved and moved.reads and moved.writes and moved.reads != moved.writes:
        return "more reads than writes: loads in flight per thread decide, which bytes do not tell"
    if row.metric.startswith(("managed_", "um_")):
        return "the driver serves faults and prefetches, and its costs differ between drivers, hosts and patterns of access"
    if moved or row.metric in ("elementwise_bw", "null_kernel_us"):
        return "kernels that move the same bytes differ by their loads in flight"
    return "the rows do not tell"

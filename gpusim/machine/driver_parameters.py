"""Module parameters of nvidia-uvm: the driver's names, defaults and limits (release 595.45.04).

The model obeys those that say where they stand in the tables' STATE; the others decide nothing that is modelled, and a run that
sets one says so.  A value outside of the limits gives the default, or the nearest limit where the driver clamps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.base.errors import GpusimError, suggest

LARGEST = 2**31 - 1
WITHOUT_EFFECT = ""

BLOCK_BYTES = 2 << 20  # of a va_block, the unit in which the driver manages memory
BIG_PAGE = 65536



class UvmError(GpusimError):
    """A program or a setting that unified memory cannot run."""


@dataclass(frozen=True)
class Parameter:
    default: int | str
    low: int
    high: int
    field: str  # where it stands in the tables' STATE; WITHOUT_EFFECT
    about: str
    lapses: bool = False  # counted in lapses of uvm_perf_thrashing_lapse_usec
    clamps: bool = False  # outside of its limits the driver takes the nearest of them
    words: tuple[str, ...] = ()  # what it may be, if not a number

    @property
    def obeyed(self) -> bool:
        return self.field != WITHOUT_EFFECT


def _idle(default: int, low: int, high: int, about: str, *, clamps: bool = False) -> Parameter:
    return Parameter(default, low, high, WITHOUT_EFFECT, about, clamps=clamps)


def _word(default: str, words: tuple[str, ...], about: str) -> Parameter:
    return Parameter(default, 0, 0, WITHOUT_EFFECT, about, words=words)


PARAMETERS = {
    "uvm_perf_prefetch_enable": Parameter(1, 0, 1, "prefetch_enable", "without it the faulted pages alone move"),
    "uvm_perf_prefetch_threshold": Parameter(51, 0, 100, "threshold", "percent of a node's pages above which all of it moves"),
    "uvm_perf_prefetch_min_faults": Parameter(1, 1, 20, "min_faults", "faults of a block before anything is prefetched"),
    # Faults of a GPU
    "uvm_perf_fault_batch_count": Parameter(256, 1, 8192, "batch_count", "the most faults that are fetched at once",
                                            clamps=True),
    "uvm_perf_fault_replay_policy": Parameter(2, 0, 3, "replay_policy", "0 block, 1 batch, 2 batch and flush, 3 when empty"),
    "uvm_perf_fault_max_batches_per_service": Parameter(20, 1, LARGEST, "max_batches", "batches of one bottom half"),
    "uvm_perf_fault_max_throttle_per_service": Parameter(5, 1, LARGEST, "max_throttled", "of them throttled until it yields"),
    "uvm_perf_fault_replay_update_put_ratio": Parameter(50, 0, 100, "put_ratio",
                                                        "percent of duplicates above which a flush drops what came meanwhile"),
    "uvm_perf_fault_coalesce": _idle(1, 0, 1, "merge equal faults while fetching; here they are merged in any case"),
    "uvm_perf_reenable_prefetch_faults_lapse_msec": _idle(1000, 0, LARGEST, "how long faults of prefetch instructions are off"),
    "uvm_fault_force_sysmem": Parameter(0, 0, 1, "force_sysmem", "what faults stays in, or goes to, host memory"),
    # Memory of a GPU
    "uvm_global_oversubscription": Parameter(1, 0, 1, "oversubscription", "may GPU memory be evicted?"),
    "uvm_perf_pma_batch_nonpinned_order": _idle(6, 0, 31, "root chunks that are asked for at once, as a power of two"),
    "uvm_perf_map_remote_on_eviction": Parameter(1, 0, 1, "map_evicted",
                                                 "map evicted pages for remote access where access counters bring them back"),
    # Thrashing
    "uvm_perf_thrashing_enable": Parameter(1, 0, 1, "thrash_enable", "find pages that processors take from each other"),
    "uvm_perf_thrashing_threshold": Parameter(3, 1, 7, "thrash_threshold", "events until a page thrashes"),
    "uvm_perf_thrashing_pin_threshold": Parameter(10, 1, 15, "pin_threshold", "throttles until a page is pinned"),
    "uvm_perf_thrashing_lapse_usec": Parameter(500, 5, 500_000, "lapse", "events closer than this count"),
    "uvm_perf_thrashing_nap": Parameter(1, 1, 100, "nap", "how long a throttled processor waits", lapses=True),
    "uvm_perf_thrashing_epoch": Parameter(2000, 1, LARGEST, "epoch", "a block so long quiet is forgotten", lapses=True),
    "uvm_perf_thrashing_pin": Parameter(300, 0, LARGEST, "pin", "how long a page stays pinned; 0: for ever", lapses=True),
    "uvm_perf_thrashing_max_resets": Parameter(4, 0, LARGEST, "max_resets", "how often a block is forgotten"),
    "uvm_perf_lapse_vote_threshold": Parameter(32, 1, LARGEST, "lapse_votes", "long intervals until the lapse is lowered"),
    # Access counters, remote mappings, explicit migration
    "uvm_perf_access_counter_migration_enable": Parameter(-1, -1, 1, "counters",
                                                          "migrate what is accessed remotely; -1: where there is ATS"),
    "uvm_perf_access_counter_threshold": Parameter(256, 1, 65535, "counter_threshold",
                                                   "accesses until a counter notifies", clamps=True),
    "uvm_perf_access_counter_batch_count": Parameter(256, 1, 8192, "counter_batch",
                                                     "notifications that are fetched at once", clamps=True),
    "uvm_perf_map_remote_on_native_atomics_fault": _idle(0, 0, 1, "leave what atomics fault on, where the link has them"),
    "uvm_perf_migrate_cpu_preunmap_enable": _idle(1, 0, 1, "unmap from the CPU in groups before a prefetch"),
    "uvm_perf_migrate_cpu_preunmap_block_order": _idle(2, 0, 10, "blocks of such a group, as a power of two"),
    # Host memory
    "uvm_cpu_chunk_allocation_sizes": Parameter(2_162_688, 4096, LARGEST, "host_chunks", "sizes of host memory, as a mask"),
    "uvm_disable_hmm": Parameter(0, 0, 1, "hmm_off", "no malloc'ed memory on the GPU by HMM"),
    "uvm_ats_mode": Parameter(1, 0, 1, "ats_mode", "use the CPU's page tables where the machine can"),
    "uvm_enable_va_space_mm": _idle(1, 0, 1, "tie an address space to its process; without it neither ATS nor HMM"),
    "uvm_exp_gpu_cache_sysmem": _idle(0, 0, 1, "let the GPU cache host memory"),
    "uvm_exp_gpu_cache_peermem": _idle(0, 0, 1, "let the GPU cache a peer's memory"),
    "uvm_block_cpu_to_cpu_copy_with_ce": _idle(0, 0, 1, "copies between host nodes by a GPU's copy engine"),
    "uvm_downgrade_force_membar_sys": _idle(1, 0, 1, "the wide memory barrier when a mapping loses permission"),
    # Channels and page tables
    "uvm_page_table_location": _word("vid", ("vid", "sys"), "where page tables lie"),
    "uvm_peer_copy": _word("phys", ("phys", "virt"), "addresses of copies between GPUs"),
    "uvm_channel_num_gpfifo_entries": _idle(1024, 32, 1 << 20, "pushes that a channel holds"),
    "uvm_channel_gpfifo_loc": _word("auto", ("auto", "sys", "vid"), "where they lie"),
    "uvm_channel_gpput_loc": _word("auto", ("auto", "sys", "vid"), "where their put pointer lies"),
    "uvm_channel_pushbuffer_loc": _word("auto", ("auto", "sys", "vid"), "where commands lie"),
    "uvm_conf_computing_channel_iv_rotation_limit": _idle(1 << 31, 1, 0xFFFFFFFE, "encrypted messages until a key is renewed"),
    # For the driver's authors
    "uvm_debug_prints": _idle(0, 0, 1, "debug messages"),
    "uvm_enable_builtin_tests": _idle(0, 0, 1, "the driver's own tests"),
    "uvm_enable_debug_procfs": _idle(0, 0, 1, "debug files below /proc"),
    "uvm_leak_checker": _idle(0, 0, 2, "watch the driver's own memory"),
    "uvm_release_asserts": _idle(1, 0, 1, "assertions in release builds"),
    "uvm_release_asserts_dump_stack": _idle(0, 0, 1, "a stack trace when one fails"),
    "uvm_release_asserts_set_global_error": _idle(0, 0, 1, "the driver stops when one fails"),
    "uvm_debug_enable_push_desc": _idle(0, 0, 1, "remember what each push is for"),
    "uvm_debug_enable_push_acquire_info": _idle(0, 0, 1, "remember what each push waits for"),
}  # fmt: skip


def resolve(given: Mapping[str, int | str]) -> tuple[dict[str, int], list[str]]:
    """All parameters that are obeyed, and what there is to tell: fallbacks of the driver, and values without effect."""
    values = {name: int(p.default) for name, p in PARAMETERS.items() if p.obeyed}
    told = []
    for name, value in given.items():
        if name not in PARAMETERS:
            raise UvmError(f"unknown module parameter {name!r}", hint=suggest(name, PARAMETERS))
        p = PARAMETERS[name]
        taken = taken_for(p, name, value)
        if str(taken) != str(value):
            wrong = f"is none of {', '.join(p.words)}" if p.words else f"is outside of {p.low}..{p.high}"
            which = "its default" if taken == p.default else "the limit"
            told.append(f"{name}={value} {wrong}: the driver takes {which}, {taken}")
        if p.obeyed:
            values[name] = int(taken)
        elif taken != p.default:
            told.append(f"{name} is without effect here: {p.about}")
    return values, told


def taken_for(p: Parameter, name: str, value: int | str) -> int | str:
    """What the driver makes of a value.  Raises UvmError for what no module would load with."""
    if p.words:
        return value if value in p.words else p.default
    try:
        value = int(value)
    except ValueError:
        raise UvmError(f"module parameter {name} is {value!r}, not a whole number") from None
    if p.low <= value <= p.high:
        return value
    return min(max(value, p.low), p.high) if p.clamps else p.default

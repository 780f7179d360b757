"""What a run records: every metric's unit and meaning, declared here once.

The engine fills the names, which are the columns of `summary.csv`; `gpusim metrics` prints the table, figures take their axis
labels from here, and `gpusim compare` which direction is better.  A name that is not declared here is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from gpusim.base.errors import ResultError, suggest

LOWER, HIGHER, NEITHER = "lower", "higher", ""
TIE = 0.01  # two numbers within 1 % are a tie

# Units at the end of a name, which its label leaves out.
_SUFFIXES = ("_ns", "_bytes", "_per_s")
# What a trace must answer for the numbers of a group to mean something, and for some that are apart.
_NEEDS: dict[str, tuple[str, ...]] = {
    "time": ("times",), "tenants": ("times",), "stalls": ("times",),
    "transfers": ("accesses",), "unified memory": ("accesses",),
    "memory": ("allocator",), "fragmentation": ("allocator",), "bounds": ("allocator",),
}  # fmt: skip
_NEEDS_OF: dict[str, tuple[str, ...]] = {
    "kernels": (), "events": (), "collective_wait_ns": (), "recorded_collective_wait_ns": (),
    "duration_error": ("flops",), "bound_swap_in_bytes": ("accesses",),
    **dict.fromkeys(("bound_no_limit_ns", "bound_oracle_ns", "bound_best_plan_ns"), ("times",)),
}  # fmt: skip
_LABELS = {  # where the name without its unit says too little
    "touched_per_s": "throughput", "batch_ns": "time per batch", "all_ended_ns": "time until all ended",
}  # fmt: skip


@dataclass(frozen=True)
class Metric:
    """One number of a result.

    unit     "ns", "B", "1/s", "1" (a share or ratio; not in percent), or "" (a count)
    meaning  one sentence
    better   "lower", "higher", or "" when neither is
    group    the heading under which `gpusim metrics` lists it
    """

    name: str
    unit: str
    meaning: str
    better: str
    group: str

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """What a trace must answer (gpusim.trace.answers) for the number to mean something."""
        asked = _NEEDS_OF.get(self.name, _NEEDS[self.group])
        timed = self.name.endswith(("_ns", "_per_s", "_busy_share")) or self.name.startswith("prefetch")
        return (*asked, "times") if timed and "times" not in asked else asked

    @property
    def label(self) -> str:
        """The name for people, without its unit: "stall swap in"."""
        name = _LABELS.get(self.name, self.name)
        for suffix in _SUFFIXES:
            name = name.removesuffix(suffix)
        return name.replace("_", " ")

    @property
    def header(self) -> str:
        """The label with its unit, of an axis: "stall swap in [ns]"; a count has none."""
        return f"{self.label} [{self.unit}]" if self.unit else self.label


def _declare(group: str, *rows: tuple[str, str, str, str]) -> dict[str, Metric]:
    return {name: Metric(name, unit, meaning, better, group) for name, unit, better, meaning in rows}


def _levels(name: str, what: str) -> tuple[tuple[str, str, str, str], ...]:
    """current, peak and total, as PyTorch and RMM use the words."""
    return (
        (f"{name}_current_bytes", "B", NEITHER, f"{what}, when the run ended."),
        (f"{name}_peak_bytes", "B", LOWER, f"{what}, at most at any moment."),
        (f"{name}_total_bytes", "B", NEITHER, f"{what}, summed over every time that some were taken."),
    )


def _tier(name: str, what: str) -> tuple[tuple[str, str, str, str], ...]:
    """Swaps of one kind of memory below the device's; the host's peak is there in any run."""
    rows = (
        (f"{name}_in_bytes", "B", LOWER, f"Swapped in from {what}, as it crosses the links."),
        (f"{name}_out_bytes", "B", LOWER, f"Swapped out to {what}, as it crosses the links."),
        (f"{name}_peak_bytes", "B", LOWER, f"Bytes of swapped-out tensors in {what}, at most at any moment."),
    )
    return rows[:2] if name == "host" else rows


METRICS: dict[str, Metric] = {
    **_declare(
        "time",
        ("makespan_ns", "ns", LOWER, "From the first issue to the end of the last kernel, copy or host call."),
        ("batch_ns", "ns", LOWER,
         "Makespan over the batches, of the size that the program has, that all ranks together did: layouts differ in these."),
        ("compute_busy_ns", "ns", NEITHER,
         "Kernel time, summed over streams; under unified memory without the stalls inside kernels."),
        ("sharing_ns", "ns", LOWER,
         "By how much kernels took longer than alone, summed over streams: they shared multiprocessors or the bandwidth of the "
         "GPU's memory, or read and wrote below it."),
        ("compute_idle_share", "1", LOWER, "Share of the makespan in which the average stream with kernels ran none."),
        ("slowdown", "1", LOWER, "Makespan over the makespan of the same run without a memory limit."),
        ("over_oracle", "1", LOWER,
         "Makespan over that of the same run with oracle eviction (belady), a reference and no bound: below 1 is possible, "
         "since evicting the farthest next use is optimal only for misses of equal size."),
        ("over_best_plan", "1", LOWER,
         "Makespan over that of the same run under the best plan that a limited search found: a reference and no bound."),
        ("kernels", "", NEITHER, "Kernels that were submitted."),
        ("events", "", NEITHER, "Events of the trace that were carried out."),
        ("kernel_recorded_share", "1", NEITHER, "Share of the kernel time that the trace itself recorded."),
        ("kernel_scaled_share", "1", NEITHER, "Share of the kernel time recorded on another GPU and scaled to this one."),
        ("kernel_measured_share", "1", NEITHER, "Share of the kernel time modelled from such kernels on this GPU."),
        ("kernel_family_share", "1", NEITHER, "Share of the kernel time modelled from such kernels on a GPU of its family."),
        ("kernel_class_share", "1", NEITHER,
         "Share of the kernel time modelled from such kernels on other GPUs, at rates measured on this one."),
        ("kernel_default_share", "1", NEITHER,
         "Share of the kernel time modelled from the vendor's numbers, or from kernels of another class or type."),
        ("device_ns", "ns", LOWER,
         "From the first start to the last end of the program's operators on the device, where a recording has these."),
        ("recorded_device_ns", "ns", NEITHER, "The same in the recording."),
        ("recorded_ns", "ns", NEITHER,
         "From the first to the last event of the recording, when it carries their times and those of kernels."),
        ("duration_error", "1", LOWER,
         "Median relative error of modelled kernel times against the trace's own, when it carries times."),
    ),
    **_declare(
        "tenants",
        ("sharing_slowdown", "1", LOWER,
         "While all programs on the GPU run: what the program does in a time alone on the whole GPU, over what it does here."),
        ("others_slowdown", "1", LOWER, "The same of the programs beside it, their mean."),
        ("neighbour_cost", "1", LOWER, "Makespan over that with the same part of the GPU and no other program."),
        ("fairness", "1", HIGHER, "Jain's index of what programs do in a time over that alone: 1 where all lose alike."),
        ("work_per_gpu", "1", HIGHER,
         "What all programs do in a time, each over what it does alone, for each GPU that they take."),
        ("lost_to_fault_ns", "ns", LOWER, "Work that the program does again because one beside it had a fatal fault."),
        ("all_ended_ns", "ns", LOWER, "Until the last of the programs has ended."),
        ("step_p50_ns", "ns", LOWER, "From one step of the program to the next, such as a token: the median."),
        ("step_p99_ns", "ns", LOWER, "The same: the 99th percentile."),
        ("switches", "", NEITHER, "How often the multiprocessors passed from one program to another by time slices."),
        ("switch_ns", "ns", LOWER, "What these took, in which no kernel ran."),
        ("programs_swapped", "", LOWER, "How often a program's memory left the GPU, or came back, for another's turn."),
        ("programs_swapped_bytes", "B", LOWER, "Bytes of it, both ways."),
        ("others_swapped_bytes", "B", LOWER, "Bytes of tensors of the programs beside that were swapped, both ways."),
        ("unusable_bytes", "B", LOWER, "Memory of the GPU that no tensor can have: contexts, and what no MIG slice has."),
    ),
    **_declare(
        "stalls",
        ("stall_ns", "ns", LOWER, "Time that streams with kernels stood still: the sum of the causes below."),
        ("stall_swap_in_ns", "ns", LOWER, "Streams waited for tensors that were swapped in."),
        ("stall_swap_out_ns", "ns", LOWER, "Streams waited for tensors that were swapped out, so that others had room."),
        ("stall_fault_ns", "ns", LOWER, "Kernels waited for the driver to serve page faults, and for its throttling."),
        ("stall_migration_ns", "ns", LOWER, "Kernels waited for copies of pages, when the driver's work on them was done."),
        ("stall_remote_ns", "ns", LOWER, "Kernels waited for remote accesses under unified memory, beyond their own work."),
        ("stall_explicit_ns", "ns", LOWER, "Kernels waited for pages that the program itself moved (cudaMemPrefetchAsync)."),
        ("stall_host_ns", "ns", LOWER,
         "Kernels waited for the CPU: its accesses to managed memory with their page faults, and hints to the driver."),
        ("stall_alloc_ns", "ns", LOWER, "Streams waited for the host, which was busy in the allocator."),
        ("stall_launch_ns", "ns", LOWER, "Streams waited for the host to submit the kernel."),
        ("stall_sync_ns", "ns", LOWER, "Streams waited for the host, which waited for the device."),
        ("stall_event_ns", "ns", LOWER, "Streams waited for other streams."),
        ("stall_copy_engine_ns", "ns", LOWER, "Streams waited for the turn of their copies in a copy engine."),
        ("stall_sms_ns", "ns", LOWER, "Kernels lacked nothing but multiprocessors, which other kernels had."),
    ),
    **_declare(
        "transfers",
        ("h2d_bytes", "B", LOWER,
         "Moved to device memory by swaps, from the host's or another tier, as it crosses the link, or by migration of pages."),
        ("d2h_bytes", "B", LOWER,
         "Moved from device memory by swaps, to the host's or another tier, as it crosses the link, or by migration of pages."),
        *_tier("host", "host memory"),
        *_tier("nvme", "the disk"),
        *_tier("peer", "other GPUs' memory"),
        *_tier("cxl", "CXL memory"),
        *_tier("remote", "other hosts' memory"),
        ("program_h2d_bytes", "B", NEITHER, "Copied from host to device memory by the program itself."),
        ("program_d2h_bytes", "B", NEITHER, "Copied from device to host memory by the program itself."),
        ("collective_bytes", "B", NEITHER, "Sent to other GPUs by the program's collectives and copies."),
        ("collective_wait_ns", "ns", LOWER, "Time for which the program's collectives waited for other ranks."),
        ("recorded_collective_wait_ns", "ns", NEITHER,
         "The same in the recording of a rank: what its collectives took longer than on the rank that came last."),
        ("nvme_read_bytes", "B", NEITHER, "Read from disk by the program itself."),
        ("nvme_written_bytes", "B", NEITHER, "Written to disk by the program itself."),
        ("program_transfer_ns", "ns", LOWER, "Time of the program's own copies, collectives and disk accesses, added up."),
        ("program_copies_shared", "", NEITHER,
         "Copies of the program that began while another went the same way: they shared the link."),
        ("host_work_ns", "ns", LOWER, "Time of the program's work on the CPU, its page faults among it, added up."),
        ("h2d_busy_share", "1", NEITHER,
         "Link utilisation to the device: bytes over (the link's rate x makespan); remote_bytes are in neither direction."),
        ("d2h_busy_share", "1", NEITHER,
         "Link utilisation to the host: bytes over (the link's rate x makespan); remote_bytes are in neither direction."),
        ("swap_ins", "", LOWER, "Copies from host to device memory."),
        ("swap_outs", "", LOWER, "Copies from device to host memory."),
        ("recalls", "", LOWER, "Units that had to leave another device's memory because that needed it."),
        ("recall_bytes", "B", LOWER, "Copied from other devices' memory to a tier below because the lender needed it."),
        ("recall_wait_ns", "ns", LOWER, "The host waited until others had left its device's memory."),
        ("lent_peak_bytes", "B", NEITHER, "What others had of the device's memory, at most."),
        ("clean_drops", "", NEITHER, "Evictions without a copy: a valid copy was below, or there was no data yet."),
        ("swaps_per_s", "1/s", LOWER, "Copies in both directions per second of makespan."),
        ("prefetches", "", NEITHER, "Swap-ins that a prefetch policy or a plan asked for."),
        ("prefetch_hits", "", HIGHER, "Prefetched tensors that a kernel used while they were there."),
        ("prefetch_late", "", LOWER, "Prefetch hits that had not arrived when the kernel was submitted."),
        ("prefetch_wasted", "", LOWER, "Prefetched tensors that were evicted or freed before any use."),
        ("prefetch_promoted", "", NEITHER,
         "Prefetches that had not started when a kernel asked for the tensor, and then took their turn among such copies."),
        ("prefetch_cancelled", "", NEITHER,
         "Prefetches that had not started when the tensor was evicted or freed: nothing was moved."),
        ("zero_copy_read_bytes", "B", NEITHER, "Read below the device by kernels themselves, of tensors that stay there."),
        ("zero_copy_written_bytes", "B", NEITHER, "Written below the device by kernels themselves."),
        ("release_evictions", "", NEITHER,
         "Evictions that the release policy, or a lower limit, asked for before the room was needed."),
        ("release_bytes", "B", NEITHER, "Bytes of blocks that these gave back."),
        ("plan_evictions", "", NEITHER, "Evictions by the plan."),
        ("plan_prefetches", "", NEITHER, "Tensors that the plan brought in."),
        ("plan_skipped", "", LOWER,
         "Actions of the plan without effect: the tensor was in use, elsewhere or gone, or had no room."),
    ),
    **_declare(
        "unified memory",
        ("gpu_faults", "", LOWER, "Pages that GPUs faulted on, each counted once per batch."),
        ("cpu_faults", "", LOWER, "Pages that the CPU faulted on."),
        ("fault_batches", "", LOWER, "Batches of GPU faults that the driver served."),
        ("faults_per_batch", "", NEITHER, "Faults that a batch fetched on average, duplicates among them."),
        ("fault_duplicates", "", LOWER, "Fetched faults whose page another fault of the batch had named."),
        ("faults_satisfied", "", LOWER, "Fetched faults whose page had come before their batch was served."),
        ("faults_dropped", "", LOWER, "Faults that a flush of the buffer threw away; they came again after the replay."),
        ("fault_replays", "", LOWER, "Times that the GPU was told to try again."),
        ("throttles", "", LOWER, "Faults that had to wait, as processors took pages from each other."),
        ("pins", "", NEITHER, "Pages pinned where they were, as processors kept taking them from each other."),
        ("demanded_bytes", "B", LOWER, "Copied to GPUs because of a fault on the page itself."),
        ("prefetched_bytes", "B", NEITHER, "Copied to GPUs beside faulted pages, by the driver's prefetcher."),
        ("explicit_bytes", "B", NEITHER, "Copied to GPUs because the program asked for it (cudaMemPrefetchAsync)."),
        ("counter_bytes", "B", NEITHER, "Copied to GPUs because their access counters asked for it."),
        ("wasted_bytes", "B", LOWER, "Prefetched, and gone again before any use."),
        ("evicted_bytes", "B", LOWER, "Copied from GPUs to make room."),
        ("evicted_clean_bytes", "B", LOWER, "Of these, not written since they had come."),
        ("refetched_bytes", "B", LOWER, "Brought to GPUs again after an eviction."),
        ("remote_bytes", "B", LOWER, "Read or written by kernels where it was, over the link."),
        ("touched_bytes", "B", NEITHER, "Read or written by kernels, wherever it was."),
        ("evictions", "", LOWER, "Times that a chunk of 2 MiB was taken to make room."),
        ("fault_service_ns", "ns", LOWER, "Time in which the driver served faults of GPUs and CPU, copies among it."),
        ("fault_copy_ns", "ns", LOWER, "Time of the copies to and from GPUs, evictions and explicit ones among them."),
        ("resident_peak_bytes", "B", LOWER, "Managed pages in GPU memory, at most between two steps of the program."),
        ("chunks_peak_bytes", "B", LOWER, "GPU memory that the driver held in chunks of 2 MiB, at most between two steps."),
        ("host_resident_peak_bytes", "B", LOWER, "Managed pages in host memory, at most between two steps of the program."),
        ("touched_per_s", "1/s", HIGHER, "Bytes that kernels touch per second of makespan."),
    ),
    **_declare(
        "memory",
        *_levels("requested", "Bytes of the tensors in device memory, as the program asked for them"),
        *_levels("allocated", "Bytes of the blocks in device memory that hold tensors"),
        *_levels("reserved", "Bytes that the allocator held from the device"),
        ("host_peak_bytes", "B", LOWER, "Host memory that held swapped-out tensors, at most at any moment."),
        ("device_allocs", "", LOWER, "Calls that took memory from the device."),
        ("device_frees", "", LOWER, "Calls that gave memory back to the device."),
        ("defrags", "", NEITHER, "Times that the defrag policy had the memory rearranged."),
        ("moved_bytes", "B", LOWER, "Bytes copied within the device's memory to slide blocks together."),
        ("ooms", "", LOWER, "Requests for which there was no room, with nothing left to evict."),
    ),
    **_declare(
        "fragmentation",
        ("frag_internal", "1", LOWER, "1 - requested / allocated, at the allocated peak: what rounding loses."),
        ("frag_utilisation", "1", HIGHER, "Requested peak over reserved peak; papers call 1 - this fragmentation."),
        ("frag_external", "1", LOWER, "1 - largest free block / free bytes of what is held, averaged over the run."),
        ("frag_failures", "", LOWER, "Requests that found enough free bytes, but not in one piece."),
        ("avoidable_share", "1", LOWER,
         "Share of the reserved peak that is above a static plan of the whole program (bound_plan_bytes): better placement "
         "avoids it.  Where something was evicted, the share above the requested peak: no placement avoids more."),
    ),
    **_declare(
        "bounds",
        ("bound_no_limit_ns", "ns", NEITHER, "Makespan of the same run without a memory limit."),
        ("bound_oracle_ns", "ns", NEITHER,
         "Makespan of the same run with oracle eviction (belady): a reference; it bounds misses of equal sizes, not time."),
        ("bound_best_plan_ns", "ns", NEITHER, "Makespan of the same run under the best plan that a limited search found."),
        ("bound_swap_in_bytes", "B", NEITHER, "The least that any eviction policy must bring in at this memory size."),
        ("bound_live_bytes", "B", NEITHER, "Most bytes alive at once, to 512 each: without eviction no allocator holds less."),
        ("bound_plan_bytes", "B", NEITHER,
         "What fixed addresses take that are planned with the whole program known, without eviction: the lowest found by "
         "greedy orders and a short exact search; see gpusim offsets."),
    ),
}  # fmt: skip


def evicted(numbers: Mapping[str, int | float]) -> bool:
    """Whether something left the memory while it was still needed."""
    return bool(numbers.get("swap_outs") or numbers.get("clean_drops"))


def avoidable(numbers: Mapping[str, int | float]) -> float:
    """avoidable_share from the metrics and bounds of a finished run."""
    held = numbers["reserved_peak_bytes"]
    # What was evicted is not held, while a plan holds all: then only what was there is known to need room.
    planned = numbers.get("bound_plan_bytes", numbers["bound_live_bytes"])
    least = numbers["requested_peak_bytes"] if evicted(numbers) else planned
    return max(0.0, 1 - least / held) if held else 0.0


def same(a: float, b: float) -> bool:
    """True when two numbers are a tie."""
    return abs(a - b) <= TIE * max(abs(a), abs(b))


def metric(name: str) -> Metric:
    """The declaration of a metric; ResultError with a suggestion when there is none."""
    if name not in METRICS:
        raise ResultError(f"there is no metric '{name}'", hint=suggest(name, METRICS) or "see gpusim metrics")
    return METRICS[name]


def refuse_unknown(names: Iterable[str]) -> None:
    """Raise ResultError for the first name that is not declared."""
    for name in set(names) - METRICS.keys():
        metric(name)


def in_order(names: Iterable[str]) -> list[str]:
    """Known names in the order of their declaration, which is the order of every table."""
    wanted = set(names)
    refuse_unknown(sorted(wanted))
    return [name for name in METRICS if name in wanted]

"""Where the time of a run went: kernels and stalls by cause, which together are its makespan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.base.text import join
from gpusim.results.result import Result
from gpusim.show.interval import interval
from gpusim.show.view import human, least_makespan, ratio, run_name, value

# From work to what waits for it: metric, words.
PARTS = {
    "compute_busy_ns": "kernels run",
    "stall_swap_in_ns": "waiting for swap-in",
    "stall_swap_out_ns": "waiting for swap-out",
    "stall_fault_ns": "serving page faults",
    "stall_migration_ns": "waiting for migration",
    "stall_remote_ns": "on remote accesses",
    "stall_explicit_ns": "on its own prefetches",
    "stall_host_ns": "waiting for the CPU",
    "stall_alloc_ns": "in the allocator",
    "stall_launch_ns": "on launches",
    "stall_sync_ns": "waiting for the host",
    "stall_event_ns": "waiting for streams",
    "stall_sms_ns": "waiting for multiprocessors",
    "stall_copy_engine_ns": "for a copy engine",
}
IDLE = "idle"


@dataclass(frozen=True)
class Breakdown:
    """One run.

    parts     words -> ns, in the order of PARTS and IDLE; they sum to the makespan
    total     the makespan, ns
    interval  its p10 and p90 over sampled machines, ns
    no_limit  with memory for everything, ns
    bound     no eviction policy is faster, ns
    """

    parts: dict[str, float]
    total: float
    interval: tuple[float, float] | None
    no_limit: float | None
    bound: float | None


def breakdown(run: Result) -> Breakdown:
    """The parts of a run that finished.

    Kernel time and stalls are sums over streams: they are scaled to the makespan when they exceed it.
    """
    makespan = float(run.metrics.get("makespan_ns", 0))
    parts = {words: float(run.metrics.get(name, 0)) for name, words in PARTS.items()}
    total = sum(parts.values())
    if total > makespan > 0:
        parts = {words: width * makespan / total for words, width in parts.items()}
    parts[IDLE] = max(0.0, makespan - total)
    bars = interval([run], "makespan_ns")
    return Breakdown(parts, makespan, bars, value(run, "bound_no_limit_ns"), least_makespan(run))


def answer(shown: Sequence[Result], keys: Sequence[str]) -> str:
    """The largest stalls of the slowest run, beside others with what their kernels take longer, and the share of kernels in the
    fastest."""
    finished = sorted((r for r in shown if r.finished), key=lambda r: r.metrics.get("makespan_ns", 0))
    if not finished:
        return "No run finished."
    slow, fast = finished[-1], finished[0]
    busy = ratio(value(fast, "compute_busy_ns"), value(fast, "makespan_ns"))
    slower = slow.metrics.get("compute_busy_ns", 0) - fast.metrics.get("compute_busy_ns", 0)
    others = [(slower, "in slower kernels")] if slow.beside and slow.spec["trace"] == fast.spec["trace"] else []
    stalls = sorted([*others, *((slow.metrics.get(name, 0), label) for name, label in [*PARTS.items()][1:])], reverse=True)
    sentences = []
    if busy is not None:
        subject = f"In the fastest run, {run_name(fast, keys)}, kernels run" if len(finished) > 1 else "Kernels run"
        sentences.append(f"{subject} {100 * min(busy, 1):.0f} % of the time.")
    if stalls and stalls[0][0] > 0:
        subject = f"The slowest, {run_name(slow, keys)}, loses" if len(finished) > 1 else "It loses"
        lost = [f"{human('stall_ns', width)} {label}" for width, label in stalls[:2] if width > 0]
        sentences.append(f"{subject} {join(lost)}.")
    return " ".join(sentences)

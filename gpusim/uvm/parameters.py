"""Module parameters of nvidia-uvm that the model obeys: the driver's names, defaults and limits (release 595.45.04)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.errors import GpusimError, suggest

LARGEST = 2**31 - 1


class UvmError(GpusimError):
    """A program or a setting that unified memory cannot run."""


@dataclass(frozen=True)
class Parameter:
    default: int
    low: int
    high: int
    field: str  # where it stands in the tables' STATE
    about: str
    lapses: bool = False  # counted in lapses of uvm_perf_thrashing_lapse_usec


PARAMETERS = {
    "uvm_perf_prefetch_enable": Parameter(1, 0, 1, "prefetch_enable", "without it the faulted pages alone move"),
    "uvm_perf_prefetch_threshold": Parameter(51, 0, 100, "threshold", "percent of a node's pages above which all of it moves"),
    "uvm_perf_prefetch_min_faults": Parameter(1, 1, 20, "min_faults", "faults of a block before anything is prefetched"),
    "uvm_perf_fault_batch_count": Parameter(256, 1, 8192, "batch_count", "the most faults that are fetched at once"),
    "uvm_perf_fault_replay_policy": Parameter(2, 0, 3, "replay_policy", "0 block, 1 batch, 2 batch and flush, 3 when empty"),
    "uvm_perf_fault_max_batches_per_service": Parameter(20, 1, LARGEST, "max_batches", "batches of one bottom half"),
    "uvm_perf_fault_max_throttle_per_service": Parameter(5, 1, LARGEST, "max_throttled", "of them throttled until it yields"),
    "uvm_fault_force_sysmem": Parameter(0, 0, 1, "force_sysmem", "what faults stays in, or goes to, host memory"),
    "uvm_global_oversubscription": Parameter(1, 0, 1, "oversubscription", "may GPU memory be evicted?"),
    "uvm_perf_thrashing_enable": Parameter(1, 0, 1, "thrash_enable", "find pages that processors take from each other"),
    "uvm_perf_thrashing_threshold": Parameter(3, 1, 7, "thrash_threshold", "events until a page thrashes"),
    "uvm_perf_thrashing_pin_threshold": Parameter(10, 1, 15, "pin_threshold", "throttles until a page is pinned"),
    "uvm_perf_thrashing_lapse_usec": Parameter(500, 5, 500_000, "lapse", "events closer than this count"),
    "uvm_perf_thrashing_nap": Parameter(1, 1, 100, "nap", "how long a throttled processor waits", lapses=True),
    "uvm_perf_thrashing_epoch": Parameter(2000, 1, LARGEST, "epoch", "a block so long quiet is forgotten", lapses=True),
    "uvm_perf_thrashing_pin": Parameter(300, 0, LARGEST, "pin", "how long a page stays pinned; 0: for ever", lapses=True),
    "uvm_perf_thrashing_max_resets": Parameter(4, 0, LARGEST, "max_resets", "how often a block is forgotten"),
}  # fmt: skip


def resolve(given: Mapping[str, int]) -> tuple[dict[str, int], list[str]]:
    """All parameters, and what there is to tell: a value out of its range falls back to the default, as in the driver."""
    values, told = {name: p.default for name, p in PARAMETERS.items()}, []
    for name, value in given.items():
        if name not in PARAMETERS:
            raise UvmError(f"unknown module parameter {name!r}", hint=suggest(name, PARAMETERS))
        p = PARAMETERS[name]
        if p.low <= value <= p.high:
            values[name] = value
        else:
            told.append(f"{name}={value} is outside of {p.low}..{p.high}: the driver takes its default, {p.default}")
    return values, told

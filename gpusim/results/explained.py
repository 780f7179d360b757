"""What `gpusim metrics NAME` says beside a metric's meaning: how it follows from others, its parts, where to read on.

Only what always holds stands here: each formula and each sum is checked against results of both engines.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.results.metrics import METRICS, metric

# Name -> from which other metrics and bounds of the same run it is computed.
FORMULAS = {
    "slowdown": "makespan_ns / bound_no_limit_ns",
    "over_oracle": "makespan_ns / bound_oracle_ns",
    "over_best_plan": "makespan_ns / bound_best_plan_ns",
    "kernel_default_share": "1 - kernel_recorded_share - kernel_scaled_share - kernel_measured_share - kernel_family_share"
    " - kernel_class_share",
    "swaps_per_s": "(swap_ins + swap_outs) / (makespan_ns / 1e9)",
    "faults_per_batch": "(gpu_faults + fault_duplicates + faults_satisfied) / fault_batches",
    "touched_per_s": "touched_bytes / (makespan_ns / 1e9)",
    "frag_utilisation": "requested_peak_bytes / reserved_peak_bytes",
}
# Name -> the metrics that add up to it, with the runs in which they do; a part that a run has not is 0.
_TIERS = ("host", "nvme", "peer", "cxl", "remote")
PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "stall_ns": {"": tuple(name for name in METRICS if name.startswith("stall_") and name != "stall_ns")},
    "h2d_bytes": {
        "over tiers": tuple(f"{tier}_in_bytes" for tier in _TIERS),
        "under unified memory": ("demanded_bytes", "prefetched_bytes", "explicit_bytes", "counter_bytes"),
    },
    "d2h_bytes": {"over tiers": tuple(f"{tier}_out_bytes" for tier in _TIERS)},
    "prefetches": {"of a run that finished": ("prefetch_hits", "prefetch_wasted", "prefetch_cancelled")},
}
# Group -> the page that says more.
PAGES = {
    "time": "docs/design.md", "stalls": "docs/design.md", "transfers": "docs/tiers.md",
    "unified memory": "docs/unified_memory.md", "memory": "docs/policies.md", "fragmentation": "docs/oom.md",
    "bounds": "docs/design.md", "tenants": "docs/tenants.md",
}  # fmt: skip


@dataclass(frozen=True)
class Explained:
    """All that is known of one metric.

    formula  from which other metrics it is computed; "" for one that is counted or measured while the program runs
    parts    in which runs ("" for all) which metrics add up to it
    part_of  the metrics of which it is a part
    page     the page of the documentation that says more
    """

    name: str
    unit: str
    meaning: str
    better: str
    group: str
    needs: tuple[str, ...]
    formula: str
    parts: dict[str, tuple[str, ...]]
    part_of: tuple[str, ...]
    page: str


def explain(name: str) -> Explained:
    """The metric of this name.  Raises ResultError with a suggestion when there is none."""
    m = metric(name)
    whole = tuple(w for w, parts in PARTS.items() if any(name in names for names in parts.values()))
    return Explained(
        m.name, m.unit, m.meaning, m.better, m.group, m.needs, FORMULAS.get(name, ""), PARTS.get(name, {}), whole,
        PAGES[m.group],
    )  # fmt: skip

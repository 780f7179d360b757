"""Names that results had before, and what they are called now: folders of earlier versions are read with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Columns of timeline.npz, which had no unit.
TIMELINE = {name: f"{name}_bytes" for name in ("allocated", "reserved", "requested", "host")}
# Metrics of unified memory in result.json, which had the names of others until they had their own.
UNIFIED = {
    "allocated_peak_bytes": "resident_peak_bytes", "reserved_peak_bytes": "chunks_peak_bytes",
    "host_peak_bytes": "host_resident_peak_bytes", "stall_sync_ns": "stall_host_ns",
}  # fmt: skip
# How sure kernel times were, before their basis had five names.
BASIS = {"kernel_fitted_share": "kernel_measured_share", "kernel_estimated_share": "kernel_default_share"}
# Policies (kind, name), in results, experiments and on the command line.
POLICIES = {
    ("place", "device"): "cuda_malloc", ("place", "rmm_fixed"): "rmm_fixed_size", ("place", "size_classes"): "slab",
    ("release", "recall"): "finite_context",
}  # fmt: skip


def spec(found: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a result with its policies under the names of today."""
    return {key: policy(key, value) if isinstance(value, str) else value for key, value in found.items()}


def policy(kind: str, text: str) -> str:
    """A policy as results name it, "recall(ahead=8)", under the name of today."""
    name, bracket, rest = text.partition("(")
    return POLICIES.get((kind, name), name) + bracket + rest


def metrics(of: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a result with the spec `of` under the names of today."""
    return renamed(found, BASIS | (UNIFIED if "unified" in of and "chunks_peak_bytes" not in found else {}))


def renamed(table: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The table under the names of today, in its order."""
    return {names.get(name, name): value for name, value in table.items()}

"""Unified memory as NVIDIA's driver manages it, page by page: faults, batches, the density prefetcher, chunks, eviction, hints.

The rules are those of the open kernel modules, release 595.45.04 (kernel-open/nvidia-uvm), read from the source; what the
source does not have (what a fault costs, how a GPU fills its fault buffer) are constants of a platform (`platforms.py`).

    experiment ─settings, advice─▶ run.simulate_unified ─▶ a managed program (text, or tensors of a recorded trace) ─▶
    kernels' access patterns ─pattern─▶ page touches of warps ─frontend─▶ fault buffer ─batch─▶ service ─▶ residency, costs
"""

"""Policies of gpu_ext, written as a user's policies of pages: `gpusim run ... --use policies.py`, `driver(prefetch=...)`.

Rules are those of eunomia-bpf/gpu_ext @3f4cc2d, extension/*.bpf.c.  The authors tell processes apart by pid; here the process
of high priority has the first `arrays` allocations.
"""

from __future__ import annotations

from gpusim.policies import decorators as policy


@policy.prefetch
def prefetch_pid_tree(present, pages, array, arrays=1, high=20.0, low=80.0):  # type: ignore[no-untyped-def]
    """The driver's tree with a threshold for each process: a region comes when more than so many percent of it are there.

    Source: prefetch_pid_tree.bpf.c, uvm_prefetch_on_tree_iter
    """
    return present * 100.0 > pages * (high if array < arrays else low)


@policy.prefetch
def prefetch_always_max(pages):  # type: ignore[no-untyped-def]
    """The whole block comes with each fault.

    Source: prefetch_always_max.bpf.c
    """
    return pages


@policy.evict
def eviction_freq_pid_decay(last_use, arrived, array, now, arrays=1):  # type: ignore[no-untyped-def]
    """Chunks of the first process go to the end of the list at each service; those of the other keep the order of their coming.

    There every tenth service of the other's chunks counts, and they have fewer before they leave.

    Source: eviction_freq_pid_decay.bpf.c, uvm_pmm_chunk_used, with the parameters (1, 10)
    """
    return (last_use if array < arrays else arrived) + 0.0 * now

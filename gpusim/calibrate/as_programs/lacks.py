"""What the engine cannot run, and why."""

from __future__ import annotations

from gpusim.calibrate import meaning
from gpusim.calibrate.rows import Row

# Beginnings of metrics -> what the engine lacks; the first that fits.
_LACKS = (
    (("shared_latency", "tlb_latency"), "multiprocessors have no shared memory, and addresses no tables"),
    (("all_to_one", "one_to_all"), "one GPU is simulated: what several send to one of them is not"),
    (("p2p_mixed",), "peers that meet over several kinds of links at once"),
    (("cumem", "vmm_"), "calls for virtual memory are not among the host's costs"),
    (("cudahostalloc", "cudafreehost"), "host memory is not allocated in a run"),
    (("hbm_copy_2stream",), "kernels of several streams do not share the device's memory"),
    (("gdr_", "cpu_bar1", "rdma", "cxl", "host_copy", "host_triad", "host_numa", "mpi_"),
     "the host's own loads and the network are not simulated"),
    (("gpucopy:",), "the GPU is not named"),
)  # fmt: skip
def lacking(row: Row) -> str:
    """What the row would need, "" where nothing is known to be missing."""
    known = {"queued_kernel_scale_bw": ("stream", "graph", *meaning.LOOPS), "null_kernel_us": ("stream", "graph")}
    if meaning.launch(row) not in known.get(row.metric, (meaning.launch(row),)):
        return f"the engine has no launches of the kind '{meaning.launch(row)}'"
    if row.metric.startswith("nccl") and row.params.get("nodes", "1") != "1":
        return "collectives among several nodes: the profile has one"
    if row.metric.endswith("_bw") and not row.size_bytes and "pinned" in row.metric:
        return "the row does not say its size"
    return next((why for beginnings, why in _LACKS if row.metric.startswith(beginnings)), "")

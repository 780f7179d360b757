"""What the engine cannot run, and why."""

from __future__ import annotations

from gpusim.calibrate import meaning
from gpusim.calibrate.rows import Row

# Beginnings of metrics -> what the engine lacks; the first that fits.
_LACKS = (
    (("load_latency", "l1_latency", "l2_latency", "hbm_latency", "shared_latency", "host_access", "peer_access"),
     "no single loads: a kernel is its bytes and flops"),
    (("l1_or_l2",), "no L1 cache and no multiprocessors"),
    (("all_to_one", "one_to_all"), "one GPU is simulated: what several send to one of them is not"),
    (("p2p_nvlink_bidir", "p2p_pcie_bidir", "p2p_mixed_bidir", "p2p_staged_bidir"),
     "one GPU is simulated: what comes from its peer is not"),
    (("p2p_staged",), "a copy to a peer by way of the host takes two links in turn"),
    (("p2p_pcie", "p2p_mixed"), "peers over PCIe share switches that the profile does not have"),
    (("cumem", "vmm_"), "calls for virtual memory are not among the host's costs"),
    (("cudahostalloc", "cudafreehost"), "host memory is not allocated in a run"),
    (("hbm_copy_2stream",), "kernels of several streams do not share the device's memory"),
    (("nccl_allreduce_busbw",), "the number of GPUs that share a collective's rate is not in the profile"),
    (("gdr_", "cpu_bar1", "rdma", "cxl", "host_copy", "host_triad", "host_numa", "mpi_"),
     "the host's own loads and the network are not simulated"),
    (("gpucopy:",), "the GPU is not named"),
)  # fmt: skip
_MODES = {
    "coop_gridsync": "no kernels that wait for all of their threads",
    "persistent_atomic": "no kernels that go on for ever",
}


def lacking(row: Row) -> str:
    """What the row would need, "" where nothing is known to be missing."""
    if row.metric in ("queued_kernel_scale_bw", "null_kernel_us") and meaning.launch(row) not in ("stream", "graph"):
        return _MODES.get(meaning.launch(row), "the engine has no such launches")
    if not meaning.full(row):
        return "no occupancy: a kernel has the device to itself"
    if row.metric.endswith("_bw") and not row.size_bytes and "pinned" in row.metric:
        return "the row does not say its size"
    return next((why for beginnings, why in _LACKS if row.metric.startswith(beginnings)), "")

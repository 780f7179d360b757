"""The profile that stands for each published machine: the catalogue's, with the numbers that the case states."""

from __future__ import annotations

from gpusim.base.errors import GpusimError, suggest
from gpusim.calibrate.offload.cases import OffloadCase

# GPUs without a profile of their own are those of their generation, with their own memory and peak: TITAN RTX and RTX 2080 by
# gist.github.com/sagnitude/c32a204dc698639e1ef54ad260f53449, fp32 of an RTX 4070 Ti SUPER by
# huggingface.co/hardware/rtx-4070-ti-super; its memory, RTX 3090 Ti and RTX 5060 Ti by the vendor's specification from memory.
# Rates are the same shares of nominal as of the profile that they vary.
_GPUS = {
    "T4": "t4",
    "V100-SXM3-32GB": "v100-sxm2-32gb",
    "V100-32GB": "v100-sxm2-32gb",
    "RTX A6000": "rtx-a6000",
    "GH200-96GB": "gh200-96gb",
    "A100": "a100-sxm4-80gb",
    "H100-SXM-80GB": "h100-sxm-80gb",
    "TITAN RTX": "rtx-2080-ti(memory.capacity=48 GiB, memory.bandwidth=672 GB/s, memory.read=625 GB/s, memory.copy=596 GB/s)",
    "RTX 2080": "rtx-2080-ti(memory.capacity=8 GiB, memory.bandwidth=448 GB/s, memory.read=416 GB/s, memory.write=416 GB/s, "
    "memory.copy=397 GB/s, memory.copy_engine=326 GB/s)",
    "RTX 3090 Ti": "rtx-3090(memory.bandwidth=1008 GB/s, memory.read=986 GB/s, memory.copy=949 GB/s)",
    "RTX 5060 Ti": "rtx-5070-ti(memory.bandwidth=448 GB/s, memory.read=438 GB/s, memory.write=438 GB/s, memory.copy=421 GB/s, "
    "memory.copy_engine=346 GB/s)",
    "RTX 4070 Ti SUPER": "rtx-4090(memory.capacity=16 GiB, gpu.peak.fp32=44.1 TFLOP/s, gpu.peak.fp16=88 TFLOP/s, "
    "memory.bandwidth=672 GB/s, memory.read=657 GB/s, memory.write=657 GB/s, memory.copy=633 GB/s, "
    "memory.copy_engine=519 GB/s)",
}  # fmt: skip

# What a case states of its host.  The CPU reaches 71 % of what its memory's channels could do, as on the catalogue's hosts.  A
# DGX-2 has eight disks of 3.2 GB/s (its data sheet, from memory); the rate of the cloud's SSDs is unstated and stays the
# catalogue's.
_HOSTS = {
    "208 GB, GCP": "host.capacity=208 GB",
    "208 GB, 1.5 TB of SSD, GCP": "host.capacity=208 GB",
    "DGX-2, 1.5 TB": "host.capacity=1500 GB",
    "DGX-2, 1.5 TB, 30 TB of NVMe": "host.capacity=1500 GB, nvme.capacity=30 TB, nvme.read=25.6 GB/s",
    "Lambda workstation, 252 GB": "host.capacity=252 GB",
    "32 GB": "host.capacity=32 GB",
    "256 GB, 20 threads": "host.capacity=256 GB",
    "i9-10900X, four channels of DDR4, 102 GB/s": "host.bandwidth=73 GB/s",
    "i7-8700, two channels of DDR4-2666": "host.bandwidth=30 GB/s",
    "Ryzen 5600, DDR4": "host.bandwidth=36 GB/s",
    "Grace": "",
    "cudaHostAlloc of about 3 ms": "allocation.host_alloc=3 ms, allocation.host_alloc_per_gib=0 ms",
    "unstated": "",
}


def machine(case: OffloadCase) -> str:
    """The profile of a case as text.  Raises GpusimError for a GPU or a host that none stands for."""
    for what, given, known in (("GPU", case.gpu, _GPUS), ("host", case.host, _HOSTS)):
        if given not in known:
            raise GpusimError(f"no profile stands for the {what} '{given}' of case '{case.name}'", hint=suggest(given, known))
    gpu, host = _GPUS[case.gpu], _HOSTS[case.host]
    if not host:
        return gpu
    return f"{gpu[:-1]}, {host})" if gpu.endswith(")") else f"{gpu}({host})"

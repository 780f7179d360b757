"""Which GPU is measured, and when that is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.measure.cuda import Cuda, CudaError, NoGpu
from gpusim.calibrate.measure.nvml import Nvml

LEAST = 256 << 20
"""Bytes of free device memory without which nothing is measured."""
NAMES = {
    "H100 80GB HBM3": "H100-SXM-80GB", "H100 PCIe": "H100-PCIE-80GB", "H200": "H200-SXM", "B200": "B200-SXM",
    "A100 80GB PCIe": "A100-PCIE-80GB", "GH200 480GB": "GH200-96GB",
}  # fmt: skip
"""The driver's name -> as rows of other sources say it; other names only lose their spaces."""


@dataclass(frozen=True)
class Card:
    """One device as found, before anything is started on it."""

    ordinal: int
    name: str
    capability: int
    bus: str
    handle: Any
    """NVML's, or None."""
    trouble: str
    """Why it should not be measured, or ""."""
    meets: str = ""
    """Where its way to the GPU under test leads over PCIe, where that is known."""


def row_name(name: str) -> str:
    """How rows call a GPU of this driver's name."""
    plain = name.removeprefix("NVIDIA ").removeprefix("GeForce ").removeprefix("Tesla ").removesuffix(" GPU").strip()
    return NAMES.get(plain, "-".join(plain.split()))


def cards(cuda: Cuda, nvml: Nvml | None) -> list[Card]:
    """All devices.  Raises NoGpu when there is none."""
    try:
        cuda.cuInit(0)
        count = int(cuda.cuDeviceGetCount())
    except CudaError as error:
        if "NO_DEVICE" in error.message:
            count = 0
        else:
            raise
    if not count:
        raise NoGpu("there is an NVIDIA driver but no GPU for this process", hint="see CUDA_VISIBLE_DEVICES")
    return [_card(cuda, nvml, i) for i in range(count)]


def choose(found: list[Card], ordinal: int, force: bool) -> Card:
    """The device to measure.  Raises MeasurementError if there is none of that number or it is in no state to be measured."""
    if not 0 <= ordinal < len(found):
        numbers = "0" if len(found) == 1 else f"0 to {len(found) - 1}"
        raise MeasurementError(f"there is no GPU {ordinal}; there is {numbers}")
    card = found[ordinal]
    if card.trouble and not force:
        raise MeasurementError(f"GPU {ordinal} ({card.name}) {card.trouble}", hint="--force measures all the same")
    return card


def room(free: int, shared: bool) -> int:
    """Bytes that tests may take of so many free ones: less on a GPU that is shared.  Raises when too few are free."""
    if free < LEAST:
        raise MeasurementError(f"the GPU has {free >> 20} MiB of free memory; {LEAST >> 20} MiB are needed")
    return free // 2 if shared else free - free // 8


def way(cuda: Cuda, a: int, b: int) -> str:
    """How two GPUs meet: nvlink, pcie, or staged (through the host)."""
    one, two = cuda.cuDeviceGet(a), cuda.cuDeviceGet(b)
    if not int(cuda.cuDeviceCanAccessPeer(one, two)):
        return "staged"
    native = cuda.api.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
    return "nvlink" if int(cuda.cuDeviceGetP2PAttribute(native, one, two)) else "pcie"


def _card(cuda: Cuda, nvml: Nvml | None, ordinal: int) -> Card:
    device = cuda.cuDeviceGet(ordinal)
    name = cuda.cuDeviceGetName(128, device).split(b"\0")[0].decode()
    bus = cuda.cuDeviceGetPCIBusId(32, device).split(b"\0")[0].decode()
    major, minor = (cuda.attribute(device, f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
    handle = nvml.handle(bus) if nvml else None
    return Card(ordinal, name, 10 * major + minor, bus, handle, _trouble(nvml, handle, name))


def _trouble(nvml: Nvml | None, handle: Any, name: str) -> str:
    """Asked before a context of our own exists: in a container our own process appears under a number of the host's."""
    if " MIG " in f" {name} ":
        return "is a MIG slice: what is measured would be a share of the card"
    if nvml is None or handle is None:
        return ""
    mode = nvml.get("nvmlDeviceGetMigMode", handle)
    if mode and mode[0]:
        return "is divided by MIG: what is measured would be a share of the card"
    busy = nvml.get("nvmlDeviceGetComputeRunningProcesses", handle) or []
    if busy:
        pids = ", ".join(str(p.pid) for p in busy[:4])
        return f"is in use by another process ({pids}): both would disturb each other"
    use = nvml.get("nvmlDeviceGetUtilizationRates", handle)
    if use is not None and use.gpu > 20:
        return f"is {use.gpu} % busy with other work"
    return ""

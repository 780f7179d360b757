"""The CUDA driver API and NVRTC through cuda-bindings: found, matched with the driver, every call checked."""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable
from typing import Any

from gpusim.base.errors import MeasurementError


class CudaError(MeasurementError):
    """A driver call that failed; its name, as CUDA_ERROR_OUT_OF_MEMORY, is in the message."""


class NoGpu(MeasurementError):
    """This machine has no GPU; its host and disk can be measured by their groups."""


class Cuda:
    """`cuda.cuMemAlloc(n)` calls the driver, raises CudaError when it fails, and returns what it returns besides the status."""

    def __init__(self, api: Any, nvrtc: Any) -> None:
        self.api = api
        self.nvrtc = nvrtc

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raw = getattr(self.nvrtc if name.startswith("nvrtc") else self.api, name)

        def call(*args: Any) -> Any:
            status, *values = raw(*args)
            if int(status):
                raise CudaError(f"{name} failed: {self.error_name(status)}")
            return values[0] if len(values) == 1 else tuple(values)

        setattr(self, name, call)
        return call

    def error_name(self, status: Any) -> str:
        """CUDA's own name of an error."""
        if type(status).__name__ == "nvrtcResult":
            return str(getattr(status, "name", status))
        _, name = self.api.cuGetErrorName(status)
        return name.decode() if name else f"error {int(status)}"

    def attribute(self, device: Any, name: str) -> int:
        """A device attribute, as "L2_CACHE_SIZE"."""
        return int(self.cuDeviceGetAttribute(getattr(self.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device))


def driver_version() -> int | None:
    """CUDA's version of the installed driver (12040 for 12.4), asked without any package; None without a driver."""
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        version = ctypes.c_int(0)
        if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
            return version.value
    return None


def packages(version: int) -> str:
    """What to install for a driver of this version."""
    if version >= 13000:
        return "pip install 'cuda-bindings>=13' 'nvidia-cuda-nvrtc>=13' nvidia-ml-py"
    return "pip install 'cuda-bindings>=12.8,<13' 'nvidia-cuda-nvrtc-cu12>=12.8' nvidia-ml-py"


def load(version: int | None = None) -> Cuda:
    """The driver API.  Raises MeasurementError without driver or packages, or where these do not fit the driver."""
    version = driver_version() if version is None else version
    if version is None:
        raise NoGpu("there is no NVIDIA driver on this machine, so no GPU can be measured")
    name = f"the driver is of CUDA {version // 1000}.{version % 1000 // 10}"
    if version < 12000:
        raise MeasurementError(f"{name}, older than CUDA 12, which is needed", hint="update the driver")
    try:
        api = importlib.import_module("cuda.bindings.driver")
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
    except ImportError:
        raise MeasurementError(f"{name}, but cuda-bindings is not installed", hint=packages(version)) from None
    cuda = Cuda(api, nvrtc)
    # Read when the driver starts.  A kernel that is loaded at its first launch would wait for the spin kernel it queues behind.
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    try:
        major, _ = cuda.nvrtcVersion()
    except (MeasurementError, RuntimeError) as error:  # cuda-pathfinder raises RuntimeErrors of its own
        why = str(error).splitlines()[0] if isinstance(error, MeasurementError) else "it is not installed"
        raise MeasurementError(f"{name}, but NVRTC cannot be loaded: {why}", hint=packages(version)) from None
    if major > version // 1000:
        raise MeasurementError(f"{name}, but the installed packages are of CUDA {major}", hint=packages(version))
    return cuda

"""NVML through nvidia-ml-py: what it knows of a device; questions that a device does not answer are left out."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


class Nvml:
    """`nvml.get("nvmlDeviceGetVbiosVersion", handle)` is the answer, or None."""

    def __init__(self, api: Any) -> None:
        self.api = api
        api.nvmlInit()

    def get(self, name: str, *args: Any) -> Any:
        try:
            answer = getattr(self.api, name)(*args)
        except (AttributeError, self.api.NVMLError):
            return None
        return answer.decode() if isinstance(answer, bytes) else answer

    def handle(self, bus: str) -> Any:
        """The device at a PCI address: NVML may count devices in another order than CUDA."""
        return self.get("nvmlDeviceGetHandleByPciBusId", bus.encode())


def load() -> Nvml | None:
    """None where nvidia-ml-py is not installed or there is no driver."""
    try:
        api = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        return Nvml(api)
    except api.NVMLError:
        return None


def identity(nvml: Nvml, handle: Any) -> dict[str, Any]:
    """What does not change while one measures."""
    ecc = nvml.get("nvmlDeviceGetEccMode", handle)
    limit = nvml.get("nvmlDeviceGetPowerManagementLimit", handle)
    return _known(
        {
            "driver": nvml.get("nvmlSystemGetDriverVersion"),
            "vbios": nvml.get("nvmlDeviceGetVbiosVersion", handle),
            "uuid": nvml.get("nvmlDeviceGetUUID", handle),
            "ecc": bool(ecc[0]) if ecc else None,
            "persistence": _flag(nvml.get("nvmlDeviceGetPersistenceMode", handle)),
            "power_limit_w": limit / 1000 if limit else None,
            "sm_clock_max_mhz": _clock(nvml, handle, "Max", "SM"),
            "memory_clock_max_mhz": _clock(nvml, handle, "Max", "MEM"),
            "pcie_max_gen": nvml.get("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            "pcie_max_width": nvml.get("nvmlDeviceGetMaxPcieLinkWidth", handle),
        }
    )


def state(nvml: Nvml, handle: Any) -> dict[str, Any]:
    """What does: clocks, power, temperature, the PCIe link (which idles at a lower generation), reasons for lower clocks."""
    power = nvml.get("nvmlDeviceGetPowerUsage", handle)
    ask: Callable[[str], Any] = lambda name: nvml.get(name, handle)  # noqa: E731
    return _known(
        {
            "sm_clock_mhz": _clock(nvml, handle, "", "SM"),
            "memory_clock_mhz": _clock(nvml, handle, "", "MEM"),
            "power_w": power / 1000 if power else None,
            "temperature_c": nvml.get("nvmlDeviceGetTemperature", handle, getattr(nvml.api, "NVML_TEMPERATURE_GPU", 0)),
            "pcie_gen": ask("nvmlDeviceGetCurrPcieLinkGeneration"),
            "pcie_width": ask("nvmlDeviceGetCurrPcieLinkWidth"),
            "clock_limits": ask("nvmlDeviceGetCurrentClocksThrottleReasons"),
        }
    )


LEVELS = {0: "board", 10: "switch", 20: "switches", 30: "host bridge", 40: "NUMA node", 50: "sockets"}
"""NVML's number of where the PCIe ways of two devices meet -> its name."""


def level(nvml: Nvml, a: Any, b: Any) -> str:
    """Where the PCIe ways of two devices meet, or ""."""
    return LEVELS.get(nvml.get("nvmlDeviceGetTopologyCommonAncestor", a, b), "")


def _clock(nvml: Nvml, handle: Any, which: str, domain: str) -> Any:
    code = getattr(nvml.api, f"NVML_CLOCK_{domain}", None)
    return None if code is None else nvml.get(f"nvmlDeviceGet{which}ClockInfo", handle, code)


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _known(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if value is not None}

"""The machine around the GPU, as far as Linux tells it: for the `system` of rows and for the conditions."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import Any

from gpusim.calibrate.measure.bench import nodes


def facts(folder: Path) -> dict[str, Any]:
    """Processor, memory, kernel, board, disk."""
    found: dict[str, Any] = {
        "cpu": _cpu(),
        "load_average": os.getloadavg()[0],
        "cpus": len(os.sched_getaffinity(0)),
        "numa_nodes": {str(node): len(cpus) for node, cpus in nodes().items()},
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "board": " ".join(filter(None, (_line(f"/sys/class/dmi/id/{part}") for part in ("sys_vendor", "product_name")))),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "disk": _disk(folder),
    }
    return {key: value for key, value in found.items() if value}


def name(found: dict[str, Any]) -> str:
    """The machine in one line."""
    return ", ".join(filter(None, (found.get("board"), found.get("cpu"), f"{found['cpus']} CPUs")))


def near(bus: str) -> set[int]:
    """The CPUs next to the device at a PCI address; all that may be used where that is not known."""
    text = _line(f"/sys/bus/pci/devices/{bus.lower()[-12:]}/numa_node")
    node = int(text) if text.lstrip("-").isdigit() else -1
    return nodes().get(node, os.sched_getaffinity(0))


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _disk(folder: Path) -> dict[str, Any]:
    """The block device and file system under a folder."""
    number = os.stat(folder).st_dev
    where = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    found: dict[str, Any] = {"free_bytes": shutil.disk_usage(folder).free}
    if where.exists():
        device = where.resolve()
        device = device.parent if (device / "partition").exists() else device
        found |= {"device": device.name, "model": _line(device / "device/model")}
    best = ""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        if str(folder.resolve()).startswith(mount) and len(mount) > len(best):
            best, found["file_system"] = mount, kind
    return {key: value for key, value in found.items() if value}


def _line(path: Path | str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""

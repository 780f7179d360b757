"""What nvbandwidth prints (github.com/NVIDIA/nvbandwidth, v0.2 to v0.8), as JSON (-j) or as text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.rows import Row, unit_of

_BUFFER = 512 * 2**20
"""Bytes of each copy unless --bufferSize says otherwise, which the output does not repeat."""

# Test -> (metric, whether rows and columns of its matrix are both GPUs)
METRICS = {
    "host_to_device_memcpy_ce": ("h2d_pinned_bw", False),
    "device_to_host_memcpy_ce": ("d2h_pinned_bw", False),
    "host_to_device_bidirectional_memcpy_ce": ("h2d_pinned_bidir_bw", False),
    "device_to_host_bidirectional_memcpy_ce": ("d2h_pinned_bidir_bw", False),
    "host_to_device_memcpy_sm": ("h2d_sm_copy_bw", False),
    "device_to_host_memcpy_sm": ("d2h_sm_copy_bw", False),
    "host_to_device_bidirectional_memcpy_sm": ("h2d_sm_bidir_bw", False),
    "device_to_host_bidirectional_memcpy_sm": ("d2h_sm_bidir_bw", False),
    "all_to_host_memcpy_ce": ("all_to_host_bw", False),
    "host_to_all_memcpy_ce": ("host_to_all_bw", False),
    "all_to_host_bidirectional_memcpy_ce": ("all_to_host_bidir_bw", False),
    "host_to_all_bidirectional_memcpy_ce": ("host_to_all_bidir_bw", False),
    "all_to_host_memcpy_sm": ("all_to_host_sm_bw", False),
    "host_to_all_memcpy_sm": ("host_to_all_sm_bw", False),
    "all_to_host_bidirectional_memcpy_sm": ("all_to_host_sm_bidir_bw", False),
    "host_to_all_bidirectional_memcpy_sm": ("host_to_all_sm_bidir_bw", False),
    "device_to_device_memcpy_read_ce": ("p2p_nvlink_read_bw", True),
    "device_to_device_memcpy_write_ce": ("p2p_nvlink_bw", True),
    "device_local_copy": ("hbm_copy_once_bw", False),
    "host_device_latency_sm": ("host_access_latency_ns", False),
    "device_to_device_latency_sm": ("peer_access_latency_ns", True),
}

# What the driver calls GPUs whose names do not lead to the catalogue's
_NAMES = {
    "H100-80GB-HBM3": "H100-SXM-80GB", "H100-PCIe": "H100-PCIE-80GB", "H200": "H200-SXM", "A100-80GB-PCIe": "A100-PCIE-80GB",
    "GH200-480GB": "GH200-96GB", "Tesla-V100-PCIE-16GB": "V100-PCIE-16GB", "Tesla-V100-SXM2-32GB": "V100-SXM2-32GB",
    "B200": "B200-SXM",
}  # fmt: skip

_TITLE = re.compile(r"^\s*Running (?P<test>\w+)\.?\s*$", re.MULTILINE)
_DEVICE = re.compile(r"^\s*(?:Device )?\d+: (?P<name>[^(\n]+?)(?:\s*\(|\s*$)", re.MULTILINE)


def is_json(text: str) -> bool:
    return text.lstrip().startswith("{") and '"nvbandwidth"' in text[:400]


def is_text(text: str) -> bool:
    return any(m["test"] in METRICS for m in _TITLE.finditer(text))


def from_json(text: str, path: Path, gpu: str) -> list[Row]:
    """The rows of the tests that passed."""
    try:
        data = json.loads(text)["nvbandwidth"]
        cases = data["testcases"]
    except (ValueError, KeyError, TypeError):
        raise MeasurementError("is not what nvbandwidth -j writes", str(path)) from None
    devices: list[str] = next((value for key, value in data.items() if key.lower() == "gpu device list"), [])
    name = gpu or _one([m["name"] for m in map(_DEVICE.match, devices) if m], path)
    version = str(data.get("version", data.get("git_version", "")))
    system = f"{len(devices)}x {name}, driver {data.get('Driver Version', '?')}"
    rows = []
    for case in cases:
        if case.get("status", "Passed") == "Passed" and case.get("name") in METRICS:
            rows += list(_rows(case["name"], case.get("bandwidth_matrix", []), (name, system, version), path, str(path)))
    return rows


def from_text(text: str, path: Path, gpu: str) -> list[Row]:
    """The rows of all matrices."""
    head = text[: next(_TITLE.finditer(text)).start()]
    name = gpu or _one([m["name"] for m in _DEVICE.finditer(head)], path)
    driver = re.search(r"^\s*Driver Version: (\S+)", head, re.MULTILINE)
    version = re.search(r"nvbandwidth Version: (\S+)", head)
    count = len(_DEVICE.findall(head))
    system = f"{count or '?'}x {name}, driver {driver[1] if driver else '?'}"
    titles = list(_TITLE.finditer(text))
    rows = []
    for title, following in zip(titles, [*titles[1:], None], strict=True):
        if title["test"] in METRICS:
            block = text[title.end() : following.start() if following else None]
            line = text.count("\n", 0, title.start()) + 1
            machine = (name, system, version[1] if version else "")
            rows += list(_rows(title["test"], _matrix(block), machine, path, f"{path}:{line}"))
    return rows


def _one(names: list[str], path: Path) -> str:
    """The name as the catalogue has it: "RTX-5090" of "NVIDIA GeForce RTX 5090"."""
    different = list(dict.fromkeys(names))
    if not different:
        raise MeasurementError("does not say its GPU", str(path), "name it with --gpu")
    if len(different) > 1:
        found = f"holds rows of {len(different)} devices: {', '.join(different)}"
        raise MeasurementError(found, str(path), "measure one kind at a time")
    name = re.sub(r"^(NVIDIA )?(GeForce )?", "", different[0]).strip().replace(" ", "-")
    return _NAMES.get(name, name)


def _matrix(block: str) -> list[list[str]]:
    """The cells below the line of column numbers, without the row numbers."""
    found: list[list[str]] = []
    columns = 0
    for line in block.splitlines():
        cells = line.split()
        if not columns and cells and all(c.isdigit() for c in cells):
            columns = len(cells)
        elif columns and len(cells) == columns + 1 and cells[0].isdigit():
            found.append(cells[1:])
        elif columns and found:
            break
    return found


def _rows(test: str, matrix: list[list[Any]], machine: tuple[str, str, str], path: Path, where: str) -> Iterator[Row]:
    name, system, version = machine
    metric, between = METRICS[test]
    size = 2 * 2**20 if metric.endswith("_ns") else _BUFFER
    for i, line in enumerate(matrix):
        for j, cell in enumerate(line):
            if str(cell).upper() == "N/A":
                continue
            try:
                value = float(cell)
            except (TypeError, ValueError):
                raise MeasurementError(f"'{cell}' in the matrix of {test} is not a number", where) from None
            if not math.isfinite(value) or value < 0:
                raise MeasurementError(f"'{cell}' in the matrix of {test} cannot be measured", where)
            if value > 0:
                param = f"src={i};dst={j}" if between else f"gpu={j}"
                yield Row(
                    f"{path.stem}/{metric}", name, system, metric, size, param, value, unit_of(metric), "median of 3",
 f"nvbandwidth {version} {test}".replace("  ", " "), path.name, where=where,
                )  # fmt: skip

"""The graphs that are found on machines, beside inputs of NCCL's estimate that are typical of them."""

from __future__ import annotations

import csv
from pathlib import Path

from gpusim.base.errors import GpusimError
from gpusim.calibrate.collectives.rows import RAW
from gpusim.machine.collectives.nccl import Channels
from gpusim.machine.collectives.search import search
from gpusim.machine.topology import build

FILE = "nccl_model_cases.csv"
CASES = {  # case -> machine of ours, and how many of each node's GPUs
    "a100_dgx_1x8": ("dgx-a100", 8), "a100_dgx_1x4": ("dgx-a100", 4), "a100_dgx_2x8_8xHDR": ("2 x dgx-a100", 8),
    "h100_hgx_1x8": ("hgx-h100", 8), "h100_hgx_1x4": ("hgx-h100", 4), "h100_hgx_1x2": ("hgx-h100", 2),
    "h100_hgx_2x8_8xNDR": ("2 x hgx-h100", 8), "h100_hgx_4x8_8xNDR": ("4 x hgx-h100", 8), "v100_dgx1_1x8": ("dgx-1-v100", 8),
}  # fmt: skip
OTHERS = (
    ("dgx-1-p100", 8), ("dgx-1-p100", 4), ("dgx-2", 16), ("gh200-x4", 4), ("2 x gh200-x4", 4), ("hgx-b200", 8),
    ("2 x hgx-b200", 8), ("gb200-nvl72", 72), ("8x-rtx-4090", 8), ("4x-a10", 4), ("4x-a100-pcie-pairs", 4),
    ("2x-rtx-3090-nvlink", 2),
)  # fmt: skip


def typical(folder: Path) -> dict[str, tuple[Channels, Channels | None]]:
    """Ring (the trees have the same) and NVLS of each case.  Raises GpusimError where the file is not there."""
    path = folder / FILE
    if not path.is_file():
        raise GpusimError(f"there is no '{FILE}' in '{folder}'", hint=RAW)
    found: dict[str, tuple[Channels, Channels | None]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            ring = Channels(int(row["ring_channels"]), float(row["ring_bw"]))
            nvls = Channels(int(row["nvls_channels"]), float(row["nvls_bw"]))
            found[row["case"]] = ring, nvls if nvls.count else None
    return found


def table(folder: Path) -> list[str]:
    """Markdown."""
    known = typical(folder)
    lines = [
        "| machine | GPUs | rings | trees | NVLS | typical rings | typical NVLS |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case, (word, each) in [*CASES.items(), *(("", other) for other in OTHERS)]:
        machine = build.load(word)
        gpus = [gpu for gpu in machine.gpus if int(gpu.rpartition("gpu")[2]) < each]
        graph = search(machine, gpus)
        ring, nvls = known.get(case, (None, None))
        shown = (graph.ring, graph.tree, graph.nvls, ring, nvls)
        lines.append(f"| `{word}` | {len(gpus)} | " + " | ".join(_shown(channels) for channels in shown) + " |")
    return lines


def _shown(channels: Channels | None) -> str:
    if channels is None:
        return ""
    between = f" ({channels.between:g})" if channels.between not in (None, channels.rate) else ""
    return f"{channels.count} x {channels.rate:g}{between}"

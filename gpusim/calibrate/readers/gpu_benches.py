"""Texts that the programs of gpu-benches print (github.com/te42kyfo/gpu-benches, github.com/RRZE-HPC/gpu-benches).

Each program has its own columns and no title; a file is known by them.  None names its GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.rows import Row, unit_of

_KIB = 1024
_STREAMED = 2 * 2**30
"""Bytes of each array of gpu-stream, which prints no sizes."""
_COLUMNS = {"init": "hbm_write_bw", "read": "hbm_read_bw", "scale": "hbm_scale_bw", "triad": "hbm_triad_bw",
            "1pt": "hbm_stencil3_bw", "3pt": "hbm_stencil5_bw"}  # fmt: skip

_NEWER = {"3pt": "1pt", "5pt": "3pt"}
"""Names of stencils by their points -> the names by the points to each side that older versions print."""
_MODES = {"gsync": "coop_gridsync", "pt": "persistent_atomic"}
"""How kernels follow each other: what a file's name ends with -> the row's mode."""

Found = Iterator[tuple[str, int | None, str, float, int]]  # metric, size, param, value, line


def kind(text: str) -> str:
    """The program that printed this, "" for none of them."""
    head = "\n".join(text.splitlines()[:80])
    return next((name for name, (pattern, _, _) in _PROGRAMS.items() if re.search(pattern, head, re.MULTILINE)), "")


def read(text: str, kind: str, path: Path, gpu: str) -> list[Row]:
    """The rows of a text of this program."""
    _, lines, method = _PROGRAMS[kind]
    mode = next((m for m in ("graph", "gsync", "pt") if path.stem.endswith(f"_{m}")), "stream")
    rows = []
    for metric, size, param, value, line in lines(text):
        if value > 0:
            if kind == "gpu-small-kernels":
                param = f"mode={_MODES.get(mode, mode)}"
            rows.append(
                Row(
                    f"{path.stem}/{metric}", gpu, "gpu-benches host", metric, size, param, value, unit_of(metric), "median",
                    method, path.name, where=f"{path}:{line}",
                )
            )  # fmt: skip
    if not rows:
        raise MeasurementError(f"has the columns of {kind}, but no line of numbers", str(path))
    return rows


def _lines(text: str, pattern: str) -> Iterator[tuple[int, re.Match[str]]]:
    expression = re.compile(pattern)
    for number, line in enumerate(text.splitlines(), 1):
        match = expression.match(line)
        if match:
            yield number, match


def _stream(text: str) -> Found:
    """blockSize threads %occ | GB/s: init read scale triad 1pt 3pt; or block threads blocks occ% and 3pt 5pt"""
    names: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        left, bar, right = line.partition("|")
        if bar and "threads" in left:
            names = [_NEWER.get(name, name) for name in right.split()] if "5pt" in right else right.split()
        elif bar and names and "GB/s:" in right:
            values = right.replace("GB/s:", "").split()
            words = left.replace("%", "").split()
            threads, occupancy = words[1], words[-1]
            if len(values) != len(names):
                raise MeasurementError(f"has {len(values)} rates under {len(names)} columns", f"line {number}")
            for name, value in zip(names, values, strict=True):
                if name in _COLUMNS:
                    yield _COLUMNS[name], _STREAMED, f"threads={threads};occupancy_pct={occupancy}", float(value), number


def _small_kernels(text: str) -> Found:
    """elements, kB in and out, GB/s by block size: the best counts, as the program's own plots have it"""
    for number, match in _lines(text, r"\s*(\d+)\s+\d+kB\s+((?:\d+\s*)+)$"):
        yield "queued_kernel_scale_bw", int(match[1]) * 16, "", float(max(map(int, match[2].split()))), number


def _l2_stream(text: str) -> Found:
    """block, blocks, threads, kB of two arrays, %occ | GB/s: least, middle and most of read, scale, triad and write

    The lines of most threads count: all others are of a device that is not full, and the last size may lack them.
    """
    lines: dict[int, tuple[int, re.Match[str]]] = {}
    for number, match in _lines(text, r"\s*\d+\s+\d+\s+(\d+)\s+(\d+)\s+[\d.]+%\s+\|\s+GB/s:((?:\s+\d+){12})\s*$"):
        both = int(match[2])
        if both not in lines or int(match[1]) > int(lines[both][1][1]):
            lines[both] = number, match
    full = max(int(match[1]) for _, match in lines.values())
    for both, (number, match) in lines.items():
        if int(match[1]) < full:
            continue
        read, scale, _, write = (float(v) for v in match[3].split()[1::3])
        for metric, size, value in (
            ("l2_or_dram_read_bw", both * _KIB // 2, read), ("l2_or_dram_scale_bw", both * _KIB, scale),
            ("l2_or_dram_write_bw", both * _KIB // 2, write),
        ):  # fmt: skip
            yield metric, size, f"threads={match[1]}", value, number


def _cache(metric: str) -> Callable[[str], Found]:
    """(block) data set, time, spread, effective GB/s"""

    def found(text: str) -> Found:
        for number, match in _lines(text, r"\s*(?:\d+ kB\s+)?(\d+) kB\s+[\d.]+ms\s+[\d.]+%\s+([\d.]+) GB/s"):
            yield metric, int(match[1]) * _KIB, "", float(match[2]), number

    return found


def _latency(text: str) -> Found:
    """(iterations) MHz kB ms cycles, then perhaps the cycles of single repeats"""
    for number, match in _lines(text, r"\s*(?:\d{4,}\s+)?(\d+)\s+([\d.]+)\s+[\d.]+\s+([\d.]+)(?:\s+[\d.]+)*\s*$"):
        clock, cycles = float(match[1]), float(match[3])
        if clock and float(match[2]):
            param = f"cycles={cycles:g};clock_mhz={clock:g}"
            yield "load_latency_ns", round(float(match[2]) * _KIB), param, round(cycles / clock * 1e3, 2), number


def _memcpy(text: str) -> Found:
    """kB, ms, GB/s, spread: too few digits of the time for small copies, so the rate counts"""
    for number, match in _lines(text, r"\s*(\d+)kB\s+[\d.]+ms\s+([\d.]+)GB/s"):
        yield "h2d_pinned_bw", int(match[1]) * _KIB, "", float(match[2]), number


def _roofline(text: str) -> Found:
    """device, blocks, iterations, Fl/B, GB/s, GF/s, MHz, W: the first device's lines"""
    pattern = r"\s*0 \d+ blocks\s+\d+ its\s+([\d.]+) Fl/B\s+([\d.]+) GB/s\s+([\d.]+) GF/s\s+(\d+) Mhz"
    for number, match in _lines(text, pattern):
        param = f"flop_per_byte={match[1]};gbps={match[2]};clock_mhz={match[4]}"
        yield "fp32_fma_gflops", None, param, float(match[3]), number


# Program -> (what its first lines hold, reader, method); more particular ones first.
_PROGRAMS: dict[str, tuple[str, Callable[[str], Found], str]] = {
    "gpu-stream": (r"threads\s+(?:%occ|occ%)\s+\|", _stream, "gpu-stream: double buffers of 2 GiB, event timed; triad = 3R+1W"),
    "gpu-l2-stream": (
        r"^\s*\d+\s+\d+\s+\d+\s+\d+\s+[\d.]+%\s+\|\s+GB/s:", _l2_stream, "gpu-l2-stream: repeated streaming over a footprint",
    ),
    "gpu-roofline": (r"blocks\s+\d+ its\s+[\d.]+ Fl/B", _roofline, "gpu-roofline, device 0"),
    "gpu-small-kernels": (
        r"^\d+  \d+kB  ", _small_kernels, "gpu-small-kernels: back-to-back scale kernels, footprint in+out, best block size",
    ),
    "gpu-l2-cache": (
        r"^\s*\d+ kB\s+\d+ kB\s+\d+ms", _cache("l2_or_dram_read_bw"), "gpu-l2-cache: all SMs read a shared data set",
    ),
    "gpu-cache": (
        r"^\s*\d+ kB\s+\d+ms\s+[\d.]+%", _cache("l1_or_l2_read_bw"), "gpu-cache: 1 block/SM, every block reads the same buffer",
    ),
    "cuda-memcpy": (
        r"^\s*\d+kB\s+[\d.]+ms\s+[\d.]+GB/s", _memcpy, "cuda-memcpy: pinned cudaMemcpyAsync + cudaDeviceSynchronize",
    ),
    "gpu-latency": (r"^\s*MHz\s+kB\s+ms\s+cycles|^clock: \d", _latency, "gpu-latency: one-thread pointer chase, random order"),
}  # fmt: skip

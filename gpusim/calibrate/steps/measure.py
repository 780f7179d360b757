"""Measures training steps of well-known models on this machine's GPU, and records them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.steps.recording import RESIDENT, WAYS, MeasuredStep, write

PROGRAMS = (
    "gpt2-small(batch=4)", "gpt2-small(batch=16)", "bert-large(batch=8)", "bert-large(batch=32)", "resnet50(batch=32)",
    "resnet50(batch=128)", "llama-1b(batch=1)", "llama-1b(batch=4)",
)  # fmt: skip
WARM, REPEATS = 3, 10


def measure(folder: Path, programs: Sequence[str] = PROGRAMS, say: Callable[[str], None] = print) -> list[MeasuredStep]:
    """Run every program in every way; a folder of traces, snapshots and `steps.json`.  What does not fit is left out."""
    torch = ready()
    folder.mkdir(parents=True, exist_ok=True)
    steps: list[MeasuredStep] = []
    left: dict[str, str] = {}
    for spec in programs:
        for way in WAYS:
            say(f"{spec}: {way}")
            try:
                steps.append(_measured(spec, way, folder))
            except torch.cuda.OutOfMemoryError:
                left[f"{spec} {way}"] = "out of memory"
            torch.cuda.empty_cache()
        write(folder, _conditions(torch, left), steps)
    return steps


def ready() -> Any:
    """PyTorch.  Raises MeasurementError where it is not installed or sees no GPU."""
    try:
        import torch
    except ModuleNotFoundError:
        raise MeasurementError("steps are measured with PyTorch, which is not installed", hint="pip install torch") from None
    if not torch.cuda.is_available():
        raise MeasurementError("PyTorch sees no GPU here: steps are measured on one", hint="compare works anywhere")
    return torch


def _conditions(torch: Any, left: dict[str, str]) -> dict[str, Any]:
    card = torch.cuda.get_device_properties(0)
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "gpu": card.name, "memory_bytes": card.total_memory,
        "torch": torch.__version__, "cuda": torch.version.cuda, "warm_up": WARM, "left_out": left,
    }  # fmt: skip


def _measured(spec: str, way: str, folder: Path) -> MeasuredStep:
    import torch

    from gpusim.calibrate.steps.hooks import kept
    from gpusim.programs import zoo
    from gpusim.programs.record.on_gpu import GpuRecording

    program = zoo.build(spec)

    def step() -> int:
        with kept(way, program.model) as moving:
            program.step()
        return moving.moved if moving else 0

    for _ in range(WARM):
        moved = step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter_ns()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter_ns() - begin)
    times.sort()
    issue = sorted(_issued(step, torch.cuda.synchronize) for _ in range(3))[1]
    peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    name = ""
    if way == RESIDENT:
        name = re.sub(r"\W+", "-", spec).strip("-") + ".npz"
        with GpuRecording(folder / name, name=spec, issue_ns=issue):
            step()
    tenth = len(times) // 10
    return MeasuredStep(spec, way, times[len(times) // 2], times[tenth], times[-1 - tenth], REPEATS, *peaks, moved, name, issue)


def _issued(step: Callable[[], int], wait: Callable[[], None]) -> int:
    """ns until a step has returned, whose kernels may go on."""
    wait()
    begin = time.perf_counter_ns()
    step()
    end = time.perf_counter_ns()
    wait()
    return end - begin

"""Steps of small batches, whose measured time does not grow with the batch: the host submits them more slowly than they run.

NVIDIA's measurements (DeepLearningExamples, latency of one inference) of the two networks that timm has as well.  What is
shown beside them follows from the program alone: nothing here was fitted to these rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gpusim.calibrate.kernel_times.networks import unfilled
from gpusim.calibrate.kernel_times.steps import rows
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.machine.constants import host_time
from gpusim.machine.kernels.durations import modelled_durations
from gpusim.trace.trace import Trace

NETWORKS = {"resnext101-32x4d": "resnext101_32x4d", "se-resnext101-32x4d": "seresnext101_32x4d"}  # NVIDIA's name -> timm's
GPUS = {"NVIDIA DGX-1 (1x V100 16GB)": "v100-sxm2-32gb", "NVIDIA T4": "t4"}  # in the row's section -> profile
BATCHES = (1, 2, 4, 8)
METRIC = "Latency Avg"
SIZE = 224  # pixels of a side


@dataclass(frozen=True)
class SmallStep:
    """One measured inference and what the simulator says of it; times in ns.

    kernels    of all kernels
    host       that the host needs to submit the operators
    predicted  of the second of two simulated steps: the first asks the driver for memory
    """

    network: str
    gpu: str
    mixed: bool
    batch: int
    operators: int
    kernels: int
    host: int
    predicted: int
    measured: int


def small_steps(folder: Path) -> list[SmallStep]:
    """Each of the rows with its simulated step.  Needs timm."""
    found = []
    measured = {}
    for row in rows(folder / "nvidia_dle_steps.csv.gz"):
        network = row["network"].rpartition("/")[2]
        gpu = next((gpu for name, gpu in GPUS.items() if name in row["section"]), "")
        size = row["config"].removeprefix("Batch Size=")
        if network in NETWORKS and gpu and row["metric"] == METRIC and size.isdecimal():
            measured[network, gpu, "Mixed Precision" in row["section"], int(size)] = round(float(row["value"]) * 1e6)
    for network, name in NETWORKS.items():
        model = _model(name)
        for mixed in (False, True):
            for batch in BATCHES:
                traces = [recorded(model, name, batch, mixed, passes) for passes in (1, 2)]
                for gpu in GPUS.values():
                    if (row_ns := measured.get((network, gpu, mixed, batch))) is not None:
                        found.append(_simulated(traces, network, gpu, mixed, batch, row_ns))
    return found


def _simulated(traces: list[Trace], network: str, gpu: str, mixed: bool, batch: int, measured: int) -> SmallStep:
    profile, once = catalogue.load(gpu), traces[0].ops
    first, both = (int(simulate(trace, profile).metrics["makespan_ns"]) for trace in traces)
    return SmallStep(
        network, gpu, mixed, batch, once, int(modelled_durations(traces[0], profile).ns.sum()),
        round(once * host_time(traces[0], profile).ns), both - first, measured,
    )  # fmt: skip


def _model(name: str) -> Any:
    import timm

    with unfilled():
        return timm.create_model(name).eval()


def recorded(model: Any, name: str, batch: int, mixed: bool, passes: int) -> Trace:
    """So many inferences of a batch as PyTorch runs them, operator by operator."""
    import torch

    from gpusim.programs.record import begin

    images = torch.empty(batch, 3, SIZE, SIZE)
    with begin(None, name=f"{name} {batch}", fake=True) as recording:
        for _ in range(passes):
            with torch.inference_mode(), torch.amp.autocast("cuda", dtype=torch.float16, enabled=mixed):
                model(images)
    return cast("Trace", recording.trace)


def text(steps: list[SmallStep]) -> str:
    """The table of the documents: a line for each program and GPU, with the batches in one cell."""
    lines = [
        "| network | GPU | type | operators | host, ms | kernels, ms | predicted, ms | measured, ms | us per operator |",
        "| --- | --- | --- | ---: | ---: | --- | --- | --- | --- |",
    ]
    groups = dict.fromkeys((s.network, s.gpu, s.mixed) for s in steps)
    for network, gpu, mixed in groups:
        own = [s for s in steps if (s.network, s.gpu, s.mixed) == (network, gpu, mixed)]
        columns = [" ".join(f"{getattr(s, name) / 1e6:.1f}" for s in own) for name in ("kernels", "predicted", "measured")]
        each = " ".join(f"{s.measured / s.operators / 1e3:.0f}" for s in own)
        lines.append(
            f"| {network} | {gpu} | {'mixed' if mixed else 'fp32'} | {own[0].operators} | {own[0].host / 1e6:.1f} | "
            f"{' | '.join(columns)} | {each} |"
        )
    return "\n".join(lines)

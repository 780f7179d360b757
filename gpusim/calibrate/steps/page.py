"""The measured steps that ship, against simulated ones, as tables of `docs/measured_h100.md`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpusim.calibrate.steps.compare import KERNELS, STEP, Found
from gpusim.calibrate.steps.recording import WAYS

FOLDER = Path(__file__).parents[1] / "data" / "h100_sxm" / "steps"
MACHINE = "h100-sxm-80gb"


def tables(found: Sequence[Found]) -> tuple[str, str]:
    """Whole steps by program and way, and what the model of kernel times makes of the recorded kernels, in Markdown."""
    programs = list(dict.fromkeys(f.program for f in found))
    head = "| program | " + " | ".join(f"{way}, ms | simulated" for way in WAYS) + " |"
    ways = [head, "| --- |" + " ---: | ---: |" * len(WAYS)]
    kernels = ["| program | kernels, ms | by the model |", "| --- | ---: | ---: |"]
    for program in programs:
        cells = []
        for way in WAYS:
            step = next((f for f in found if (f.program, f.way) == (program, way) and f.what == STEP), None)
            cells += [f"{step.measured / 1e6:,.1f}", f"{100 * step.error:+.1f} %"] if step else ["–", ""]
        ways.append(f"| `{program}` | " + " | ".join(cells) + " |")
        made = next((f for f in found if f.program == program and f.what == KERNELS), None)
        if made:
            kernels.append(f"| `{program}` | {made.measured / 1e6:,.1f} | {100 * made.error:+.1f} % |")
    return "\n".join(ways), "\n".join(kernels)

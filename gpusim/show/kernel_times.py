"""The figure of whole steps: simulated over measured, a panel for each GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpusim.calibrate.kernel_times.score import errors
from gpusim.calibrate.kernel_times.step_score import StepTimes
from gpusim.show.agreement import AXES, ROW, Cloud, panel
from gpusim.show.panels import grid, shape
from gpusim.show.style import BLUE, GREY, SKY, canvas, headline, styled

_BAND = 0.10
_LEFT, _SEEN, _BEFORE = "left out of every fit", "seen by the fit", "the roofline that was before"
_LOOKS = {_LEFT: (BLUE, "o", 3.0), _SEEN: (SKY, "o", 2.2), _BEFORE: (GREY, ".", 2.0)}


@styled
def draw(gpus: Sequence[StepTimes]) -> Figure:
    """The ratio over the measured ms: 1 is agreement, the band 10 %.  GPUs without a profile are left out."""
    shown = [steps for steps in gpus if np.isfinite(steps.runs).all()]
    figure = canvas()
    lines, columns = shape(len(shown))
    for index, (axes, steps) in enumerate(zip(grid(figure, len(shown), sharey=True), shown, strict=True)):
        everywhere = np.ones_like(steps.held)
        of = {_LEFT: (steps.held, steps.runs), _SEEN: (~steps.held, steps.runs), _BEFORE: (everywhere, steps.before)}
        clouds = [
            Cloud((steps.measured[rows] / 1e6).tolist(), (times[rows] / 1e6).tolist(), *_LOOKS[name])
            for name, (rows, times) in of.items()
        ]
        which, word = (steps.held, "left out") if steps.held.any() else (~steps.held, "seen")
        median, p90, signed = errors(steps.runs[which], steps.measured[which])
        said = f"{word}: {median:.1%}, p90 {p90:.1%}, {signed:+.1%}"
        panel(axes, f"{steps.gpu} ({steps.source})", clouds, said, (1 - _BAND, 1 + _BAND), "ms")
        axes.set_ylabel("simulated / measured" if index % columns == 0 else "")
        if index + columns < len(shown):
            axes.set_xlabel("")
    headline(
        figure, "How long does a whole step take?",
        "Simulated over measured time of inference and training steps, each network and mode a point; the band is 10 %.",
        "Median and p90 of the error, and its signed median. Triangles: beyond the axis, so many.", body=ROW * lines + AXES,
        strip=[Line2D([], [], color=c, marker=m, ms=5, lw=0, label=name) for name, (c, m, _) in _LOOKS.items()],
    )  # fmt: skip
    return figure

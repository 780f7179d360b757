"""The figure of whole steps: measured against simulated, a panel for each GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpusim.calibrate.kernel_times.score import errors
from gpusim.calibrate.kernel_times.step_score import StepTimes
from gpusim.show.agreement import Cloud, panel
from gpusim.show.style import BLUE, GREY, SKY, canvas, headline, styled

_COLUMNS = 3
_BAND = 0.10
_LEFT, _SEEN, _BEFORE = "left out of every fit", "seen by the fit", "the roofline that was before"
_LOOKS = {_LEFT: (BLUE, "o", 3.0), _SEEN: (SKY, "o", 2.2), _BEFORE: (GREY, ".", 2.0)}


@styled
def draw(gpus: Sequence[StepTimes]) -> Figure:
    """Times in ms, log-log; the diagonal is agreement, the band 10 %.  GPUs without a profile are left out."""
    shown = [steps for steps in gpus if np.isfinite(steps.runs).all()]
    columns = min(_COLUMNS, len(shown))
    lines = math.ceil(len(shown) / columns)
    figure = canvas(height=1.2 + 2.6 * lines)
    for number, steps in enumerate(shown):
        everywhere = np.ones_like(steps.held)
        of = {_LEFT: (steps.held, steps.runs), _SEEN: (~steps.held, steps.runs), _BEFORE: (everywhere, steps.before)}
        clouds = [
            Cloud((steps.measured[rows] / 1e6).tolist(), (times[rows] / 1e6).tolist(), *_LOOKS[name])
            for name, (rows, times) in of.items()
        ]
        which, word = (steps.held, "left out") if steps.held.any() else (~steps.held, "seen")
        median, p90, signed = errors(steps.runs[which], steps.measured[which])
        said = f"{word}: median {median:.1%}\np90 {p90:.1%}\nsigned {signed:+.1%}"
        panel(figure.add_subplot(lines, columns, number + 1), f"{steps.gpu} ({steps.source})", clouds, said, _BAND)
    headline(
        figure, "How long does a whole step take?",
        "Simulated over measured ms of inference and training steps, each network and mode a point; the band is 10 %.",
        strip=[Line2D([], [], color=c, marker=m, ms=5, lw=0, label=name) for name, (c, m, _) in _LOOKS.items()],
    )  # fmt: skip
    return figure

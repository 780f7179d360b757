"""Makes the table of `docs/kernel_times_steps.md` and its figure anew (a developer's tool):

    python -m gpusim.show.kernel_time_tables FOLDER PROGRAMS

FOLDER and PROGRAMS as `python -m gpusim.calibrate.kernel_times steps` has them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gpusim.base.files import write_text
from gpusim.calibrate.kernel_times.step_score import evaluate, simulated, text
from gpusim.calibrate.kernel_times.steps import load, pack, published
from gpusim.show.calibration_tables import replaced
from gpusim.show.kernel_times import draw
from gpusim.show.style import save

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "kernel_times_steps.md"
FIGURE = ROOT / "docs" / "figures" / "kernel_times"
PACKED = "programs.npz"


def main(folder: Path, programs: Path) -> None:
    """Score, write and draw."""
    pack(programs, programs / PACKED)
    recorded, steps = load(programs / PACKED), published(folder)
    save(draw(simulated(recorded, steps)), FIGURE, ("png",))
    lines, used, _ = evaluate(recorded, steps)
    table, fits = text(lines, used).split("\n\n", 1)
    document = DOCUMENT.read_text(encoding="utf-8")
    write_text(DOCUMENT, replaced(replaced(document, "steps", table), "fits", fits))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

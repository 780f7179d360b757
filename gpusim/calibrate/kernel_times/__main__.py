"""python -m gpusim.calibrate.kernel_times score FOLDER    the errors of kernel times, and which rows each fit used
python -m gpusim.calibrate.kernel_times fit FOLDER      the same fits, written to gpusim/machine/kernels/data
python -m gpusim.calibrate.kernel_times record FOLDER PROGRAMS    the programs of whole steps, recorded into the folder PROGRAMS
python -m gpusim.calibrate.kernel_times steps FOLDER PROGRAMS     the errors of whole steps
python -m gpusim.calibrate.kernel_times fit-steps FOLDER PROGRAMS the second-level fit, written there too
python -m gpusim.calibrate.kernel_times fit-steps FOLDER PROGRAMS CLASS...    of these classes alone, all else as it is
python -m gpusim.calibrate.kernel_times fit-recorded   what steps recorded on one GPU say of its kernels, written there too
python -m gpusim.calibrate.kernel_times host FOLDER     steps that the host bounds, simulated and measured

FOLDER holds the tables of measured kernels and steps.  `host` needs timm; `record` needs timm and transformers, goes on where
it was stopped, and may run in several processes.  A developer's tool; the product reads only what it writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gpusim.calibrate.kernel_times import host_bound
from gpusim.calibrate.kernel_times.networks import record_all
from gpusim.calibrate.kernel_times.recorded import text as recorded_text
from gpusim.calibrate.kernel_times.rows import gather, sustained
from gpusim.calibrate.kernel_times.score import score, text
from gpusim.calibrate.kernel_times.step_score import evaluate, fit_all, intervals, refit_classes
from gpusim.calibrate.kernel_times.step_score import text as step_text
from gpusim.calibrate.kernel_times.steps import load, pack, published
from gpusim.calibrate.kernel_times.write import write, write_classes, write_steps
from gpusim.calibrate.steps.page import FOLDER, MACHINE
from gpusim.machine import catalogue
from gpusim.machine.kernels.store import DATA

PACKED = "programs.npz"


def main(arguments: list[str]) -> None:
    """Run one command."""
    match arguments:
        case ["score", folder]:
            print(text(score(gather(Path(folder)))))
        case ["fit", folder]:
            print(write(gather(Path(folder)), sustained(Path(folder)), DATA))
        case ["record", folder, programs]:
            record_all(Path(folder), Path(programs))
        case ["steps", folder, programs]:
            pack(Path(programs), Path(programs) / PACKED)
            lines, used, _ = evaluate(load(Path(programs) / PACKED), published(Path(folder)))
            print(step_text(lines, used))
        case ["fit-steps", folder, programs]:
            pack(Path(programs), Path(programs) / PACKED)
            recorded, steps = load(Path(programs) / PACKED), published(Path(folder))
            print(write_steps(*fit_all(recorded, steps), intervals(recorded, steps), DATA))
        case ["fit-steps", folder, programs, *classes]:
            pack(Path(programs), Path(programs) / PACKED)
            found = refit_classes(load(Path(programs) / PACKED), published(Path(folder)), classes)
            print(write_classes(*found, DATA))
        case ["fit-recorded"]:
            (DATA / "recorded.yaml").write_text("\n".join(recorded_text(FOLDER, catalogue.load(MACHINE))) + "\n")
        case ["host", folder]:
            print(host_bound.text(host_bound.small_steps(Path(folder))))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

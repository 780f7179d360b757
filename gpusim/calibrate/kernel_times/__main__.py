"""python -m gpusim.calibrate.kernel_times score FOLDER    the errors of kernel times, and which rows each fit used
python -m gpusim.calibrate.kernel_times fit FOLDER      the same fits, written to gpusim/machine/kernels/data

FOLDER holds the tables of measured kernels.  A developer's tool; the product reads only what it writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gpusim.calibrate.kernel_times.rows import gather
from gpusim.calibrate.kernel_times.score import score, text
from gpusim.calibrate.kernel_times.write import write
from gpusim.machine.kernels.store import DATA


def main(arguments: list[str]) -> None:
    """Run one command."""
    if len(arguments) < 2 or arguments[0] not in ("score", "fit"):
        sys.exit(__doc__)
    tables = gather(Path(arguments[1]))
    print(text(score(tables)) if arguments[0] == "score" else write(tables, DATA))


if __name__ == "__main__":
    main(sys.argv[1:])

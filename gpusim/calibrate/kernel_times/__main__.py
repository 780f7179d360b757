"""python -m gpusim.calibrate.kernel_times score FOLDER    the errors of kernel times, and which rows each fit used

FOLDER holds the tables of measured kernels.  A developer's tool; the product reads only what it writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gpusim.calibrate.kernel_times.rows import gather
from gpusim.calibrate.kernel_times.score import score, text


def main(arguments: list[str]) -> None:
    """Run one command."""
    if len(arguments) < 2 or arguments[0] != "score":
        sys.exit(__doc__)
    print(text(score(gather(Path(arguments[1]), tuple(arguments[2:])))))


if __name__ == "__main__":
    main(sys.argv[1:])

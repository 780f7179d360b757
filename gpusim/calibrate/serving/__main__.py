"""python -m gpusim.calibrate.serving compare FOLDER [STEPS] [SEED]    steps of the scheduler beside those of the real classes
python -m gpusim.calibrate.serving branches FOLDER [CASES] [SEED]   which branches of the real scheduler the cases reach
python -m gpusim.calibrate.serving record FOLDER FILE [CASES] [SEED]   a sample of the real answers for the tests

FOLDER is an unpacked wheel: pip download vllm==0.33.0 --no-deps; unzip vllm-0.33.0-*.whl '*.py' -d vllm-0.33.0.  A developer's
tool; the classes run in a process of their own, on a CPU and without torch.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gpusim.calibrate.serving import vllm_branches, vllm_compare
from gpusim.calibrate.serving.vllm_cases import cases

ENDLESS = 10**9


def main(arguments: list[str]) -> None:
    """Run one command."""
    match arguments:
        case ["compare", folder, *rest]:
            steps, seed = (int(n) for n in [*rest, *("100000", "1")[len(rest) :]])
            found = vllm_compare.compare(Path(folder), cases(ENDLESS, seed), steps)
            print(found.text())
            sys.exit(bool(found.different))
        case ["branches", folder, *rest]:
            count, seed = (int(n) for n in [*rest, *("2040", "1")[len(rest) :]])
            print(vllm_branches.table(Path(folder), cases(count, seed)))
        case ["record", folder, file, *rest]:
            count, seed = (int(n) for n in [*rest, *("68", "2")[len(rest) :]])
            vllm_compare.record(Path(folder), Path(file), count, seed)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

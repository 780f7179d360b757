"""Print what others measured of programs that share a GPU, what the engine says of it, and the errors.

    python -m gpusim.calibrate.sharing            programs side by side
    python -m gpusim.calibrate.sharing suspend    sleep, checkpoint and task switches
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from statistics import median

from gpusim.calibrate.sharing import suspend
from gpusim.calibrate.sharing.kernel_lists import listed, lists_table
from gpusim.calibrate.sharing.known_kernels import known, known_table
from gpusim.calibrate.sharing.mixtures import trainings, trainings_table
from gpusim.calibrate.sharing.pairs import Pair, predictions, published, table
from gpusim.machine.tenancy import BLOCKS, MPS, YIELDS


def _way(tenancy: str) -> str:
    return tenancy if "priority" in tenancy or "policy" in tenancy else tenancy.partition("(")[0]


def _errors(pairs: Sequence[Pair], yields: str) -> Iterator[str]:
    """Of each source and way, by a rule of MPS."""
    off = [abs(said / pair.measured - 1) for pair, said in zip(pairs, predictions(pairs, yields), strict=True)]
    for of in dict.fromkeys((pair.source, _way(pair.tenancy), pair.statistic) for pair in pairs):
        here = [e for e, p in zip(off, pairs, strict=True) if (p.source, _way(p.tenancy), p.statistic) == of]
        rule = f"yields={yields}, " if of[1].startswith(MPS) else ""
        yield f"{', '.join(of)}: {rule}median error {median(here):.0%}, largest {max(here):.0%}, {len(here)} rows"


def main(words: list[str]) -> None:
    if words == ["suspend"]:
        print("\n".join(suspend.table()))
        return
    pairs = published()
    print("\n".join(table(pairs)))
    print("\n".join(_errors(pairs, BLOCKS)))
    for rule in YIELDS:
        if rule != BLOCKS:
            print("\n".join(_errors([pair for pair in pairs if pair.tenancy.startswith(MPS)], rule)))
    print("\n".join(trainings_table(trainings())))
    print("\n".join(lists_table(listed())))
    print("\n".join(known_table(known())))


if __name__ == "__main__":
    main(sys.argv[1:])

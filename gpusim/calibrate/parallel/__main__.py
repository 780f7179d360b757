"""python -m gpusim.calibrate.parallel score: measured against simulated steps; page: the tables of the documents."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpusim.calibrate.parallel import kept
from gpusim.calibrate.parallel.cases import shipped, visible
from gpusim.calibrate.parallel.page import HEAD, page, row, summary
from gpusim.calibrate.parallel.running import simulated
from gpusim.calibrate.parallel.score import score


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m gpusim.calibrate.parallel", description=__doc__)
    parser.add_argument("what", choices=["score", "page"], help="score: simulate, and keep that; page: of what was kept")
    parser.add_argument("--held-out", action="store_true", help="the half that was drawn by name, scored once at the end")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--keep", type=Path, default=kept.DATA, help="the file of what is kept")
    asked = parser.parse_args()
    if asked.what == "page":
        print(page(kept.read(asked.keep)))
        return
    cases = [c for c in shipped().cases if c.held_out] if asked.held_out else visible()
    print(HEAD, flush=True)
    scored = []
    for one in score((c for c in cases if asked.only in c.name), simulated):
        scored.append(one)
        kept.write([one], asked.keep)
        print(row(one), flush=True)
    print(f"\n{summary(scored)}")


if __name__ == "__main__":
    main()

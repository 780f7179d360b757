"""python -m gpusim.calibrate.offload score: measured against simulated, of the visible cases; --held-out: of the others."""

from __future__ import annotations

import argparse

from gpusim.calibrate.offload.cases import shipped, visible
from gpusim.calibrate.offload.running import seconds
from gpusim.calibrate.offload.score import Scored, median, order, score


def row(scored: Scored) -> str:
    """One line of the table."""
    case = scored.case
    shown = f"{case.name:44} {case.measured:>9.4g}"
    if scored.simulated is None or scored.error is None:
        return f"{shown} {'-':>9} {case.unit:9} {'':9}  {scored.why}"
    return f"{shown} {scored.simulated:>9.4g} {case.unit:9} {100 * scored.error:+7.1f} %  {case.configuration}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m gpusim.calibrate.offload", description=__doc__)
    parser.add_argument("what", choices=["score"])
    parser.add_argument(
        "--held-out", action="store_true", help="the third that was drawn by name; to be scored once, at the end"
    )
    parser.add_argument("--only", default="", help="cases whose name contains this")
    asked = parser.parse_args()
    cases = [c for c in shipped() if c.held_out] if asked.held_out else visible()
    found = score((c for c in cases if asked.only in c.name), seconds)
    print(f"{'case':44} {'measured':>9} {'simulated':>9} {'unit':9} {'faster by':>9}  configuration")
    for scored in found:
        print(row(scored))
    if told := [s for s in found if s.error is not None]:
        right, pairs = order(told)
        print(
            f"{len(told)} of {len(found)} simulated; median error {100 * median(told):.1f} %; {right} of {pairs} orders right"
        )


if __name__ == "__main__":
    main()

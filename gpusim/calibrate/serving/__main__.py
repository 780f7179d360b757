"""python -m gpusim.calibrate.serving: step times and whole runs against what was measured.

    operators   hold slices of the measured operators out, and keep the errors
    intervals   the shipped intervals, from the errors that were kept
    score       simulate the published runs (--held-out: the other half), and keep that
    transfers   published transfers of keys and values, small ones fitted, large ones said
    splitwise   published runs of SplitwiseSim (--runs, or the variable SPLITWISE_RUNS), request by request
    page        the tables of the documents, of what was kept
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from gpusim.base.errors import GpusimError
from gpusim.calibrate.serving import operators, runs, splitwise, transfers
from gpusim.calibrate.serving.cases import shipped
from gpusim.calibrate.serving.closed_loop import simulated
from gpusim.calibrate.serving.page import RUN_HEAD, page, run_row, summary
from gpusim.machine.serving.tables import INSTALL, installed


def main() -> None:
    """Print the tables."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m gpusim.calibrate.serving", description=__doc__, formatter_class=form)
    parser.add_argument("what", choices=["operators", "intervals", "score", "transfers", "splitwise", "page"])
    parser.add_argument("--held-out", action="store_true", help="the half that was drawn by name, scored once at the end")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--launching", type=float, default=0.0, metavar="MS", help="score: a step without CUDA graphs takes so "
                        "long at least, in sets without graphs of prompts; nothing is kept")  # fmt: skip
    parser.add_argument("--tables", type=Path, help="systems/data of aiconfigurator, when not that of the installed package")
    parser.add_argument("--vidur", type=Path, help="a folder of Vidur's tables, which `operators` scores too")
    parser.add_argument("--runs", type=Path, help="the folder of SplitwiseSim's runs")
    asked = parser.parse_args()
    if asked.what == "page":
        print(page(operators.read(), runs.read()))
    elif asked.what == "transfers":
        print(transfers.table())
    elif asked.what == "splitwise":
        print(splitwise.table(asked.runs or Path(os.environ.get("SPLITWISE_RUNS", "SPLITWISE_RUNS"))))
    elif asked.what == "intervals":
        print(operators.intervals(operators.read()))
    elif asked.what == "operators":
        operators.write(operators.score(_folder(asked.tables), asked.vidur))
    else:
        _score(_folder(asked.tables), asked.held_out, asked.only, 1e6 * asked.launching)


def _folder(given: Path | None) -> Path:
    folder = given or installed()
    if folder is None:
        raise GpusimError("step times are scored on the tables of aiconfigurator-core, which is not installed", hint=INSTALL)
    return folder


def _score(folder: Path, held_out: bool, only: str, launching: float) -> None:
    chosen = [run for run in shipped().runs() if run.held_out == held_out and only in run.name]
    print(RUN_HEAD, flush=True)
    scored = []
    for one in runs.score(chosen, lambda run: simulated(run, folder, launching)):
        scored.append(one)
        print(run_row(one), flush=True)
    if not launching:
        runs.write(scored)
    print(f"\n{summary(scored)}")


if __name__ == "__main__":
    main()

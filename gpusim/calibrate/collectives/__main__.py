"""python -m gpusim.calibrate.collectives score [FOLDER]  measured and simulated collectives, and the rows that are not compared
python -m gpusim.calibrate.collectives rows FOLDER WORD    each row of machines whose name contains WORD
python -m gpusim.calibrate.collectives graphs FOLDER   rings, trees and NVLS of machines, beside typical ones
python -m gpusim.calibrate.collectives tables FOLDER   the page docs/collectives_tables.md (minutes: many fits)
python -m gpusim.calibrate.collectives fit FOLDER      the fit, written to gpusim/machine/collectives/data

FOLDER holds the raw tables that are not shipped; others are.  A developer's tool; the product reads only what it writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gpusim.base.errors import GpusimError
from gpusim.calibrate.collectives import graphs
from gpusim.calibrate.collectives.fit import fit, in_turn, spread, text
from gpusim.calibrate.collectives.rows import FILES, read, shipped
from gpusim.calibrate.collectives.score import CollectiveScore, left_out, score, table
from gpusim.calibrate.collectives.simulated import SimulatedRows
from gpusim.machine.collectives.fabrics import DATA


def scores(folder: Path | None, turns: bool) -> list[str]:
    """Both tables of errors, and what is left out; `turns`: also of each fitted machine by a fit without it.

    Without a folder: of the rows that come with the program.
    """
    rows, out = read(folder) if folder else shipped()
    found = score(rows, SimulatedRows())
    without: list[CollectiveScore] = []
    for machine, numbers in in_turn(rows) if turns else ():
        without += score([row for row in rows if row.machine == machine], SimulatedRows(numbers))
    goal = "Goals of the median: 15 % from 1 MiB, 25 % below; * where it is not reached."
    return [
        "## Machines that the fit did not see", "", *table([each for each in found if not each.fitted]), "", goal, "",
        "## Machines that the fit saw", "", *table([each for each in found if each.fitted], without), "",
        "## Rows that are not compared", "", *left_out(out),
    ]  # fmt: skip


def one_by_one(folder: Path, word: str) -> list[str]:
    """A line for each row."""
    simulated = SimulatedRows()
    lines = []
    for row in read(folder)[0]:
        if word in row.machine:
            time = simulated.of(row)
            way = f"{time.algorithm or 'direct'} {time.protocol}"
            lines.append(
                f"{row.machine[:40]:40} {row.kind:14} {row.gpus:3} {row.size:12} {way:15} {row.us:11.1f} {time.ns / 1e3:11.1f} "
                f"{100 * (time.ns / 1e3 / row.us - 1):+7.1f} %"
            )
    return lines


def page(folder: Path) -> list[str]:
    """The page of tables."""
    return [
        "# Collectives against measurements", "",
        "Made by `python -m gpusim.calibrate.collectives tables FOLDER`; [Collectives](collectives.md) says what is compared.",
        "\"Without it\": by a fit that saw the other machines of this table only.", "",
        *scores(folder, turns=True), "", "## Graphs", "",
        "Channels and GB/s of each (between nodes in brackets where another); typical ones are inputs with which NCCL's own",
        "model was run.", "", *graphs.table(folder),
    ]  # fmt: skip


def main(arguments: list[str]) -> None:
    """Run one command."""
    match arguments:
        case ["score"]:
            lines = [*scores(None, turns=False), "", f"Without {', '.join(FILES)}: name the folder that has them."]
        case ["score", folder]:
            lines = scores(Path(folder), turns=False)
        case ["rows", folder, word]:
            lines = one_by_one(Path(folder), word)
        case ["graphs", folder]:
            lines = graphs.table(Path(folder))
        case ["tables", folder]:
            lines = page(Path(folder))
        case ["fit", folder]:
            rows = read(Path(folder))[0]
            found = fit(rows)
            lines = [text(found, spread(rows, found))]
            DATA.write_text(lines[0], encoding="utf-8")
        case _:
            sys.exit(__doc__)
    print("\n".join(lines))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except GpusimError as error:
        sys.exit(str(error))

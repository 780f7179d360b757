"""Published peaks against the zoo's programs: `python tests/support/published_peaks.py --all` prints the table of docs/fit.md.

data/published_peaks.csv has the rows.  `seen` are those that were looked at while the models were built, `stated` those whose
source publishes version, attention and the lifetime of gradients; both were written down before anything ran on the row.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

ROWS = Path(__file__).parents[1] / "data" / "published_peaks.csv"


class Row(NamedTuple):
    row: str
    program: str
    gpu: str
    quantity: str
    bytes: str
    printed: str
    stated: str
    seen: str
    source: str
    note: str

    def computed(self) -> int:
        """Bytes of the row's own quantity; nvidia-smi's is taken without its context."""
        from gpusim.programs.zoo.traced import record_zoo
        from gpusim.studies.capacity.need import need

        with tempfile.TemporaryDirectory() as folder:
            found = need(record_zoo(self.program, {}, Path(folder) / "x.npz", gpu=self.gpu, device="cuda"))
        if self.quantity == "activations":
            return found.by_role.get("activation", 0)
        return found.live if self.quantity == "allocated" else found.reserved

    def error(self) -> float:
        return self.computed() / int(self.bytes) - 1


def rows() -> list[Row]:
    with ROWS.open(newline="") as file:
        return [Row(**line) for line in csv.DictReader(file)]


def summary(name: str, errors: list[float]) -> str:
    off = sorted(abs(e) for e in errors)
    p90 = quantiles(off, n=10, method="inclusive")[-1] if len(off) > 1 else off[0]
    return f"{name}: {len(off)} rows, median {median(off):.1%}, p90 {p90:.1%}, largest {off[-1]:.1%}"


def main(everything: bool) -> None:
    found: list[tuple[Row, float]] = []
    print("| row | quantity | published | computed | error |")
    print("| --- | --- | ---: | ---: | ---: |")
    for row in rows():
        if not everything and row.seen == "no":
            continue
        error = row.error()
        found.append((row, error))
        marks = " (seen)" * (row.seen == "yes") + " (not stated)" * (row.stated == "no")
        gib = f"{int(row.bytes) / 2**30:.2f} GiB | {int(row.bytes) * (1 + error) / 2**30:.2f} GiB"
        print(f"| `{row.row}`{marks} | {row.quantity} | {gib} | {error:+.1%} |", flush=True)
    print()
    for name, stated, seen in (("stated, not seen", "yes", "no"), ("stated, seen", "yes", "yes"), ("not stated", "no", "no")):
        errors = [error for row, error in found if (row.stated, row.seen) == (stated, seen)]
        if errors:
            print(f"- {summary(name, errors)}")
    print(f"- {summary('all that are stated', [error for row, error in found if row.stated == 'yes'])}")


if __name__ == "__main__":
    main("--all" in sys.argv)

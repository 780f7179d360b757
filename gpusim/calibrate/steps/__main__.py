"""python -m gpusim.calibrate.steps: the tables of `docs/measured_h100.md`, from the measured steps that ship."""

from __future__ import annotations

from gpusim.calibrate.steps.compare import compare
from gpusim.calibrate.steps.page import FOLDER, MACHINE, tables
from gpusim.machine import catalogue

if __name__ == "__main__":
    print("\n\n".join(tables(compare(FOLDER, catalogue.load(MACHINE)))))

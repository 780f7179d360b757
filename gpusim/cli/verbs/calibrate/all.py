"""Do all of this on a GPU machine.

Measure, fit, compare, then whole training steps, measured and simulated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli import say
from gpusim.cli.options import output
from gpusim.cli.verbs.calibrate import compare, fit, replay
from gpusim.cli.verbs.calibrate.rows import Base, base_of


def verb(
    *,
    out: Annotated[Path, output("A folder for all that it makes.")],
    base: Base = "",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and repeats.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Measure a card that is busy all the same.")] = False,
) -> None:
    """All steps of a calibration, each with its files in the folder."""
    from gpusim.base.files import make_folder
    from gpusim.calibrate.measure import chosen_gpu as device
    from gpusim.calibrate.measure import cuda
    from gpusim.calibrate.measure.session import GROUPS, measure
    from gpusim.calibrate.steps.measure import measure as measure_steps
    from gpusim.calibrate.steps.measure import ready

    # What is missing is said before anything is measured.
    card = device.cards(cuda.load(), None)[0]
    base_of([device.row_name(card.name)], base)
    ready()
    make_folder(out)
    rows, profile = out / "measured.csv", out / "profile.yaml"
    measure(rows, list(GROUPS), quick=quick, force=force, folder=out, say=say.plain)
    fit.verb([rows], base=base, out=profile)
    compare.verb([rows], on=str(profile), out=out / "compare", formats="png,svg")
    measure_steps(out / "steps", say=say.plain)
    replay.verb(out / "steps", on=str(profile))

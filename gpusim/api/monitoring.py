"""Metrics over time and their alerts, asked from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpusim.studies.monitoring.firings import fired
from gpusim.studies.monitoring.runs import RecordedRuns


def monitor(folder: str | Path, scale: float = 0.0) -> list[dict[str, Any]]:
    """The alerts that fire in the runs of a results folder: a row each, as `gpusim monitor FOLDER --json` has them.

    folder  of runs that kept their event log
    scale   seconds that a simulated second takes on the clock that the alerts' windows are of; 0: in each run so many that it
            takes four minutes

    Raises ResultError where no run kept its log, or has no times.

    >>> import gpusim, tempfile
    >>> e = gpusim.Experiment("resnet50-train", "a100-pcie-40gb", memory="40 %", bounds=False, log=True)
    >>> results = gpusim.run(e, folder=tempfile.mkdtemp())
    >>> [row["alert"] for row in gpusim.monitor(results.folder)]
    ['GpusimThrashing']
    """
    return [row for _, rows in fired(RecordedRuns(Path(folder), scale, apart=True)) for row in rows]

"""The referee, asked from Python."""

from __future__ import annotations

from pathlib import Path
from typing import overload

from gpusim import referee
from gpusim.api.grids import Results
from gpusim.api.result import Result
from gpusim.experiment.ran import load_machine_of, load_trace_of
from gpusim.referee import Report, pages
from gpusim.trace.trace import Trace


@overload
def check(result: Result) -> Report: ...
@overload
def check(result: Results) -> list[Report]: ...
def check(result: Result | Results) -> Report | list[Report]:
    """Recompute a result from its event log, with none of the simulator's code.

    `ok` of the report is True, False (then `violations` says what is wrong), or None where the run kept no log; of the
    results of a grid, a report each.  Raises TraceError when the trace that ran is gone.

    >>> import gpusim
    >>> result = gpusim.simulate("resnet50-train", on="a100-pcie-40gb", memory="60 %", log=True, bounds=False)
    >>> gpusim.check(result).ok
    True
    """
    if isinstance(result, Results):
        return [
            pages.check(run)
            if "unified" in run.spec
            else referee.check(run, result.trace_of(run), load_machine_of(run, result.folder))
            for run in (one.whole for one in result)
        ]
    if "unified" in result.spec:
        return pages.check(result.whole)
    source = result.source if isinstance(result.source, Trace) else load_trace_of(result.value, result.folder or Path())
    return referee.check(result.whole, source, load_machine_of(result.value, result.folder or Path()))

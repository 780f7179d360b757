"""The program behind the activities of a run: its operators with the times that they took, and nothing that was not kept.

A timeline has no tensors: what was allocated, and what each operator reads and writes, is lost, and so are the moments at which
the host issued the operators, and what streams waited for on one another.  Swaps, faults and stalls are the run's and not the
program's.  Under unified memory a step's stalls are part of its time, and are taken off.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import TraceError
from gpusim.results.activities import KINDS
from gpusim.results.page_log import INSIDE
from gpusim.results.viewers.exported import ExportedRun
from gpusim.trace.build import TraceBuilder
from gpusim.trace.recorded_times import ON
from gpusim.trace.trace import ACTIVITIES, MOVES, Trace

LACKS = ("allocations", "accesses", "flops", "shapes", "host times", "order between streams")
_PHASE, _STALL = KINDS.index("phase"), KINDS.index("stall")
_INSIDE = {f"stall_{cause}" for cause in INSIDE}  # what an operator waits for while it goes on


def program_of(run: ExportedRun, format: str, path: str, name: str | None = None) -> Trace:
    """The trace, from a file of this format; `meta` keeps how the run ended, its metrics, and what of its own is left out.

    Raises TraceError where no operator is left.
    """
    found = run.activities
    operators = found.rows[(found.rows["op"] >= 0) & (found.rows["kind"] < len(ACTIVITIES))]
    if not len(operators):
        raise TraceError(
            f"the run '{run.title}' has no operators: managed programs have steps, which are no trace", path,
            "the program itself is what the experiment names",
        )  # fmt: skip
    took = operators["end"] - operators["start"]
    op, first, of = np.unique(operators["op"], return_index=True, return_inverse=True)
    duration = np.bincount(of, took).astype(np.int64)
    if run.paged:
        inside = np.isin(found.rows["name"], [i for i, text in enumerate(found.names) if text in _INSIDE])
        stalls = found.rows[(found.rows["kind"] == _STALL) & np.isin(found.rows["op"], op) & inside]
        np.subtract.at(duration, np.searchsorted(op, stalls["op"]), stalls["end"] - stalls["start"])
    sections = found.rows[(found.rows["kind"] == _PHASE) & (found.rows["op"] >= 0)]
    sections = sections[np.argsort(sections["op"], kind="stable")]
    build, begun = TraceBuilder(name or str(run.spec.get("trace", "run")), path), 0
    began = np.full(len(op), np.iinfo(np.int64).max)
    np.minimum.at(began, of, operators["start"])
    for i, row in enumerate(operators[first]):
        while begun < len(sections) and sections["op"][begun] <= row["op"]:
            build.begin_phase(found.names[sections["name"][begun]])
            begun += 1
        build.op(
            found.names[row["name"]], (), (), duration=max(0, int(duration[i])), stream=found.lanes[row["lane"]].number,
            activity=int(row["kind"]), device_time=int(began[i]), read_bytes=int(row["bytes"]) if row["kind"] in MOVES else 0,
        )  # fmt: skip
    build.meta = {"format": format, **_meta(run, found.rows["kind"], int(op[-1]) + 1 - len(op))}
    return build.finish()


def _meta(run: ExportedRun, kinds: npt.NDArray[np.int8], missing: int) -> dict[str, object]:
    counts = np.bincount(kinds, minlength=len(KINDS)) if len(kinds) else np.zeros(len(KINDS), np.int64)
    of_run = {KINDS[i]: int(counts[i]) for i in range(len(ACTIVITIES), len(KINDS)) if counts[i] and i != _PHASE}
    warnings = []
    if run.outcome != "finished":
        warnings.append(f"the run ended early ({run.outcome}): operators behind that are missing")
    if missing:
        warnings.append(f"{missing} operators before the last one have no activity")
    return {
        "source": f"a run of gpusim: {run.title}", "lacks": list(LACKS),
        **({ON: run.spec["profile"]} if isinstance(run.spec.get("profile"), str) else {}),
        "filled": {"kernel times": "those of the run, longer where operators shared the device"},
        "left_out": of_run, "run": {"outcome": run.outcome, "metrics": dict(run.metrics)}, "warnings": warnings,
    }  # fmt: skip

"""Rows that no number of a profile comes from, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gpusim.calibrate.as_programs.lacks import lacking
from gpusim.calibrate.fit.estimate import Curve, Estimate, Found, Left
from gpusim.calibrate.rows import Row

# Beginnings of metrics -> what a profile has no place for; what is not here says the comparison (`lacking`).
_NO_PLACE = (
    (("managed_alloc", "managed_free"), "a profile has no time for allocating and freeing managed memory"),
    (("um_",), "it is what kernels reach in memory, or faults that other tests take apart"),
    (("zero_copy",), "narrow accesses are a share of the rate of full ones"),
    (("elementwise",), "what classes of kernels reach is in the data of the model of kernel times"),
    (("stream_sync", "graph_", "kernel_", "memcpyasync_submit"), "a profile has one time for submitting, and none for this"),
    (("cudafreeasync", "cudafreehost", "cumemaddress"), "a profile has no time for this call"),
    (("binding_call",), "it is what Python adds to the host's times, no number of the machine"),
)


def unused(rows: Sequence[Row], found: Iterable[Found]) -> Iterator[Left]:
    """A line for each metric of which no row was used."""
    used = {row.metric for one in found if isinstance(one, Estimate | Curve) for row in one.rows}
    counts = Counter(row.metric for row in rows if row.metric not in used)
    example = {row.metric: row for row in rows}
    for metric, n in sorted(counts.items()):
        why = next((why for beginnings, why in _NO_PLACE if metric.startswith(beginnings)), "") or lacking(example[metric])
        yield Left(metric, f"{n} row{'s'[: n > 1]} unused: {why or 'no number of a profile is fitted to them'}")

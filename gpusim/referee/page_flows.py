"""What flowed under unified memory, recomputed: when each flow ends on the links that it shares, and who had the GPU meanwhile.

Copies of the driver and of the program, zero fills, remote accesses, and kernels where others slow them down: each row of the
log is a flow that began with so many bytes and a rate of its own.  The rest follows from the rates of the links.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.referee import page_ways
from gpusim.referee.activities import NEVER
from gpusim.referee.flows import Grants, ends
from gpusim.referee.rates import most_over
from gpusim.referee.report import Findings
from gpusim.results.result import Result
from gpusim.trace.trace import I64

TICKS = 2  # ns: begin and end are whole numbers
NO_GRANTS = Grants(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def check(result: Result, found: Findings) -> None:
    """Flows end when their links let them, no link carries too much, and copies and kernels are within the GPU's units."""
    log, said = result.pages or {}, result.spec["paging"].get("traffic")
    if said is None or "flow_begin" not in log or said["kept"] > len(log["flow_begin"]):
        return
    flows = {name: log[f"flow_{name}"].astype(np.int64) for name in ("begin", "end", "process", "way", "passes")}
    moved = log["flow_size"] - np.where(flows["end"] < NEVER, log["flow_left"], 0.0)  # the run may end before a flow does
    ways = {(process, way): (links, memory) for process, way, links, memory in said["routes"]}
    code = (flows["process"] << 42) + (flows["way"] << 21) + flows["passes"]  # one number is sorted faster than three
    _, at, route = np.unique(code, return_index=True, return_inverse=True)
    keys = np.stack([flows[c][at] for c in ("process", "way", "passes")], 1)
    if unknown := [(p, w) for p, w, _ in keys.tolist() if (p, w) not in ways]:
        process, way = unknown[0]
        found.say(-1, f"a flow goes way {way} of process {process}", "a way that the run has")
        return
    routes = [(*ways[p, w][0], *ways[p, w][1][:n]) for p, w, n in keys.tolist()]
    through = np.array([len(ways[p, w][1]) for p, w, _ in keys.tolist()], np.int64)[route.reshape(-1)]
    if len(route) and page_ways.check(result, flows, moved, (ways, through), found):
        _ends(flows, moved, log["flow_cap"], route.reshape(-1).astype(np.int64), (routes, said["rates"]), found)
        _links(flows, moved, route.reshape(-1), (routes, said["rates"]), found)
        _engines(flows, said["engines"], said["copies"], found)


def _ends(flows: dict[str, Any], moved: Any, cap: Any, route: I64, between: tuple[Any, Any], found: Findings) -> None:
    first = int(flows["begin"].min())
    answer = ends(flows["begin"] - first, moved, cap, np.ones(len(route)), route, *between, NO_GRANTS).end + first
    wrong = (flows["end"] < NEVER) & (np.abs(answer - flows["end"]) > TICKS)
    for k in np.flatnonzero(wrong).tolist():
        what = f"flow {k}, of {moved[k]:.0f} bytes from {flows['begin'][k]} ns on, ends at {flows['end'][k]} ns"
        found.say(-1, what, f"{answer[k]} ns, by what its links let through")
    found.count("flows", len(route))


def _links(flows: dict[str, Any], moved: Any, route: I64, between: tuple[Any, Any], found: Findings) -> None:
    for link, rate in enumerate(between[1]):
        times = np.array([each.count(link) for each in between[0]])[route]
        mine = np.flatnonzero((flows["end"] < NEVER) & (times > 0))
        if len(mine) and np.isfinite(rate):
            load = moved[mine] * times[mine]
            worst, at = most_over(flows["begin"][mine], flows["end"][mine], load, rate)
            if worst > TICKS * rate + 1e-9 * load.sum():
                said = f"link {link} has carried {worst:.0f} bytes too many when flow {mine[at]} ends"
                found.say(-1, said, f"at most {rate:g} bytes/ns in every interval")


def _engines(flows: dict[str, Any], slots: list[list[int]], copies: list[list[int]], found: Findings) -> None:
    """Where copies take turns, no more of one direction flow at once than a GPU's copy engines have slots."""
    for gpu, both in enumerate(slots):
        for direction, most in enumerate(both):
            mine = np.flatnonzero((flows["process"] == gpu) & np.isin(flows["way"], copies[direction]))
            time = np.concatenate([flows["begin"][mine], flows["end"][mine]])
            change = np.repeat([1, -1], len(mine))
            order = np.lexsort((change, time))
            at_once = np.cumsum(change[order])
            for k in np.flatnonzero(at_once > most)[:1].tolist():
                what = f"{at_once[k]} copies in direction {direction} flow at {time[order[k]]} ns on GPU {gpu + 1}"
                found.say(-1, what, f"at most {most}, which take turns in its copy engines")

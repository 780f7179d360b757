"""Shared links, and those on which runs meet, against all that passes them: no link carries more than its rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gpusim.machine.topology.sharing import SharedLink
from gpusim.referee.activities import NEVER
from gpusim.referee.ends import Flow, Started
from gpusim.referee.meetings import Attendance
from gpusim.referee.rates import Carried, carried
from gpusim.referee.report import Findings
from gpusim.trace.trace import I64


class LinkTraffic(NamedTuple):
    """(n,) what flowed along one route, until when in the log (NEVER), and an activity of a rank for which it did."""

    flow: Flow
    end: I64
    rank: I64
    activity: I64
    record: I64  # of its end


def link_name(link: SharedLink) -> str:
    """The link as people call it."""
    return link if isinstance(link, str) else f"{link[1]} of rank {link[0]}"


def passed_by_ranks(runs: Sequence[Started], flows: Sequence[Sequence[Flow]]) -> list[LinkTraffic]:
    """What flowed for each rank by itself."""
    return [
        LinkTraffic(part, run.acts.end[part.rows], np.full(len(part.rows), rank), part.rows, run.acts.end_record[part.rows])
        for rank, (run, parts) in enumerate(zip(runs, flows, strict=True))
        for part in parts
    ]


def passed_in_meetings(there: Attendance, flows: Sequence[Flow], runs: Sequence[Started]) -> list[LinkTraffic]:
    """What flowed in meetings: each is shown by the member that was the first to end."""
    first = np.full(len(there.last), -1)
    order = np.argsort(-there.end, kind="stable")
    first[there.members.meeting[order]] = order  # the last that is entered ends first
    found = []
    for part in flows:
        who = first[part.rows]
        rank, row = there.members.rank[who], there.row[who]
        record = np.array([runs[r].acts.end_record[i] for r, i in zip(rank.tolist(), row.tolist(), strict=True)], np.int64)
        found.append(LinkTraffic(part, there.end[who], rank, row, record))
    return found


def check_loads(passed: Iterable[LinkTraffic], rates: Mapping[SharedLink, float], found: Sequence[Findings]) -> None:
    """Each of these links; rates in bytes/ns."""
    loads: dict[SharedLink, list[tuple[I64, ...]]] = {link: [] for link in rates}
    for p in passed:
        ended = p.end < NEVER
        for link in rates.keys() & set(p.flow.links):
            size = np.rint(p.flow.size * p.flow.unit * p.flow.links.count(link)).astype(np.int64)
            row = (p.activity, p.flow.begin, p.end, size, p.record, p.rank)
            loads[link].append(tuple(column[ended] for column in row))
    for link in sorted(rates, key=link_name):
        if loads[link]:
            activity, begin, end, size, record, rank = (np.concatenate(column) for column in zip(*loads[link], strict=True))
            whose = [found[r] for r in rank.tolist()]
            carried(Carried(activity, begin, end, size, record, whose), link_name(link), rates[link])
            for r, count in enumerate(np.bincount(rank, minlength=len(found)).tolist()):
                found[r].count("copies against shared links", count)

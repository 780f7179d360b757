"""What the jobs and GPUs of a cluster do over time, as the activities that a timeline shows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpusim.engine.cluster.outcome import ClusterOutcome
from gpusim.results.activities import Activities, ActivityLane
from gpusim.results.activities.rows import FAILURE, JOB, QUEUED, in_order, table

GPUS, WAITING = 64, 24  # lines of GPUs, of jobs that wait
MOST = 400_000  # rows: what is later is left out
_Span = tuple[float, float, int]  # start, end, job


def jobs_in_time(run: ClusterOutcome) -> tuple[Activities, str]:
    """The jobs on the first GPUs, each part of one on a line of its own, and those that wait; what is left out, as a sentence.

    Times are ns from the first arrival.
    """
    begin = run.jobs[0].arrival
    lanes: list[ActivityLane] = []
    spans: list[tuple[int, float, float, int]] = []
    kinds: list[int] = []
    on: dict[int, list[_Span]] = {}
    for each in run.placed:
        for gpu in each.gpus:
            if gpu < GPUS and each.end > each.start:
                on.setdefault(gpu, []).extend((each.start, each.end, job) for job in each.jobs)
    names = [node.kind for node in run.cluster.nodes for _ in range(node.gpus)]
    words, away = _failures(run)
    for gpu, when in away.items():
        there = on.setdefault(gpu, [])
        for begin_away, end, word in when:  # jobs hang on their GPUs until the failure is noticed
            hung = max((span[1] for span in there if span[0] < end and begin_away < span[1] <= end), default=begin_away)
            there.append((hung, end, word))
    for gpu in sorted(on):
        for number, line in enumerate(_lines(on[gpu])[0]):
            lanes.append(ActivityLane(f"GPU {gpu} {names[gpu]}" if not number else f"GPU {gpu} ({number + 1})", "stream", gpu))
            spans += [(len(lanes) - 1, *span) for span in line]
            kinds += [JOB if job < len(run.jobs) else FAILURE for *_, job in line]
    lines, left = _lines(_waits(run), WAITING)
    for number, line in enumerate(lines):
        lanes.append(ActivityLane(f"jobs that wait {number}", "request", number))
        spans += [(len(lanes) - 1, *span) for span in line]
        kinds += [QUEUED] * len(line)
    said = f"GPUs 0 to {GPUS - 1} of {run.cluster.gpus:,} are shown. " if run.cluster.gpus > GPUS else ""
    said += f"{left:,} waits found none of {WAITING} lines free and are not shown. " if left else ""
    order = np.argsort([span[1] for span in spans], kind="stable")[:MOST]
    if len(spans) > MOST:
        said += f"The first {MOST:,} rows of {len(spans):,} are shown."
    rows = table(len(order))
    jobs = [*[""] * len(run.jobs), *words]
    for row, i in zip(rows, order.tolist(), strict=True):
        lane, start, end, job = spans[i]
        row["lane"], row["kind"], row["name"] = lane, kinds[i], job
        row["start"], row["end"] = round((start - begin) * 1e9), round((end - begin) * 1e9)
        if job < len(run.jobs):
            jobs[job] = run.jobs[job].name or f"job {job}"
    return Activities(in_order(rows), tuple(lanes), tuple(jobs)), said.strip()


def _failures(run: ClusterOutcome) -> tuple[list[str], dict[int, list[_Span]]]:
    """What failed, in words; and when GPUs were away, each span with its word, numbered after the jobs."""
    words: dict[str, int] = {}
    found: dict[int, list[_Span]] = {}
    if run.failed is not None:
        first = np.concatenate([[0], np.cumsum([node.gpus for node in run.cluster.nodes])]).tolist()
        for each in run.failed.broken:
            word = words.setdefault(f"node {each.node}: {each.kind}", len(run.jobs) + len(words))
            for gpu in range(first[each.node], min(first[each.node + 1], GPUS)):
                if each.end > each.start:
                    found.setdefault(gpu, []).append((each.start, each.end, word))
    return list(words), found


def _waits(run: ClusterOutcome) -> list[_Span]:
    """From arrival, and from each stop, to the next start."""
    found: list[_Span] = []
    since: dict[int, float] = dict(enumerate(run.arrival.tolist()))
    placed = sorted((each.start, each.end, job) for each in run.placed for job in each.jobs)
    for start, end, job in placed:
        if start > since[job]:
            found.append((since[job], start, job))
        since[job] = max(since[job], end)
    last = float(run.at[-1])
    found += [(since[job], last, job) for job in np.flatnonzero(np.isnan(run.end)).tolist() if last > since[job]]
    return found


def _lines(spans: list[_Span], most: float = math.inf) -> tuple[list[list[_Span]], int]:
    """Spans on lines that they do not share at a time; how many found none of `most` lines free."""
    lines: list[list[_Span]] = []
    left = 0
    for span in sorted(spans):
        line: Any = next((each for each in lines if each[-1][1] <= span[0]), None)
        if line is not None:
            line.append(span)
        elif len(lines) < most:
            lines.append([span])
        else:
            left += 1
    return lines, left


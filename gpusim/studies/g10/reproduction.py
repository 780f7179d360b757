"""Our figures beside the published ones: every case once, on several processes, and a summary by policy."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from gpusim.studies.g10.study import LINKS, Case, CaseOutcome, G10Study, Published, load

NO_TRACE, AGREES, UNSUPPORTED, SUPPORTED, UNPUBLISHED = (
    "no trace", "", "unsupported, as published", "published as unsupported", "not published",
)  # fmt: skip


def reproduce(
    study: G10Study,
    rows: Sequence[Published],
    traces: Path,
    *,
    shipped_plans: bool = False,
    jobs: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """One row per published row: both figures and their difference.

    traces: a folder with the study's traces, and its plans in `plans`, which are used if `shipped_plans` is set.
    """
    cases = {row.case for row in rows if row.cycles is not None or row.unsupported}
    groups: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda c: (c.program, c.policy, c.host_gib, c.ssd)):
        groups.setdefault(case.program, []).append(case)
    work = partial(_run, study.path, traces, shipped_plans)
    found: dict[Case, CaseOutcome] = {}
    longest = sorted(groups.items(), key=lambda group: -len(group[1]))
    for n, outcomes in enumerate(_map(work, longest, jobs), 1):
        found.update(outcomes)
        progress(n, len(longest))
    return [_row(row, found.get(row.case), (traces / f"{row.case.program}.jsonl.gz").is_file()) for row in rows]


def _map(work: Callable[[Any], Any], groups: Sequence[Any], jobs: int) -> Iterator[dict[Case, CaseOutcome]]:
    if jobs == 1 or len(groups) < 2:
        yield from map(work, groups)
        return
    with ProcessPoolExecutor(min(jobs, len(groups)), multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(work, groups)


def _run(conditions: Path, traces: Path, shipped_plans: bool, group: tuple[str, Sequence[Case]]) -> dict[Case, CaseOutcome]:
    name, cases = group
    program, study = load(name, traces), G10Study(conditions)
    if program is None:
        return {}
    plan = traces / "plans" / f"{name}.g10plan.csv.gz"
    found = {}
    for case in cases:
        default = (case.host_gib, case.ssd, case.pcie) == (128, 3.2, 15.754)
        use = shipped_plans and default and case.policy == "prefetch_lru" and plan.is_file()
        found[case] = study.run(case, program, plan if use else None)
    return found


def _row(row: Published, outcome: CaseOutcome | None, has_trace: bool) -> dict[str, Any]:
    case = row.case
    made: dict[str, Any] = {
        "figure": row.figure, "network": case.network, "batch": case.batch, "policy": case.policy, "host_gib": case.host_gib,
        "ssd": case.ssd, "published": row.cycles, "ours": None, "difference": None, "pages": None, "note": AGREES,
    }  # fmt: skip
    if not has_trace:
        return {**made, "note": NO_TRACE}
    if outcome is not None:
        made |= {"ours": outcome.cycles, "iterations": list(outcome.iterations), "seconds": outcome.seconds}
    if outcome is None or (row.cycles is None and not row.unsupported):
        return {**made, "note": UNPUBLISHED}
    if row.cycles is None:
        return {**made, "note": UNSUPPORTED if outcome.cycles is None else SUPPORTED}
    if outcome.cycles is None:
        return {**made, "note": "unsupported, but published"}
    made["difference"] = outcome.cycles / row.cycles - 1
    if row.pages and outcome.pages:
        ours = dict(zip(LINKS, outcome.pages, strict=True))
        made["pages"] = max(abs(ours[link] - pages) / max(pages, 1) for link, pages in row.pages.items())
    return made


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By policy: how many rows there are, agree to the cycle, and how far the worst is off."""
    made = []
    for policy in dict.fromkeys(row["policy"] for row in rows):
        mine = [row for row in rows if row["policy"] == policy]
        off = [abs(row["difference"]) for row in mine if row["difference"] is not None]
        pages = [row["pages"] for row in mine if row["pages"] is not None]
        notes = Counter(row["note"] for row in mine)
        made.append(
            {
                "policy": policy, "rows": len(mine), "compared": len(off), "exact": sum(x < 1e-9 for x in off),
                "worst": max(off, default=None), "worst_pages": max(pages, default=None),
                "both_unsupported": notes[UNSUPPORTED], "not_published": notes[UNPUBLISHED], "no_trace": notes[NO_TRACE],
                "disagree": notes[SUPPORTED] + notes["unsupported, but published"],
                "seconds": sum(row.get("seconds", 0.0) for row in mine),
            }
        )  # fmt: skip
    return made


def rankings(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Where policies come in another order than published: "figure network-batch ...", none if nowhere.

    Those that are published within one cycle in 10,000 of each other share a place.
    """
    wrong = []
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["difference"] is not None:
            groups.setdefault(tuple(row[k] for k in ("figure", "network", "batch", "host_gib", "ssd")), []).append(row)
    for key, members in groups.items():
        for a in members:
            for b in members:
                if a["published"] < b["published"] * (1 - 1e-4) and a["ours"] >= b["ours"]:
                    wrong.append(f"figure {key[0]}, {key[1]}-{key[2]}: {a['policy']} before {b['policy']}")
    return wrong

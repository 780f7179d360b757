"""The ranks of one run as a table: equal neighbours share a row."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.base.text import table as text_table
from gpusim.programs.ranks.layout import AS_RECORDED
from gpusim.results.result import Result
from gpusim.show.view import contenders, ending, human, main_metric, run_name, value, varying

COLUMNS = {
    "time": "makespan_ns", "kernels run": "compute_busy_ns", "stalls": "stall_ns",
    "exchanges wait, summed": "collective_wait_ns", "recorded": "recorded_collective_wait_ns", "sends": "collective_bytes",
    "holds at most": "reserved_peak_bytes", "swaps in": "h2d_bytes",
}  # fmt: skip
"""Heading -> metric."""


def rows(result: Result) -> list[dict[str, str]]:
    """One for each rank, or for several in a row of which all of this is equal; none of a run of one GPU.

    Of a run beside others one for each program.
    """
    number, place = ("program", "") if result.beside else ("ranks", "on")
    said = [_row(rank) for rank in result.ranks]
    shown: list[dict[str, str]] = []
    first = 0
    for i, row in enumerate(said):
        if i + 1 == len(said) or said[i + 1] != row:
            shown.append({number: _numbers(first, i), place: _gpus(result.ranks[first : i + 1]), **row})
            first = i + 1
    untimed = "times" in result.spec.get("unanswered", ())
    empty = [
        name for name, metric in COLUMNS.items()
        if (untimed and metric.endswith("_ns")) or all(row[name] in ("-", "0 B", "0 s", "0 ns") for row in shown)
    ]
    return [{name: text for name, text in row.items() if name not in empty} for row in shown]


def of_ranks(results: Sequence[Result]) -> str:
    """The ranks of the best run, or of the only one; "" where runs have none."""
    metric = main_metric(results)
    known = [(found, r) for r in contenders(results) if r.ranks and (found := value(r, metric)) is not None]
    if not known:
        return ""
    best = min(known, key=lambda pair: pair[0])[1]
    layout = str(best.spec.get("parallel", ""))
    alone = str(best.spec.get("trace", "")) if layout == AS_RECORDED else layout
    name = run_name(best, varying(results)) if len(results) > 1 else alone
    shown = rows(best)
    what = "Programs" if best.beside else "Ranks"
    return f"{what} of {name}\n{text_table(shown, [*dict.fromkeys(column for row in shown for column in row)])}"


def _row(rank: Result) -> dict[str, str]:
    if rank.spec.get("absent"):
        return {**dict.fromkeys(COLUMNS, "-"), "ends": "not recorded"}
    numbers = {name: human(metric, rank.metrics.get(metric)) for name, metric in COLUMNS.items()}
    return numbers | ({"ends": ending(rank)} if not rank.finished else {})


def _numbers(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def numbers(ranks: Sequence[int], what: str = "rank") -> str:
    """"rank 3", "ranks 0 to 3", "ranks 0, 2, 4": ascending numbers in words."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and spans[-1][1] + 1 == rank:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    said = ", ".join(_numbers(first, last) if last != first + 1 else f"{first}, {last}" for first, last in spans)
    return f"{what} {said}" if len(ranks) == 1 else f"{what}s {said}"


def _gpus(ranks: Sequence[Result]) -> str:
    names = [str(rank.spec.get("gpu", "")) for rank in ranks]
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"

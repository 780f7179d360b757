"""Which allocator wastes least: four measures of fragmentation, and which reserves least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpusim.base.text import join
from gpusim.base.units import show_bytes, show_fraction
from gpusim.results.metrics import same
from gpusim.results.result import Result
from gpusim.show.groups import in_order
from gpusim.show.view import ending, pick, run_name, value, varying

MOST = 10
COUNTED = "failures"
# title, what it is, share of 1 (or a count) or None when not measured
MEASURES: tuple[tuple[str, str, Callable[[Result], float | None]], ...] = (
    ("internal", "lost to rounding", lambda r: value(r, "frag_internal")),
    ("unused", "of reserved peak", lambda r: _complement(value(r, "frag_utilisation"))),
    ("external", "beside largest hole", lambda r: value(r, "frag_external")),
    (COUNTED, "not in one piece", lambda r: value(r, "frag_failures")),
)


@dataclass(frozen=True)
class Wasted:
    """One run with its measures by title: shares up to 1, and a count of failures."""

    name: str
    oracle: bool
    measures: dict[str, float | None]
    ending: str


@dataclass(frozen=True)
class Waste:
    """Runs that one figure shows, in the order of all figures; what that answers, and a note of what is left out."""

    runs: tuple[Wasted, ...]
    shown: tuple[Result, ...]
    answer: str
    note: str


def waste(results: Sequence[Result], most: int = MOST) -> Waste:
    """At most so many of the runs."""
    shown, note = pick(results, most)
    keys = varying(shown)
    shown = in_order(shown, results)
    found = tuple(
        Wasted(run_name(r, keys, alone="place"), r.oracle, {title: of(r) for title, _, of in MEASURES}, ending(r))
        for r in shown
    )  # fmt: skip
    return Waste(found, tuple(shown), _answer(shown, [run.name for run in found]), note)


def words(title: str, number: float | None) -> str:
    """A measure for people."""
    if number is None:
        return "-"
    if title == COUNTED:
        return f"{number:,.0f}"
    return "< 0.1 %" if 0 < number < 0.001 else show_fraction(number, 2)


def _complement(share: float | None) -> float | None:
    return None if share is None else 1 - share


def _answer(shown: Sequence[Result], names: Sequence[str]) -> str:
    """The allocator that reserves least for the same program, and those that fail."""
    held = [(value(r, "reserved_peak_bytes"), n) for r, n in zip(shown, names, strict=True) if r.finished]
    known = sorted((v, n) for v, n in held if v is not None)
    failed = [f"{n} ({ending(r)})" for r, n in zip(shown, names, strict=True) if not r.finished]
    sentences = []
    if known:
        best = max(known[0][0], 1.0)
        winners = [n for v, n in known if same(v, best)]
        if len(known) == 1:
            sentences.append(f"{known[0][1]} reserves {show_bytes(best)}.")
        elif len(winners) == len(known):
            sentences.append(f"All reserve {show_bytes(best)} within 1 %.")
        else:
            most, last = known[-1]
            verb = "reserves" if len(winners) == 1 else "reserve"
            more = f"{show_fraction(most / best - 1, 2)} more" if most < 2 * best else f"{most / best:.1f} times as much"
            sentences.append(f"{join(winners)} {verb} least, {show_bytes(best)}; {last} reserves {more}.")
    if failed:
        sentences.append(f"Failed: {join(failed)}.")
    return " ".join(sentences)

"""How much each run moves in either direction, and the least that any eviction policy has to bring in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.base.units import show_bytes
from gpusim.results.result import Result
from gpusim.show.groups import in_order
from gpusim.show.view import ending, pick, ratio, run_name, value, varying

MOST = 14
IN, OUT, BOUND = "h2d_bytes", "d2h_bytes", "bound_swap_in_bytes"


@dataclass(frozen=True)
class RunTraffic:
    """One run: bytes, of one that failed until then."""

    name: str
    oracle: bool
    came: float
    left: float
    least: float | None  # must come in, whatever is evicted when; None where that is not known
    ending: str


@dataclass(frozen=True)
class Traffic:
    """Runs that one figure shows, in the order of all figures; what that answers, and a note of what is left out."""

    runs: tuple[RunTraffic, ...]
    answer: str
    note: str


def traffic(results: Sequence[Result], most: int = MOST) -> Traffic:
    """At most so many of the runs."""
    shown, note = pick(results, most)
    keys = varying(shown)
    found = [
        RunTraffic(run_name(r, keys), r.oracle, value(r, IN) or 0.0, value(r, OUT) or 0.0, value(r, BOUND), ending(r))
        for r in in_order(shown, results)
    ]  # fmt: skip
    return Traffic(tuple(found), _answer(found), note)


def _answer(shown: Sequence[RunTraffic]) -> str:
    ended = [r for r in shown if not r.ending]
    finished = sorted([r for r in ended if not r.oracle] or ended, key=lambda r: r.came + r.left)
    if not finished:
        return "No run finished."
    if not any(r.came + r.left for r in finished):
        return "Nothing is moved."
    sentences = []
    for run, word in ((finished[0], "least"), (finished[-1], "most")):
        if run is finished[0] and word == "most":
            break
        subject = f"{run.name} moves {word}: " if len(finished) > 1 else "Moved: "
        above = ratio(run.came, run.least)
        over = f" ({above:.2g} times what must come in)" if above is not None else ""
        sentences.append(f"{subject}{show_bytes(run.came)} in{over}, {show_bytes(run.left)} out.")
    return " ".join(sentences)

"""How the runs of one place stand to each other: the best, ties, failures, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpusim.results.metrics import metric as declared
from gpusim.results.metrics import same
from gpusim.results.result import Result
from gpusim.results.sampled import Push
from gpusim.show.groups import by_line, grouped, mean, oracles
from gpusim.show.interval import by_turns, flips, held, interval, samples
from gpusim.show.view import contenders, ending, layout, line_name, main_metric, number, place_name


@dataclass(frozen=True)
class Standing:
    """The comparison in one place: one machine, program and memory size."""

    where: str  # "A100 · 60 % memory", "" when there is only one place
    panel: str  # "A100", "" when there is only one machine and program
    along: str  # "60 % memory", "" when no number varies
    ranking: tuple[tuple[str, float], ...]  # (name, metric), best first, without oracles
    oracles: tuple[tuple[str, float], ...]
    failed: tuple[tuple[str, str], ...]  # (name, how it ended)
    finished: tuple[str, ...]  # the others, whether the metric is known of them or not
    better: str
    samples: int = 0  # machines on which the comparison was repeated
    held: int = 0  # those on which the best stays best, or within 1 % of it
    bars: tuple[float, float] | None = None  # p10 and p90 of the best over them
    turns: tuple[str, ...] = ()  # those now ahead of the best, now behind it
    broken: dict[str, int] = field(default_factory=dict)  # those that do not finish, on how many of them
    flips: dict[Push, tuple[str, ...]] = field(default_factory=dict)  # the number that would put others ahead, and which

    @property
    def winners(self) -> tuple[str, ...]:
        """The best, and those within 1 % of it or in turns with it."""
        return tuple(n for n, v in self.ranking if same(v, self.ranking[0][1]) or n in self.turns)


def standings(results: Sequence[Result], metric: str = "") -> list[Standing]:
    """One standing per place, hardest first within each panel; the varying policies are what competes."""
    metric = metric or main_metric(results)
    plan = layout(results)
    better = declared(metric).better or "lower"
    future = oracles(results, plan.lines) - {line_name(r, plan.lines) for r in contenders(results)}
    made = []
    for panel, runs in grouped(results, plan.panels).items():
        there = grouped(runs, [*plan.panels, *([plan.across] if plan.across else [])])
        if plan.across:  # the smallest memory is the hardest place
            there = dict(sorted(there.items(), key=lambda item: number(item[1][0].spec.get(plan.across)) or 0.0))
        for where, here in there.items():
            lines = by_line(here, plan.lines)
            values = {n: v for n, rs in lines.items() if (v := mean(rs, metric)) is not None}
            order = sorted(values.items(), key=lambda nv: (nv[1] if better == "lower" else -nv[1], nv[0]))
            ranking = tuple((n, v) for n, v in order if n not in future)
            ended = {n: next(filter(None, map(ending, rs)), "") for n, rs in lines.items()}
            made.append(
                Standing(
                    where,
                    panel,
                    place_name(here[0], [plan.across]) if plan.across else "",
                    ranking,
                    tuple((n, v) for n, v in order if n in future),
                    tuple((n, e) for n, e in ended.items() if e),
                    tuple(n for n, e in ended.items() if not e),
                    better,
                    **_sureness([(n, lines[n]) for n, _ in ranking], metric),
                )
            )
    return made


def _sureness(ranking: Sequence[tuple[str, list[Result]]], metric: str) -> dict[str, Any]:
    """What a standing says of the sampled machines; nothing where there are none."""
    drawn = {name: found for name, runs in ranking if (found := samples(runs, metric)) is not None}
    if not ranking or len(drawn) < len(ranking):
        return {}
    (best, runs), *rest = ranking
    return {
        "samples": len(drawn[best]),
        "held": held(drawn[best], [drawn[name] for name, _ in rest]),
        "bars": interval(runs, metric),
        "turns": tuple(name for name, _ in rest if by_turns(drawn[best], drawn[name])),
        "broken": {name: n for name, column in drawn.items() if (n := int(np.isinf(column).sum()))},
        "flips": flips(dict(ranking), metric),
    }

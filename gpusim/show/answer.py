"""What the numbers say, in sentences: who wins, by how much, who ties, where that changes, who does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.groups import by_line, grouped, mean, oracles
from gpusim.show.view import ORACLE, contenders, ending, human, join, layout, line_name, main_metric, number, same


@dataclass(frozen=True)
class Standing:
    """The comparison in one place: one machine, program and memory size."""

    where: str  # "A100 · memory 60 %", "" when there is only one place
    ranking: tuple[tuple[str, float], ...]  # (name, metric), best first, without oracles
    oracles: tuple[tuple[str, float], ...]
    failed: tuple[tuple[str, str], ...]  # (name, how it ended)
    better: str

    @property
    def winners(self) -> tuple[str, ...]:
        """The best, and those within 1 % of it."""
        return tuple(n for n, v in self.ranking if same(v, self.ranking[0][1]))


def standings(results: Sequence[Result], metric: str = "") -> list[Standing]:
    """One standing per place, hardest first within each panel; the varying policies are what competes."""
    metric = metric or main_metric(results)
    plan = layout(results)
    better = declared(metric).better or "lower"
    future = oracles(results, plan.lines) - {line_name(r, plan.lines) for r in contenders(results)}
    made = []
    for runs in grouped(results, plan.panels).values():
        there = grouped(runs, [*plan.panels, *([plan.across] if plan.across else [])])
        if plan.across:  # the smallest memory is the hardest place
            there = dict(sorted(there.items(), key=lambda item: number(item[1][0].spec.get(plan.across)) or 0.0))
        for where, here in there.items():
            lines = by_line(here, plan.lines)
            values = {n: v for n, rs in lines.items() if (v := mean(rs, metric)) is not None}
            order = sorted(values.items(), key=lambda nv: (nv[1] if better == "lower" else -nv[1], nv[0]))
            made.append(
                Standing(
                    where,
                    tuple((n, v) for n, v in order if n not in future),
                    tuple((n, v) for n, v in order if n in future),
                    tuple((n, e) for n, rs in lines.items() if (e := next((e for r in rs if (e := ending(r))), ""))),
                    better,
                )
            )
    return made


def answer(results: Sequence[Result], metric: str = "") -> str:
    """A short paragraph; "" when there is nothing to compare."""
    metric = metric or main_metric(results)
    places = standings(results, metric)
    decided = [p for p in places if p.ranking]
    if not decided:
        failed = next((p.failed for p in places if p.failed), ())
        return f"No run finished: {join(sorted({e for _, e in failed}))}." if failed else ""
    if len(decided) == 1 and len(decided[0].ranking) == 1 and not decided[0].oracles and not decided[0].failed:
        return f"{declared(metric).label.capitalize()}: {human(metric, decided[0].ranking[0][1])}."
    # The hardest place in which at least half of the competitors finish; the verdict over a lone survivor says little.
    hardest = next((p for p in decided if len(p.ranking) + len(p.oracles) >= len(p.failed)), decided[0])
    sentences = [_verdict(hardest, metric), _against_oracle(hardest, metric)]
    if len(decided) > 1:
        sentences.append(_elsewhere(decided, hardest))
    sentences.append(_failures(places))
    return " ".join(s for s in sentences if s)


def _verdict(place: Standing, metric: str) -> str:
    """Who is best here, and how far the rest is."""
    names, best = place.winners, place.ranking[0][1]
    rest = [(n, v) for n, v in place.ranking if n not in names]
    label = declared(metric).label
    start = f"At {place.where}: " if place.where else ""
    if len(names) == len(place.ranking) > 1:
        return f"{start}{join(names)} tie, {label} {human(metric, best)}."
    best_of = {"lower": "lowest", "higher": "highest"}[place.better]
    lead = f"{start}{join(names)} {'tie for' if len(names) > 1 else 'has'} the {best_of} {label}, {human(metric, best)}"
    if not rest:
        return lead + "."
    if len(rest) > 3:
        (near, v), (far, w) = rest[0], rest[-1]
        return f"{lead}; next is {near} with {human(metric, v)}, last is {far} with {human(metric, w)}."
    alike: dict[str, list[str]] = {}  # those that read the same are named together
    for n, v in rest:
        alike.setdefault(human(metric, v), []).append(n)
    return f"{lead}; " + join([f"{join(ns)} {_have(ns)} {v}" for v, ns in alike.items()]) + "."


def _against_oracle(place: Standing, metric: str) -> str:
    if not place.oracles:
        return ""
    name, value = place.oracles[0]
    return f"{name}{ORACLE}, which reads the future, has {human(metric, value)}."


def _elsewhere(decided: Sequence[Standing], hardest: Standing) -> str:
    """Where the winner of the hardest place does not win."""
    ahead = set(hardest.winners)
    rest = [p for p in decided if p is not hardest and len(p.ranking) > 1]
    other = [p for p in rest if not ahead & set(p.winners)]
    if not other:
        if rest and all(len(p.winners) == len(p.ranking) for p in rest):
            return "Everywhere else all tie."
        best = [n for n in hardest.winners if rest and all(n in p.winners for p in rest)]
        return f"{join(best)} {_are(best)} best or tied everywhere." if best else ""
    changes = [f"at {p.where} {join(p.winners)} {_are(p.winners)} ahead" for p in other[:2]]
    more = f" (and {len(other) - 2} more places)" if len(other) > 2 else ""
    return f"That changes: {join(changes)}{more}."


def _failures(places: Sequence[Standing]) -> str:
    """Who fails where: where none finishes, where few do, and for the other places by name."""
    none = [p.where for p in places if p.failed and not p.ranking and not p.oracles]
    few = [p for p in places if p.where not in none and len(p.failed) > len(p.ranking) + len(p.oracles)]
    sentences = []
    if none and len(places) > 1:
        sentences.append(f"At {_listed(none)} none finishes.")
    for p in few[:2]:
        names = [n for n, _ in (*p.ranking, *p.oracles)]
        sentences.append(f"At {p.where} only {join(names)} {'finishes' if len(names) == 1 else 'finish'}.")
    failed: dict[tuple[str, str], list[str]] = {}
    for p in places:
        if p.where not in none and p not in few[:2]:
            for name, how in p.failed:
                failed.setdefault((name, how), []).append(p.where)
    by_place: dict[tuple[str, str], list[str]] = {}
    for (name, how), where in failed.items():
        by_place.setdefault((how, f" at {_listed(where)}" if any(where) else ""), []).append(name)
    sentences += [f"{join(names)} {_ends(how, names)}{spot}." for (how, spot), names in by_place.items()]
    return " ".join(sentences)


def _listed(where: Sequence[str]) -> str:
    """At most three places by name."""
    return join(where) if len(where) <= 3 else join([*where[:2], f"{len(where) - 2} more places"])


def _ends(how: str, names: Sequence[str]) -> str:
    words = {"out of memory": "out of memory", "host out of memory": "out of host memory"}.get(how)
    return f"{'runs' if len(names) == 1 else 'run'} {words}" if words else how


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"

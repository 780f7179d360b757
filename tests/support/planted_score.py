"""How well a doctor's answers agree with the planted truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

CAUSES = ("shortage", "impossible", "fragmentation", "leak", "foreign", "cached", "other_device")
SHARE = 0.02
Doctor = Callable[[dict[str, Any]], Any]


@dataclass
class Score:
    """Counts over the cases; `bad` names the seeds of each kind of error."""

    cases: int = 0
    fine: int = 0  # in which nothing is wrong
    found: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    details: Counter[bool] = field(default_factory=Counter)
    advised: int = 0
    false_advice: int = 0
    unknown_advice: int = 0  # of a setting of which the truth is not known
    wanted: int = 0  # cases in which some setting is worth setting
    no_advice: int = 0
    alarms: int = 0  # cases with nothing wrong in which something was said
    refused: int = 0
    errors: list[tuple[float, int, str]] = field(default_factory=list)
    bad: dict[str, list[int]] = field(default_factory=dict)

    def note(self, what: str, seed: int) -> None:
        self.bad.setdefault(what, []).append(seed)

    def precision(self, cause: str) -> float:
        return self.found[cause] / ((self.found[cause] + self.false[cause]) or 1)

    def recall(self, cause: str) -> float:
        return self.found[cause] / ((self.found[cause] + self.missed[cause]) or 1)


def score(cases: Iterable[dict[str, Any]], doctor: Doctor) -> Score:
    found = Score()
    for case in cases:
        answer = doctor(case)
        found.cases += 1
        _causes(found, case, answer)
        _advice(found, case, answer)
    return found


def _causes(found: Score, case: dict[str, Any], answer: Any) -> None:
    truth, seed = set(case["truth"]["causes"]), case["seed"]
    said = {cause.kind for cause in answer.causes}
    if "impossible" in said:
        said.add("shortage")  # by definition
    if answer.refusal:
        found.refused += 1
        found.note("refused", seed)
    found.fine += not truth
    if not truth and said:
        found.alarms += 1
    for cause in CAUSES:
        counts = found.found if cause in truth & said else found.missed if cause in truth else found.false
        if cause in truth | said:
            counts[cause] += 1
        if cause in truth ^ said:
            found.note(f"{'missed' if cause in truth else 'false'} {cause}", seed)
    details = {cause.detail.split()[0].rstrip(":,;") for cause in answer.causes if cause.kind == "fragmentation"}
    if case["truth"]["details"] and details:
        right = bool(details & set(case["truth"]["details"]))
        found.details[right] += 1
        if not right:
            found.note("other kind of fragmentation", seed)


def worth(case: dict[str, Any], conf: str) -> bool | None:
    """Whether a setting helps: it serves the failed request, or holds so much less.  None: unknown, or too close."""
    truth = case["truth"]
    known, figures = truth["settings"].get(conf), truth["figures"]
    if known is None:
        return None
    if "request" in figures:
        return None if known["serves"] == "unsure" else bool(known["serves"])
    if known["serves"] is not True:
        return None if known["serves"] == "unsure" else False
    least, most = known["saves"]
    if least < SHARE * figures["total"] <= most:
        return None
    return bool(least >= SHARE * figures["total"])


def _advice(found: Score, case: dict[str, Any], answer: Any) -> None:
    truth, seed = case["truth"], case["seed"]
    given = [remedy for remedy in answer.advice if remedy.kind == "setting"]
    for remedy in given:
        found.advised += 1
        right = worth(case, remedy.setting)
        if right is False:
            found.false_advice += 1
            found.note("false advice", seed)
        if remedy.setting not in truth["settings"]:
            found.unknown_advice += 1
            continue
        held = truth["settings"][remedy.setting]["held"]
        if held and remedy.serves:
            low, high = held
            off = max(low - remedy.held, remedy.held - high, 0) / low
            found.errors.append((off, seed, remedy.setting))
            if off > SHARE:
                found.note("saving off", seed)
    if any(worth(case, conf) for conf in truth["settings"]):
        found.wanted += 1
        if not given:
            found.no_advice += 1
            found.note("no advice", seed)


def table(found: Score) -> str:
    lines = [f"{found.cases} programs, {found.fine} with nothing wrong ({found.alarms} alarmed), {found.refused} refused",
             "cause            programs  precision  recall"]  # fmt: skip
    for cause in CAUSES:
        number = found.found[cause] + found.missed[cause]
        lines.append(f"{cause:16} {number:8}  {found.precision(cause):8.1%} {found.recall(cause):8.1%}")
    errors = sorted((off for off, _, _ in found.errors), reverse=True)
    lines.append(f"kind of fragmentation right in {found.details[True]} of {sum(found.details.values())}")
    lines.append(f"advice: {found.advised} settings, {found.false_advice} false, {found.unknown_advice} of unknown effect; "
                 f"none in {found.no_advice} of {found.wanted} programs that it would help")  # fmt: skip
    if errors:
        off = sum(error > SHARE for error in errors)
        lines.append(f"held under the setting: {off} of {len(errors)} off by more than 2 %, the largest by {errors[0]:.1%}")
    for what, seeds in sorted(found.bad.items()):
        lines.append(f"  {what}: seeds {' '.join(map(str, seeds[:12]))}{' ...' if len(seeds) > 12 else ''}")
    return "\n".join(lines)

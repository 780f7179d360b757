"""What a search came to: the best, what it is better than, which knobs matter, and the lines to copy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from gpusim.base.text import Cells, join, table
from gpusim.base.units import show_fraction
from gpusim.results.metrics import same
from gpusim.results.result import HOST_OOM, OOM
from gpusim.show.view import ORACLE, human
from gpusim.studies.tuning.axes import keys
from gpusim.studies.tuning.goals import Goal
from gpusim.studies.tuning.space import Knob
from gpusim.studies.tuning.trials import BACK, GRID, SEARCH, WRITTEN, Trial
from gpusim.studies.tuning.tune import Tuned, competing

MOST_REASONS = 3  # why trials came to nothing, by name
_IMPORTANCE = "Importance: share in reaching the best tenth."
_NUMBER = re.compile(r"\d[\d.]*")
_ENDINGS = {OOM: "out of memory", HOST_OOM: "host out of memory"}
_ORIGINS = {WRITTEN: "as written", SEARCH: "search"}


def text(tuned: Tuned, experiment: str = "") -> str:
    """All of it for people; `experiment` is what the command line calls it."""
    first, *others = [table(rows, list(rows[0])) for _, rows in tables(tuned)] or [""]
    parts = [extent(tuned), first, said(tuned), *others, _IMPORTANCE if any(tuned.importance.values()) and others else ""]
    if others and len(tuned.asked.goals) == 1:
        parts += [f"To copy:\n\n{copied(tuned.best())}", command(tuned.best(), experiment) if experiment else ""]
    return "\n\n".join(part for part in parts if part)


def tables(tuned: Tuned) -> list[tuple[str, list[Cells]]]:
    """Title and rows of what it came to, and of the knobs; none where no trial finished."""
    if tuned.best() is None:
        return []
    found = ("The Pareto front", _front(tuned)) if len(tuned.asked.goals) > 1 else ("The best", _compared(tuned))
    return [found, ("The knobs", _knobs(tuned))]


def said(tuned: Tuned) -> str:
    """How much better the best is than the experiment as written and than the grid, in sentences; the house's ties are ties."""
    best, goal = tuned.best(), tuned.asked.goals[0]
    if best is None:
        return f"No trial finished: {_reasons(tuned.trials)}."
    if len(tuned.asked.goals) > 1:
        return _fronts(tuned)
    written, by_grid = tuned.best(origins=(WRITTEN,)), tuned.best(origins=(GRID,))
    words = []
    if written is None:
        why = {_ENDINGS.get(trial.why, trial.why) for trial in tuned.of(WRITTEN)}
        words.append(f"The experiment as written does not finish: {join(sorted(why))}.")
    elif same(value(best), value(written)):
        words.append("Nothing is gained: the experiment as written ties with the best.")
    else:
        words.append(f"The best has {_apart(goal, best, written)} than the experiment as written.")
    if tuned.complete:
        words.append("These are all points of the space.")
    if by_grid is not None:
        count = len(tuned.of(GRID))
        if same(value(best), value(by_grid)):
            words.append(f"A grid of {count} points ties with it.")
        elif goal.better(value(best), value(by_grid)):
            words.append(f"It has {_apart(goal, best, by_grid)} than the best of a grid of {count} points.")
        else:
            words.append(f"A grid of {count} points found better: {_apart(goal, by_grid, best)}.")
    if ties := tuned.tied():
        least = min([best, *ties], key=lambda trial: len(changes(tuned, trial)))
        words.append(f"{len(ties)} other {'trial ties' if len(ties) == 1 else 'trials tie'} with it (within 1 %).")
        if least is not best and (changed := changes(tuned, least)):
            words.append(f"Of these {join([f'{k}={v}' for k, v in changed.items()])} changes least.")
    return " ".join(words)


def values(tuned: Tuned) -> dict[str, Any]:
    """The same as JSON values: numbers in base units, the trials in the order in which they were asked."""
    goals = tuned.asked.goals
    return {
        "question": tuned.question, "folder": str(tuned.folder), "answer": said(tuned),
        "goals": [{"metric": g.metric, "better": "lower" if g.sign > 0 else "higher", "per": g.per} for g in goals],
        "budget": tuned.asked.budget, "seed": tuned.asked.seed, "runs_per_trial": tuned.places, "complete": tuned.complete,
        "best": _row(tuned, tuned.best()), "as_written": _row(tuned, tuned.best(origins=(WRITTEN,))),
        "grid": _row(tuned, tuned.best(origins=(GRID,))), "front": [_row(tuned, trial) for trial in tuned.front()],
        "set": sets(tuned.best()), "tied": len(tuned.tied()), "importance": tuned.importance,
        "trials": [_row(tuned, trial) for trial in tuned.trials],
    }  # fmt: skip


def copied(trial: Trial | None) -> str:
    """The lines of YAML that make the experiment this trial."""
    nested: dict[str, Any] = {}
    for axis, line in (trial.lines if trial else {}).items():
        *above, last = keys(axis)
        inner = nested
        for key in above:
            inner = inner.setdefault(key, {})
        inner[last] = line
    return yaml.safe_dump(nested, sort_keys=False, allow_unicode=True, width=1000).rstrip()


def sets(trial: Trial | None) -> list[str]:
    """The same as values of `--set`."""
    return [f"{axis}={line}" for axis, line in (trial.lines if trial else {}).items()]


def command(trial: Trial | None, experiment: str) -> str:
    """The command that runs it alone."""
    return " ".join(["gpusim run", shlex.quote(experiment), *(f"--set {shlex.quote(each)}" for each in sets(trial))])


def changes(tuned: Tuned, trial: Trial) -> dict[str, str]:
    """The axes on which a trial is not what the experiment has as written."""
    written = [each.lines for each in tuned.of(WRITTEN)]
    nearest = min(written, key=lambda lines: sum(lines[axis] != line for axis, line in trial.lines.items()), default={})
    return {axis: line for axis, line in trial.lines.items() if nearest.get(axis) != line}


def value(trial: Trial, goal: int = 0) -> float:
    """What the trial came to; it has values."""
    assert trial.values is not None
    return trial.values[goal]


def extent(tuned: Tuned) -> str:
    """How much was run, for what."""
    trials, back = tuned.of(WRITTEN, SEARCH), len(tuned.of(BACK))
    each = f" of {tuned.places} runs each" if tuned.places > 1 else ""
    goals = join([f"{'least' if goal.sign > 0 else 'most'} {goal.label}" for goal in tuned.asked.goals])
    mean = ", as the geometric mean over the runs of a trial" if tuned.places > 1 else ""
    more = f", then {back} of the best with one knob as written," if back else ""
    words = f"{len(trials)} trials{each} ({len(tuned.of(WRITTEN))} as written){more} for the {goals}{mean}."
    lost = [trial for trial in trials if trial.values is None]
    return words + (f" {len(lost)} came to nothing: {_reasons(lost)}." if lost else "")


def _reasons(trials: Any) -> str:
    alike: dict[str, list[str]] = {}  # reasons that differ in numbers only are told once
    for why in (_ENDINGS.get(trial.why, trial.why) for trial in trials if trial.values is None):
        alike.setdefault(_NUMBER.sub("", why), []).append(why)
    found = sorted(alike.values(), key=len, reverse=True)
    told = [f"{len(whys)} {whys[0]}" for whys in found[:MOST_REASONS]]
    left = sum(map(len, found[MOST_REASONS:]))
    return "; ".join([*told, *([f"{left} for other reasons"] if left else [])])


def _compared(tuned: Tuned) -> list[Cells]:
    """The best beside the experiment as written, references that read the future, and the grid."""
    goal = tuned.asked.goals[0]
    written = [trial for trial in tuned.of(WRITTEN) if trial.values is not None]
    oracles = [trial for trial in written if trial not in competing(written)]
    rows = [("best", tuned.best()), ("as written", tuned.best(origins=(WRITTEN,)))]
    rows += [("as written", trial) for trial in oracles]
    rows += [(f"grid of {len(tuned.of(GRID))}", tuned.best(origins=(GRID,)))]
    there = [(name, trial) for name, trial in rows if trial is not None]
    return [{"": name, goal.label: human(goal.metric, value(trial)), "with": _lines(trial)} for name, trial in there]


def _front(tuned: Tuned) -> list[Cells]:
    """The Pareto front, with where each trial comes from."""
    goals = tuned.asked.goals
    rows = [(_ORIGINS[trial.origin], trial) for trial in tuned.front()]
    written = [trial for trial in competing(tuned.of(WRITTEN)) if trial not in tuned.front()]
    rows += [("as written, not on the front", trial) for trial in written]
    return [
        {"": name, **{g.label: human(g.metric, value(trial, i)) for i, g in enumerate(goals)}, "with": _lines(trial)}
        for name, trial in rows
    ]


def _fronts(tuned: Tuned) -> str:
    """How the front of the search stands to that of the grid: how much of each the other reaches, within a tie."""
    ours, theirs = tuned.front(), tuned.front((GRID,))
    words = [f"The Pareto front has {len(ours)} {'trial' if len(ours) == 1 else 'trials'}."]
    if theirs:
        reached, missed = (sum(_reached(tuned, t, by) for t in of) for of, by in ((theirs, ours), (ours, theirs)))
        there = f"the {len(theirs)} on the front of a grid of {len(tuned.of(GRID))} points"
        words.append(f"It is as good as, or better than, {reached} of {there} (within 1 %), and that front {missed} of its.")
    return " ".join(words)


def _reached(tuned: Tuned, trial: Trial, front: list[Trial]) -> bool:
    """Whether one of the front is as good in each goal."""
    def as_good(other: Trial, i: int, goal: Goal) -> bool:
        return same(value(trial, i), value(other, i)) or goal.better(value(other, i), value(trial, i))

    return any(all(as_good(other, i, goal) for i, goal in enumerate(tuned.asked.goals)) for other in front)


def _knobs(tuned: Tuned) -> list[Cells]:
    """Each knob: what was searched, what is best, how much it matters."""
    best, several = tuned.best(), len(tuned.asked.goals) > 1
    rows: list[Cells] = []
    for knob in tuned.space.knobs:
        row = {"knob": knob.path, "searched": _searched(knob)}
        if not several:
            row["best"] = "-" if best is None or best.point is None or knob.path not in best.point else (
                knob.write(best.point[knob.path])
            )
            row["alone as written"] = _back(tuned, knob)
        for metric, shares in tuned.importance.items():
            row[f"importance for {metric}" if several else "importance"] = (
                show_fraction(shares[knob.path], 2) if knob.path in shares else "-"
            )
        rows.append(row)
    return rows


def _back(tuned: Tuned, knob: Knob) -> str:
    """What the best becomes with this knob as written."""
    trial = tuned.back(knob)
    if trial is None:
        return "-"
    return _ENDINGS.get(trial.why, "refused") if trial.values is None else human(tuned.asked.goals[0].metric, value(trial))


def _searched(knob: Knob) -> str:
    return str(knob.values) if not isinstance(knob.values, tuple) else ", ".join(knob.values)


def _lines(trial: Trial) -> str:
    return ", ".join(f"{axis}={line}" for axis, line in trial.lines.items()) + (f" {ORACLE}" if trial.oracle else "")


def _apart(goal: Goal, a: Trial, b: Trial) -> str:
    """ "12 % less slowdown" of a than of b."""
    share = abs(1 - value(a) / value(b)) if value(b) else 0.0
    less = value(a) < value(b)
    return f"{show_fraction(share, 2)} {'less' if less else 'more'} {goal.label}"


def _row(tuned: Tuned, trial: Trial | None) -> Mapping[str, Any] | None:
    if trial is None:
        return None
    numbers = dict.fromkeys((g.metric for g in tuned.asked.goals), None) if trial.values is None else dict(
        zip((g.metric for g in tuned.asked.goals), trial.values, strict=True)
    )
    return {"origin": trial.origin, "lines": dict(trial.lines), **numbers, "why": trial.why, "runs": list(trial.runs),
            "oracle": trial.oracle}  # fmt: skip

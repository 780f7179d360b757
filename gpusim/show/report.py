"""A short report of an experiment in Markdown: question, answer, table, figures, and what was not checked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpusim.base.files import write_text
from gpusim.base.text import join
from gpusim.results.metrics import TIE
from gpusim.results.result import Result
from gpusim.show.answer import answer, sureness
from gpusim.show.basis import basis
from gpusim.show.faults import markdown as markdown_faults
from gpusim.show.figures import FIGURES
from gpusim.show.interval import drawn
from gpusim.show.picked import overview_markdown
from gpusim.show.values.picked import LISTED
from gpusim.show.view import main_metric, run_name, value, varying

NAME = "report.md"
REFERENCES = {
    "over_oracle": "Over oracle: the makespan over that with oracle eviction, a reference and no bound.",
    "over_best_plan": "Over best plan: the makespan over that of the best plan that a limited search found.",
    "bound_swap_in_bytes": "Least in: what must come in with this much memory, whatever is evicted when.",
}
SURE = "The order is the same on every sampled machine."


def report(
    results: Sequence[Result], question: str = "", figures: Mapping[str, Iterable[str | Path]] | None = None,
    left_out: Mapping[str, str] | None = None, *, logged: bool = False, missing: int = 0,
) -> str:  # fmt: skip
    """The report as Markdown.

    figures   name of the figure -> its files, as paths that are right from where the report will lie
    left_out  name of a figure that was asked for and has nothing to show -> why
    logged    event logs were kept, so that `gpusim check` can recompute the runs
    missing   runs of the grid that are not there
    """
    parts = [f"# {question or 'What was simulated'}", answer(results) or "There is nothing to compare."]
    if results:
        parts.append(overview_markdown(results))
        parts.append(_legend(results) if len(results) <= LISTED else "")
    for name, files in (figures or {}).items():
        parts.append(_figure(name, [Path(f) for f in files]))
    if left_out:
        why = "; ".join(f"{name.replace('_', ' ')}, since {reason}" for name, reason in left_out.items())
        parts.append(f"Not drawn: {why}.")
    parts.append(_faults(results))
    if sampled := drawn(results):
        parts.append(f"## How sure\n\n{sampled}")
        parts.append("\n".join(f"- {line}" for line in sureness(results)) or SURE * (len(results) > 1))
    parts.append("## What was not checked")
    open_ends = doubts(results, logged=logged, missing=missing)
    parts.append("\n".join(f"- {line}" for line in open_ends) or "Nothing is left out that this report knows of.")
    return "\n\n".join(part for part in parts if part) + "\n"


def write_report(
    folder: str | Path, results: Sequence[Result], question: str = "",
    figures: Mapping[str, Iterable[str | Path]] | None = None, left_out: Mapping[str, str] | None = None,
    *, logged: bool = False, missing: int = 0,
) -> Path:  # fmt: skip
    """Writes FOLDER/report.md with links relative to it; returns its path.  Raises ResultError."""
    folder = Path(folder)
    near = {name: [os.path.relpath(f, folder) for f in files] for name, files in (figures or {}).items()}
    write_text(folder / NAME, report(results, question, near, left_out, logged=logged, missing=missing))
    return folder / NAME


def doubts(results: Sequence[Result], *, logged: bool = False, missing: int = 0) -> list[str]:
    """What a reader must know before believing the numbers."""
    lines = []
    total = len(results)
    if missing:
        lines.append(f"**{missing} of {missing + total} runs are missing**: they failed, were stopped, or still run.")
    unchecked = sum(1 for r in results if r.checked is None)
    wrong = sum(1 for r in results if r.checked is False)
    if wrong:
        lines.append(f"**{_count(wrong, total)} contradicted by its own event log**: `gpusim check` says where.")
    if unchecked:
        way = "`gpusim check` does it" if logged else "run with `--log`, then `gpusim check`"
        lines.append(f"{_none(unchecked, total)} recomputed from an event log yet: {way}.")
    errors = [float(r.metrics["duration_error"]) for r in results if "duration_error" in r.metrics]
    if errors:
        worst = max(errors)
        lines.append(
            f"Modelled kernel times differ from the recorded ones by up to {100 * worst:.0f} % (per run, in the middle)."
        )
    if len(errors) < total:
        lines.append(f"{_none(total - len(errors), total)} compared with recorded kernel times. {basis(results)}".strip())
    if not drawn(results):
        lines.append("How far the profile's numbers may be off: run with `--uncertainty`.")
    seeds = {r.spec.get("seed") for r in results}
    if len(seeds) == 1 and any("random" in str(r.spec.get(key)) for r in results for key in ("evict", "prefetch")):
        lines.append("Policies that draw lots ran with one seed only.")
    if not any("bound_no_limit_ns" in r.bounds or "bound_no_limit_ns" in r.metrics for r in results):
        lines.append("No run without a memory limit is there to compare with.")
    return lines


def _faults(results: Sequence[Result]) -> str:
    """Of runs under unified memory the one that loses most, explained."""
    seen = [r for r in results if r.faults is not None and r.finished]
    if not seen:
        return ""
    metric = main_metric(seen)
    worst = max(seen, key=lambda r: value(r, metric) or 0.0)
    assert worst.faults is not None
    named = dict.fromkeys(("trace", "profile", "memory_share", *varying(results), "unified"))
    keys = [key for key in named if worst.spec.get(key) is not None]
    others = "" if len(seen) == 1 else "`gpusim faults` on this folder lists the others, and explains each."
    said = markdown_faults(worst.faults, run_name(worst, keys, "unified"), worst.bounds.get("bound_no_limit_ns"))
    return "\n\n".join(part for part in ("## Faults of the run that loses most", said, others) if part)


def _count(part: int, total: int) -> str:
    if part == total:
        return "The run was" if total == 1 else f"All {total} runs were"
    return f"{part} of {total} runs {'was' if part == 1 else 'were'}"


def _none(part: int, total: int) -> str:
    """ "None of the 20 runs was", for what is missing from `part` of `total` runs."""
    if part == total > 1:
        return f"None of the {total} runs was"
    return f"{_count(part, total)} not"


def _legend(results: Sequence[Result]) -> str:
    """One line on how to read the table."""
    what = {"slowdown": "Slowdown is the makespan over that of the same run without memory limit. "}
    keys = join([key.replace("_", " ") for key in varying(results)])
    start = f"Varied: {keys}. " if keys else ""
    turns = ", or in turns with it on the sampled machines" if any(r.sampled for r in results) else ""
    bold = f"bold: best, or within {100 * TIE:.0f} % of it{turns}"
    against = "".join(f"{words} " for name, words in REFERENCES.items() if any(value(r, name) for r in results))
    return f"{start}{what.get(main_metric(results), '')}{against}`*` reads the future; {bold}."


def _figure(name: str, files: Sequence[Path]) -> str:
    """The picture with its meaning, and links to its other formats."""
    picture = next((f for f in files if f.suffix in (".png", ".svg")), None)
    links = " · ".join(f"[{f.suffix[1:].upper()}]({f.as_posix()})" for f in files if f != picture)
    meaning = FIGURES[name].meaning if name in FIGURES else name.replace("_", " ")
    shown = f"![{meaning}]({picture.as_posix()})\n\n" if picture is not None else ""
    return f"## {name.replace('_', ' ').capitalize()}\n\n{shown}{meaning} {links}".rstrip()

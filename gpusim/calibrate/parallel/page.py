"""The tables of measured against simulated steps, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.calibrate.parallel.score import ScoredStep, by_source, errors, order

HEAD = (
    "| step | measured, s | simulated, s | error | kernels | exchanges | host | machine and layout |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
)


def row(scored: ScoredStep) -> str:
    """One line of the table."""
    case, step = scored.case, scored.simulated
    shown = f"| {case.name} | {case.step_s:.4g} |"
    if step is None or scored.error is None:
        return f"{shown} - | | | | | {scored.why} |"
    parts = " | ".join(f"{100 * part / step.step:.0f} %" for part in (step.kernels, step.exposed, step.host))
    return f"{shown} {step.step:.4g} | {100 * scored.error:+.1f} % | {parts} | {case.machine}, {case.layout} |"


def summary(scored: Sequence[ScoredStep]) -> str:
    """Errors by source and of all, and how many orders are right."""
    lines = ["| source | steps | median | p90 | signed | orders right |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for source, own in [*by_source(scored).items(), ("all", list(scored))]:
        found, (right, pairs) = errors(own), order(own)
        if found is not None:
            shares = " | ".join(f"{100 * share:.1f} %" for share in (found.median, found.p90))
            said = f"{right} of {pairs}" if pairs else ""
            lines.append(f"| {source} | {found.steps} of {len(own)} | {shares} | {100 * found.signed:+.1f} % | {said} |")
    return "\n".join(lines)


def page(scored: Sequence[ScoredStep]) -> str:
    """Both halves: their errors, then every step."""
    parts = []
    for title, held_out in (("Visible", False), ("Held out", True)):
        own = [one for one in scored if one.case.held_out == held_out]
        if own:
            parts.append(f"## {title}\n\n{summary(own)}\n\n" + "\n".join([HEAD, *map(row, own)]))
    return "\n\n".join(parts)

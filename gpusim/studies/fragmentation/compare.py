"""Several snapshots at once, of the ranks of one program or of one program at several times: what differs between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpusim.base.text import table
from gpusim.base.units import show_bytes
from gpusim.studies.fragmentation import doctor
from gpusim.studies.fragmentation.answer import OomAnswer
from gpusim.studies.fragmentation.holders import Holder, between, holders
from gpusim.studies.fragmentation.report import told, wrapped
from gpusim.trace.trace import Trace

MOST = 5  # stacks of what differs


@dataclass(frozen=True)
class Compared:
    """answers: label -> verdict and holders of each; main: the one that ran out, else the one that holds most; grown: what
    is live at the end of the last input and was not at the end of the first, by the finest of stack, module and role."""

    answers: dict[str, OomAnswer]
    main: str
    grown: list[Holder]

    def text(self) -> str:
        rows = [self._row(label, answer) for label, answer in self.answers.items()]
        failed = [label for label, answer in self.answers.items() if answer.moment and answer.moment.failed]
        first, last = next(iter(self.answers)), list(self.answers)[-1]
        lines = [table(rows, list(rows[0]))]
        if failed:
            others = f", not {'the other' if len(rows) == 2 else 'the others'}" if len(failed) < len(rows) else ""
            lines.append(f"Out of memory: {', '.join(failed)}{others}.")
        if self.grown:
            what = ", ".join(f"{row.name} +{show_bytes(row.bytes)}" for row in self.grown[:MOST])
            lines.append(f"More is live at the end of {last} than of {first}: {what}.")
        lines.append(f"Below: {self.main}.")
        return "\n\n".join([lines[0], *map(wrapped, lines[1:])])

    def _row(self, label: str, answer: OomAnswer) -> dict[str, Any]:
        m = answer.moment
        assert m is not None
        return {
            "input": label, "held": show_bytes(m.held) if m.held >= 0 else "-", "live": show_bytes(m.live),
            "device free": show_bytes(m.left) if m.left >= 0 else "-", "live at the end": show_bytes(answer.end),
            "failed request": show_bytes(m.size) if m.failed else "-",
            "causes": ", ".join(cause.kind for cause in answer.causes) or "-",
        }  # fmt: skip

    def values(self) -> dict[str, Any]:
        return {
            "inputs": {label: told(answer) for label, answer in self.answers.items()}, "main": self.main,
            "grown": [asdict(row) for row in self.grown],
        }  # fmt: skip


def compare(traces: Mapping[str, Trace], capacity: int | None = None) -> Compared:
    """Verdict and holders of each trace, and what differs."""
    answers = {label: doctor.seen(trace, capacity) for label, trace in traces.items()}

    def weight(label: str) -> tuple[bool, int]:
        m = answers[label].moment
        return bool(m and m.failed), max(m.held, m.live) if m else 0

    first, *_, last = (holders(trace, trace.events) for trace in traces.values())
    by = next((by for by in ("stack", "module", "role") if by in first and by in last), "")
    return Compared(answers, max(answers, key=weight), between(first[by], last[by]) if by else [])

"""What the referee says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MOST = 1000  # violations that are written out; the first one matters, the rest mostly follow from it


@dataclass(frozen=True)
class Violation:
    """One contradiction: the record of the log where it shows (-1: none alone), what is wrong, what should be."""

    record: int
    what: str
    expected: str

    def __str__(self) -> str:
        where = f"record {self.record}: " if self.record >= 0 else ""
        return f"{where}{self.what}; expected {self.expected}"


@dataclass(frozen=True)
class Report:
    """ok is None when there was no log to check; facts counts what was checked, by kind; left says what was not, and why."""

    ok: bool | None
    violations: tuple[Violation, ...] = ()
    facts: Mapping[str, int] = field(default_factory=dict)
    left: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.ok is None:
            return "unchecked: the run kept no event log"
        if self.ok:
            checked = ", ".join(f"{count:,} {fact}" for fact, count in self.facts.items())
            return "; ".join([f"checked: {checked}", *(f"not checked: {one}" for one in self.left)])
        count = len(self.violations)
        return f"{count}{'+' if count >= MOST else ''} violations, first: {self.violations[0]}"


class Findings:
    """Violations and facts as they are collected."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.facts: dict[str, int] = {}

    def say(self, record: int, what: str, expected: str) -> None:
        """A contradiction."""
        if len(self.violations) < MOST:
            self.violations.append(Violation(int(record), what, expected))

    def count(self, fact: str, checked: int) -> None:
        """So many facts of this kind were checked, whatever came of it."""
        self.facts[fact] = self.facts.get(fact, 0) + int(checked)

    def report(self) -> Report:
        """In the order of the log."""
        return Report(not self.violations, tuple(sorted(self.violations, key=lambda v: v.record)), self.facts)

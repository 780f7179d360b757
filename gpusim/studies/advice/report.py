"""Advice in words and tables, and as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gpusim.base.errors import ResultError
from gpusim.base.text import Cells, table
from gpusim.base.units import show_bytes, show_time
from gpusim.studies.advice.answer import FAULTS, Ends, Proposal, RankedAdvice
from gpusim.studies.fragmentation.report import titled, wrapped

MOST = 6  # machines that the text lists
HELP = "What would help, each simulated on this program, best first"
AGAIN = "`gpusim advise` writes it anew"
_ADVICE = TypeAdapter(RankedAdvice)
_ALIKE = ("room", "leaks", "fits", "now", "proposals", "elsewhere", "helpless", "remarks")  # in JSON as here


def values(found: RankedAdvice) -> dict[str, Any]:
    """All of it as JSON values; sizes in bytes, times in ns, prices in dollars for 1,000 recorded steps."""
    return {
        "program": found.name, "trace": found.trace or None,
        "machine": found.machine or None, "room": found.room, "verdict": found.verdict or None,
        "leaks": found.leaks,
        "fits": found.fits, "why": found.why or None, "now": found.now and asdict(found.now),
        "proposals": [{"rank": n, **asdict(p)} for n, p in enumerate(found.proposals, 1)],
        "elsewhere": [asdict(p) for p in found.elsewhere],
        "helpless": [asdict(one) for one in found.helpless],
        "not_tried": [asdict(one) for one in found.untried],
        "remarks": found.remarks,
    }  # fmt: skip


def text(found: RankedAdvice) -> str:
    """What `gpusim advise` prints."""
    parts = [wrapped(sentence) for sentence in sentences(found)]
    made = {title: titled(title, table(rows, list(rows[0]))) for title, rows in tables(found)}
    if found.proposals:
        parts.append(made.pop(HELP))
        parts += [titled("To copy", "\n".join(f"{n}  {line}" for n, line in lines))] if (lines := copied(found)) else []
        parts += map(wrapped, notes(found))
    parts += made.values()
    for title, whys in reasons(found):
        parts.append(titled(title, "\n".join(map(wrapped, whys))))
    return "\n\n".join([*parts, *map(wrapped, found.remarks)])


def sentences(found: RankedAdvice) -> list[str]:
    """What is the matter, whether it fits, and where nothing helps that."""
    nothing = "" if found.proposals else "Leave it as it is: nothing that was simulated helps."
    return [sentence for sentence in (found.verdict, *found.leaks, _fits(found), nothing) if sentence]


def tables(found: RankedAdvice) -> list[tuple[str, list[Cells]]]:
    """Title and rows of the proposals, and of other machines; those without rows are left out."""
    rest = len(found.elsewhere) - MOST
    first = "fastest" if found.elsewhere and found.elsewhere[0].step_ns else "smallest"
    others = f"As it is on other machines{f' (the {first} {MOST} of {len(found.elsewhere)})' if rest > 0 else ''}"
    made = [(HELP, _rows(found.proposals)), (others, _rows(found.elsewhere[:MOST], machines=True))]
    return [(title, rows) for title, rows in made if rows]


def from_values(plain: Mapping[str, Any]) -> RankedAdvice:
    """The inverse of `values`.  Raises ResultError for what is no advice."""
    try:
        named = {"name": plain["program"], "trace": plain["trace"] or "", "machine": plain["machine"] or ""}
        said = {"verdict": plain["verdict"] or "", "why": plain["why"] or "", "untried": plain["not_tried"]}
        return _ADVICE.validate_python({**named, **said, **{name: plain[name] for name in _ALIKE}})
    except (KeyError, TypeError, ValidationError):
        raise ResultError("this is no advice that this gpusim reads", hint=AGAIN) from None


def _fits(found: RankedAdvice) -> str:
    if found.fits is None or not found.machine:
        return ""
    room = f" ({show_bytes(found.room)} without the CUDA context)" if found.room is not None else ""
    if not found.fits or found.now is None:
        return f"It does not fit {found.machine}{room} as it is{f': {found.why}' if found.why else ''}."
    now = found.now
    held = f" and holds {_bytes(now.held)}" if now.held else ""
    if now.step_ns is None:
        return f"It fits {found.machine}{room} as it is{held}."
    step = f"{show_time(now.step_ns)} ({_times(now.step)})" if now.step else show_time(now.step_ns)
    price = f", {_price(now)} for 1,000 of them" if now.price else ""
    what = "it" if now.tool == FAULTS else "a step"
    return f"It fits {found.machine}{room} as it is{held}; {what} takes an estimated {step}{price}."


def _rows(found: Sequence[Proposal], machines: bool = False) -> list[Cells]:
    """Columns in which no row says anything are left out."""
    if not found:
        return []
    rows = []
    for n, p in enumerate(found, 1):
        first = {"machine": p.machine} if machines else {"": n, "change": p.change}
        rows.append({
            **first,
            "has": show_bytes(p.room) if machines and p.room else "",
            "GPUs": p.gpus if p.gpus > 1 else None,
            "held": _bytes(p.held) if p.held else "",
            "saves": "" if machines or p.saves is None else _bytes(p.saves),
            "step, estimated": f"{show_time(p.step_ns)}{f' ({_times(p.step)})' if p.step else ''}" if p.step_ns else "",
            "slowdown": "" if machines or p.slowdown is None else f"{p.slowdown:.2f}x",
            "samples": f"{p.work:.2g} x" if p.work != 1 else "",
            "1,000 steps": _price(p) if p.price else "",
            "by": "" if machines else p.tool,
        })  # fmt: skip
    shown = [name for name in rows[0] if name == "" or any(row[name] not in (None, "") for row in rows)]
    return [{name: "" if row[name] is None else row[name] for name in shown} for row in rows]


def copied(found: RankedAdvice) -> list[tuple[int, str]]:
    """The rank of each proposal that has a line to copy, and the line."""
    return [(n, p.line) for n, p in enumerate(found.proposals, 1) if p.line not in ("", p.change)]


def notes(found: RankedAdvice) -> list[str]:
    """What a change changes else, once for all that do."""
    whose: dict[str, list[str]] = {}
    for n, p in enumerate(found.proposals, 1):
        if p.note:
            whose.setdefault(p.note, []).append(str(n))
    return [f"{', '.join(numbers)}: {note}." for note, numbers in whose.items()]


def reasons(found: RankedAdvice) -> list[tuple[str, list[str]]]:
    """Title and sentences of what does not help, and of what was not tried; a reason stands once."""
    made = []
    for title, of in (("Simulated, and no help", found.helpless), ("Not tried", found.untried)):
        whys: dict[str, list[str]] = {}
        for one in of:
            whys.setdefault(one.why, []).append(one.change)
        if whys:
            made.append((title, [f"{', '.join(names)}: {why}" for why, names in whys.items()]))
    return made


def _bytes(ends: Ends) -> str:
    low, high = (f"{'-' if size < 0 else ''}{show_bytes(abs(size))}" for size in ends)
    return low if low == high else f"{low} to {high}"


def _times(ends: Ends | None) -> str:
    return "" if ends is None else " to ".join(map(show_time, ends))


def _price(p: Proposal) -> str:
    assert p.price is not None
    price, low, high = (f"${each:.2f}" if each >= 0.1 else f"${each:.4f}" for each in p.price)
    return f"{price} ({low} to {high})"

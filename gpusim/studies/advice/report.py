"""Advice in words and tables, and as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gpusim.base.text import table
from gpusim.base.units import show_bytes, show_time
from gpusim.studies.advice.answer import FAULTS, Ends, NotTried, Proposal, RankedAdvice
from gpusim.studies.fragmentation.report import titled, wrapped

MOST = 6  # machines that the text lists


def values(found: RankedAdvice) -> dict[str, Any]:
    """All of it as JSON values; sizes in bytes, times in ns, prices in dollars for 1,000 recorded steps."""
    return {
        "program": found.name, "trace": found.trace or None,
        "machine": found.machine or None, "room": found.room, "verdict": found.verdict or None,
        "leaks": found.leaks,
        "fits": found.fits, "now": found.now and asdict(found.now),
        "proposals": [{"rank": n, **asdict(p)} for n, p in enumerate(found.proposals, 1)],
        "elsewhere": [asdict(p) for p in found.elsewhere],
        "helpless": [asdict(one) for one in found.helpless],
        "not_tried": [asdict(one) for one in found.untried],
        "remarks": found.remarks,
    }  # fmt: skip


def text(found: RankedAdvice) -> str:
    """What `gpusim advise` prints."""
    parts = [wrapped(sentence) for sentence in (found.verdict, *found.leaks, _fits(found)) if sentence]
    if found.proposals:
        parts.append(titled("What would help, each simulated on this program, best first", _table(found.proposals)))
        parts += [titled("To copy", "\n".join(lines))] if (lines := _lines(found.proposals)) else []
        parts += _notes(found.proposals)
    else:
        parts.append("Leave it as it is: nothing that was simulated helps.")
    if found.elsewhere:
        rest = len(found.elsewhere) - MOST
        first = "fastest" if found.elsewhere[0].step_ns else "smallest"
        title = f"As it is on other machines{f' (the {first} {MOST} of {len(found.elsewhere)})' if rest > 0 else ''}"
        parts.append(titled(title, _table(found.elsewhere[:MOST], machines=True)))
    parts += _reasons("Simulated, and no help", found.helpless)
    parts += _reasons("Not tried", found.untried)
    return "\n\n".join([*parts, *map(wrapped, found.remarks)])


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


def _table(found: Sequence[Proposal], machines: bool = False) -> str:
    """Columns in which no row says anything are left out."""
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
    return table([{k: "" if v is None else v for k, v in row.items()} for row in rows], shown)


def _lines(found: Sequence[Proposal]) -> list[str]:
    return [f"{n}  {p.line}" for n, p in enumerate(found, 1) if p.line not in ("", p.change)]


def _notes(found: Sequence[Proposal]) -> list[str]:
    """What a change changes else, once for all that do."""
    notes: dict[str, list[str]] = {}
    for n, p in enumerate(found, 1):
        if p.note:
            notes.setdefault(p.note, []).append(str(n))
    return [wrapped(f"{', '.join(numbers)}: {note}.") for note, numbers in notes.items()]


def _reasons(title: str, found: Sequence[NotTried]) -> list[str]:
    whys: dict[str, list[str]] = {}
    for one in found:
        whys.setdefault(one.why, []).append(one.change)
    return [titled(title, "\n".join(wrapped(f"{', '.join(names)}: {why}") for why, names in whys.items()))] if whys else []


def _bytes(ends: Ends) -> str:
    low, high = (f"{'-' if size < 0 else ''}{show_bytes(abs(size))}" for size in ends)
    return low if low == high else f"{low} to {high}"


def _times(ends: Ends | None) -> str:
    return "" if ends is None else " to ".join(map(show_time, ends))


def _price(p: Proposal) -> str:
    assert p.price is not None
    price, low, high = (f"${each:.2f}" if each >= 0.1 else f"${each:.4f}" for each in p.price)
    return f"{price} ({low} to {high})"

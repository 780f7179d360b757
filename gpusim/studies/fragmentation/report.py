"""A study in words and tables, and as plain values."""

from __future__ import annotations

from dataclasses import asdict
from textwrap import fill
from typing import Any

from gpusim.base.text import table
from gpusim.base.units import show_bytes
from gpusim.policies.trials.allocator_replay import ENDLESS, AllocatorReplay
from gpusim.studies.fragmentation.answer import OomAnswer, Remedy
from gpusim.studies.fragmentation.baseline import SettingOutcome
from gpusim.studies.fragmentation.candidates import CONF
from gpusim.studies.fragmentation.causes import WORDS, reasons
from gpusim.studies.fragmentation.diagnosis import Diagnosis
from gpusim.studies.fragmentation.holders import BEFORE, UNKNOWN, Holder, before
from gpusim.studies.fragmentation.study import FragmentationStudy, show_share
from gpusim.studies.fragmentation.verdict import balance

WIDTH = 116  # characters of a line, without the two before it
SERVED = "request served"
UNTOLD = {"stack": "no stack recorded", "module": "outside of any module"}
MOST_HOLDERS, MOST_PINS, MOST_LEAKS, MOST_REMEDIES = 6, 4, 4, 5


def values(found: FragmentationStudy) -> dict[str, Any]:
    """Everything of a study as JSON: bytes, counts, shares of 1."""
    answer = found.answer
    return {
        "name": found.program.name,
        "requests": found.program.total,
        "requested_peak": found.asked,
        **told(answer),
        "baseline": {
            "exact": found.base.exact, "reason": found.base.reason or None, "assumed": found.base.assumed or None,
            "setting": found.base.own.label, "held_peak": found.base.replay.held_peak, "error": found.base.error,
        },
        "now": _outcome(found.now) | {
            "moment": _moment(found.diagnosis),
            "causes": found.diagnosis.causes,
            "pins": [vars(pin) | {"stack": found.program.stacks.get(pin.site, [])} for pin in found.diagnosis.pins],
        },
        "candidates": [
            {"label": t.candidate.label, "how": t.candidate.how, "held": t.held, "saving": t.saving} | _outcome(t.high)
            for t in found.tried
        ],
        "floor": vars(found.floor),
    }  # fmt: skip


def told(answer: OomAnswer) -> dict[str, Any]:
    """The answer for one program as JSON."""
    m = answer.moment
    return {
        "verdict": answer.verdict,
        "causes": [asdict(cause) for cause in answer.causes],
        "capacity": _or_none(answer.limit),
        "device": _or_none(answer.device),
        "request": m and {
            "event": m.event, "failed": m.failed, "bytes": m.size, "held": _known(m.held), "live": m.live,
            "requested": m.requested, "device_free": _known(m.left), "failures": m.failures,
        },
        "end": answer.end,
        "holders": {by: [asdict(row) for row in rows] for by, rows in answer.holders.items()},
        "leaks": [
            {"site": leak.site, "bytes": leak.bytes, "tensors": len(leak.tensors), "steps": leak.steps,
             "per_step": leak.per_step}
            for leak in answer.leaks
        ],
        "advice": [asdict(remedy) for remedy in answer.advice],
        "refusal": answer.refusal or None,
    }  # fmt: skip


def _or_none(size: int) -> int | None:
    return size if size < ENDLESS else None


def _known(size: int) -> int | None:
    return size if size >= 0 else None


def _outcome(replay: AllocatorReplay) -> dict[str, Any]:
    counts = replay.counts
    return {
        "allocator": replay.name, "fits": replay.fits, "refused": counts["refused"], "fragmented": counts["fragmented"],
        "held_peak": replay.held_peak, "utilisation": replay.utilisation, "device_allocs": counts["device_allocs"],
        "device_frees": counts["device_frees"],
    }  # fmt: skip


def _moment(d: Diagnosis) -> dict[str, Any]:
    return {
        "request": d.request, "refused": d.refused, "size": d.size, "stream": d.stream, "held": d.held, "rounded": d.rounded,
        "requested": d.requested, "largest_hole": d.largest_hole, "internal": d.internal, "external": d.external,
    }  # fmt: skip


def text(found: FragmentationStudy) -> str:
    """What `gpusim oom` prints: verdict, holders, remedies, and what each allocator would have held."""
    return "\n\n".join([*answered(found.answer, found.conf), *_pinned(found), *_remedies(found)])


def answered(answer: OomAnswer, conf: str = "") -> list[str]:
    """Verdict and holders, in parts."""
    m = answer.moment
    parts = [wrapped(answer.verdict)]
    if m is None:
        return parts
    rows = [{"bytes": show_bytes(size), "where": what} for size, what in balance(m, answer.limit, answer.device)]
    when = f"when the request of {show_bytes(m.size)} failed" if m.failed else "at the peak"
    if rows:
        parts.append(titled(f"Where the memory was {when}", table(rows, ["bytes", "where"])))
    why = reasons(m, conf) if m.failed else {}
    if why:
        rows = [{"bytes": show_bytes(size), "why": WORDS[name]} for name, size in sorted(why.items(), key=lambda i: -i[1])]
        parts.append(titled("Why the cached bytes could not serve it", table(rows, ["bytes", "why"])))
    for by, holding in answer.holders.items():
        parts.append(titled(f"Live bytes by {by}", _holders(by, holding)))
    parts.append("\n".join(map(wrapped, _growth(answer))))
    return parts


def leaked(answer: OomAnswer) -> list[str]:
    """A sentence for each of the largest leaks."""
    return [
        f"Leak: {show_bytes(leak.per_step)} per step from {leak.site}, {show_bytes(leak.bytes)} after {leak.steps:,} steps "
        f"({len(leak.tensors):,} tensors, none of them freed)."
        for leak in answer.leaks[:MOST_LEAKS]
    ]


def _growth(answer: OomAnswer) -> list[str]:
    m = answer.moment
    assert m is not None
    lines = leaked(answer)
    if not m.failed:
        lines.append(f"Peak and end: {show_bytes(m.live)} live at the peak, {show_bytes(answer.end)} at the recording's end.")
    if not lines:
        seen = answer.steps.count if answer.steps else 0
        lines.append(f"No leak: nothing grows over the {seen:,} steps of the recording." if seen > 3 else
                     "Growth per step: the recording holds too few steps that repeat to tell.")  # fmt: skip
    return lines


def wrapped(sentences: str) -> str:
    """Prose in lines that a terminal has room for; names of files and settings stay whole."""
    return fill(sentences, WIDTH, break_long_words=False, break_on_hyphens=False)


def titled(title: str, body: str) -> str:
    return f"{title}\n" + "\n".join(f"  {line}" for line in body.splitlines())


def _holders(by: str, rows: list[Holder]) -> str:
    shown = rows[:MOST_HOLDERS]
    lines = [
        {"bytes": show_bytes(row.bytes), "tensors": row.tensors, "from": UNTOLD[by] if row.name == UNKNOWN else row.name}
        for row in shown
    ]
    if len(rows) > len(shown):
        rest = rows[len(shown) :]
        lines.append({"bytes": show_bytes(sum(r.bytes for r in rest)), "tensors": sum(r.tensors for r in rest),
                      "from": f"{len(rest):,} others"})  # fmt: skip
    stacks = [_stack(row) for row in shown if len(row.stack) > 1]
    return "\n".join([table(lines, ["bytes", "tensors", "from"]), *stacks])


def _stack(row: Holder) -> str:
    """A stack in one line: as many frames from the innermost one on as there is room for."""
    line, frames = f"{row.name}: {row.stack[0]}", row.stack[1:]
    for n, frame in enumerate(frames):
        more = f" < {frame}"
        if len(line) + len(more) + (len(" < ... 99 more") if n + 1 < len(frames) else 0) > WIDTH:
            return f"{line} < ... {len(frames) - n} more"
        line += more
    return line


def _pinned(found: FragmentationStudy) -> list[str]:
    """Which tensors keep segments that are mostly free, where that is what is wrong."""
    pins, old = found.diagnosis.pins[:MOST_PINS], before(found.base.trace)
    if not pins or not any(cause.kind in ("fragmentation", "cached") for cause in found.answer.causes):
        return []
    rows = [
        {"segments": pin.segments, "free in them": show_bytes(pin.free), "tensors": pin.tensors,
         "of": show_bytes(pin.tensor_bytes), "oldest since event": pin.born,
         "from": BEFORE if pin.example < len(old) and old[pin.example] else pin.site}
        for pin in pins
    ]  # fmt: skip
    return [titled("What keeps segments that are mostly free", table(rows, list(rows[0])))]


def _remedies(found: FragmentationStudy) -> list[str]:
    answer = found.answer
    parts = [titled("What each would have held", _candidates(found)), _floor(found)]
    if answer.refusal:
        return [wrapped(f"No advice: {answer.refusal}")]
    parts.append(_baseline(found))
    if not answer.advice:
        return [*parts, wrapped(nothing(found))]
    failed = bool(answer.moment and answer.moment.failed)
    rows = [_row(r) for r in answer.advice[:MOST_REMEDIES]]
    told = [name for name in rows[0] if (name != "between" or any(row[name] for row in rows)) and (failed or name != SERVED)]
    helps = titled("What would help, each simulated on this program", table(rows, told))
    return [helps, *parts, line(answer.advice[0], failed)]


def _baseline(found: FragmentationStudy) -> str:
    """What savings are against, and how well the model repeats the recording."""
    repeated = found.base.repeated
    order = f" (PyTorch {repeated.release}'s order of free blocks)" if repeated else ""
    given = "gives the recorded held bytes, segment events and outcome."
    same = f"The recorded setting, replayed from the recorded start{order}, {given}"
    against = "Savings are against the program's own setting, replayed from the same start."
    return wrapped(f"{found.base.assumed or same} {against}")


def _row(r: Remedy) -> dict[str, Any]:
    interval = f"{show_bytes(r.low)} to {show_bytes(r.high)}" if r.low < r.high else ""
    change = r.setting or f"unset {CONF}"
    saves = f"{'-' if r.saves < 0 else ''}{show_bytes(abs(r.saves))}"
    return {"change": change, "held": show_bytes(r.held), "between": interval, "saves": saves, SERVED: r.serves}


def line(best: Remedy, failed: bool) -> str:
    """The one line to copy, with what it does."""
    saves = f"saves {show_bytes(best.saves)}, " if best.saves > 0 else ""
    does = f"{'serves the request, ' if failed else ''}{saves}holds {show_bytes(best.high)} at most"
    if best.kind == "program":
        return f"Change the program: {best.setting}. It {does}."
    copied = f"export {CONF}={best.setting}" if best.setting else f"unset {CONF}"
    return f"{copied}    # {does}"


def nothing(found: FragmentationStudy) -> str:
    """Why there is no advice although it could be given."""
    if found.answer.moment and found.answer.moment.failed:
        kinds = {cause.kind for cause in found.answer.causes}
        if kinds & {"shortage", "impossible"}:
            return "Leave the settings as they are: under each the request fails, since more is live than there is room for."
        return "Leave the settings as they are: the request fails under each that was tried."
    whole = found.answer.device < ENDLESS
    of = f"the device's {show_bytes(found.answer.device)}" if whole else f"the {show_bytes(found.base.ran.high.held_peak)} held"
    return f"Leave it as it is: nothing that was tried saves 2 % of {of}."


def _floor(found: FragmentationStudy) -> str:
    """How much of what is held could have been avoided, with the whole program known."""
    floor = found.floor
    if floor.planned is None:
        return f"No placement holds less than {show_bytes(floor.live)}; `gpusim offsets` plans programs as long as this one."
    most = "no placement holds less" if floor.proven else f"no placement holds less than {show_bytes(floor.live)}"
    return f"A plan made ahead would hold {show_bytes(floor.planned)}; {most}."


def _candidates(found: FragmentationStudy) -> str:
    rows = [_line(t, t.candidate == found.base.own) for t in sorted(found.tried, key=_order)]
    other = [t.candidate for t in found.tried if t.candidate.how and t.candidate.family != "pytorch"]
    how = [f"{candidate.label}: {candidate.how}" for candidate in other]
    return "\n".join([table(rows, list(rows[0])), *how])


def _order(t: SettingOutcome) -> tuple[bool, int, int, str]:
    """What serves all first, what surely saves most first; then what holds least."""
    return not t.fits, -t.saving[0], t.held[1], t.candidate.label


def _line(t: SettingOutcome, own: bool) -> dict[str, Any]:
    counts, (least, most) = t.high.counts, t.held
    return {
        "allocator": t.candidate.label + (" (as it ran)" if own else ""),
        "held": show_bytes(most) if least == most else f"{show_bytes(least)} to {show_bytes(most)}",
        "saves": _saving(t),
        "used": show_share(t.high.utilisation) if t.high.held_peak else "",
        "refused": counts["refused"],
        "device calls": counts["device_allocs"] + counts["device_frees"],
    }


def _saving(t: SettingOutcome) -> str:
    """Bytes less than the own setting, replayed in the same way; "" where requests are refused."""
    if not t.fits:
        return ""
    least, most = (("-" if s < 0 else "") + show_bytes(abs(s)) for s in t.saving)
    return least if least == most else f"{least} to {most}"

"""A study in words and tables, and as plain values."""

from __future__ import annotations

from typing import Any

from gpusim.commands.output import table
from gpusim.fragment.diagnosis import CAUSES, Diagnosis
from gpusim.fragment.replay import ENDLESS, Replay
from gpusim.fragment.study import Study, Tried, advice, show_share
from gpusim.units import show_bytes

MOST_PINS = 6
TIMES = 900  # percent: from here on a factor says it better


def values(found: Study) -> dict[str, Any]:
    """Everything of a study as JSON: bytes, counts, shares of 1."""
    return {
        "name": found.program.name,
        "requests": found.program.total,
        "requested_peak": found.asked,
        "capacity": found.capacity if found.capacity < ENDLESS else None,
        "now": _outcome(found.now, found.diagnosis) | {
            "moment": _moment(found.diagnosis),
            "causes": found.diagnosis.causes,
            "pins": [vars(pin) | {"stack": found.program.stacks.get(pin.site, [])} for pin in found.diagnosis.pins],
        },
        "candidates": [
            {"how": t.candidate.how, "saved_share": found.saving(t)} | _outcome(t.replay, t.diagnosis) for t in found.tried
        ],
        "floor": vars(found.floor),
        "fidelity": found.fidelity or None,
        "advice": advice(found),
    }  # fmt: skip


def _outcome(replay: Replay, diagnosis: Diagnosis) -> dict[str, Any]:
    counts = replay.counts
    return {
        "allocator": replay.name, "fits": replay.fits, "refused": counts["refused"], "fragmented": counts["fragmented"],
        "held_peak": replay.held_peak, "utilisation": replay.utilisation, "internal": diagnosis.internal,
        "external": diagnosis.external, "device_allocs": counts["device_allocs"], "device_frees": counts["device_frees"],
    }  # fmt: skip


def _moment(d: Diagnosis) -> dict[str, Any]:
    return {
        "request": d.request, "refused": d.refused, "size": d.size, "stream": d.stream, "held": d.held, "rounded": d.rounded,
        "requested": d.requested, "largest_hole": d.largest_hole,
    }  # fmt: skip


def text(found: Study) -> str:
    """The report that `gpusim fragment` prints."""
    now, d = found.now, found.diagnosis
    limit = f" of the {show_bytes(found.capacity)}" if found.capacity < ENDLESS else ""
    total = found.program.total
    many = f"{total:,} request{'s' if total != 1 else ''}"
    parts = [
        f"{found.program.name}: {many}, for at most {show_bytes(found.asked)} at once",
        f"Now ({now.name}) it holds {show_bytes(now.held_peak)}{limit} of device memory at its peak. {_when(d)}",
    ]
    if d.idle:
        rows = [
            {"bytes": show_bytes(size), "share": show_share(size / d.idle), "where": CAUSES[name]}
            for name, size in d.causes.items() if size
        ]  # fmt: skip
        parts.append(_titled("Where the bytes are that are not in use", table(rows, ["bytes", "share", "where"])))
    parts.append(
        f"Fragmentation: internal {show_share(d.internal)}, external {show_share(d.external)} then; "
        f"used {show_share(now.utilisation)} at the peaks; {now.counts['refused']:,} refused"
    )
    if d.pins:
        parts.append(_titled("Who keeps segments (pieces of device memory) that are mostly free", _pins(found)))
    parts.append(_titled("What each would have held", _candidates(found)))
    if found.program.failed and not limit:
        many = f"{found.program.failed:,} request{'s' if found.program.failed != 1 else ''}"
        parts.append(f"{many} failed in the recording, which does not say how much memory there was: give --capacity.")
    parts.append(_floor(found))
    if found.fidelity:
        parts.append(found.fidelity)
    parts.append(advice(found))
    return "\n\n".join(parts)


def _floor(found: Study) -> str:
    """How much of what is held could have been avoided, with the whole program known."""
    floor, held = found.floor, found.now.held_peak
    if floor.live > found.capacity:
        return f"No placement fits into {show_bytes(found.capacity)}: {show_bytes(floor.live)} are in use at once."
    if floor.planned is None:
        return f"No placement holds less than {show_bytes(floor.live)}; `gpusim offsets` plans programs as long as this one."
    most = "no placement holds less" if floor.proven else f"no placement holds less than {show_bytes(floor.live)}"
    could = f"{show_bytes(max(0, held - floor.planned))} of what is held now could be avoided"
    if not found.now.fits:
        could = "it would serve all requests" if floor.planned <= found.capacity else "it does not fit either"
    return f"A plan made ahead holds {show_bytes(floor.planned)}, {most}: {could}."


def _when(d: Diagnosis) -> str:
    if d.refused:
        told = f"Request {d.request:,} ({show_bytes(d.size)}) fails with {show_bytes(d.held - d.rounded)} free"
        if not d.idle:
            return f"{told}."
        return f"{told}, the largest piece of it {show_bytes(d.largest_hole)}; {show_bytes(d.idle)} are not in use:"
    if not d.idle:
        return "All of it is in use then."
    share = show_share(d.idle / d.held) if d.held else "0 %"
    return f"At request {d.request:,} ({show_bytes(d.size)}) {show_bytes(d.idle)} of it ({share}) are not in use:"


def _titled(title: str, body: str) -> str:
    return f"{title}\n" + "\n".join(f"  {line}" for line in body.splitlines())


def _pins(found: Study) -> str:
    pins = found.diagnosis.pins[:MOST_PINS]
    rows = [
        {"from": pin.site, "segments": pin.segments, "free in them": show_bytes(pin.free), "tensors": pin.tensors,
         "of": show_bytes(pin.tensor_bytes), "oldest since event": pin.born}
        for pin in pins
    ]  # fmt: skip
    stacks = [f"{pin.site}: {' < '.join(found.program.stacks[pin.site])}" for pin in pins if pin.site in found.program.stacks]
    return "\n".join([table(rows, list(rows[0])), *stacks])


def _candidates(found: Study) -> str:
    rows = [_line(found, t) for t in found.tried]
    return table(rows, list(rows[0]))


def _against(found: Study, t: Tried) -> str:
    """What it holds beside what is held now; "" where it did not serve the same requests."""
    if t.replay.counts["refused"] != found.now.counts["refused"]:
        return ""
    more = round(-100 * found.saving(t), 1)
    if more >= TIMES:
        return f"{1 + more / 100:,.0f} times"
    return f"{more:+.1f} %" if more else "same"


def _line(found: Study, t: Tried) -> dict[str, Any]:
    counts = t.replay.counts
    return {
        "allocator": t.replay.name,
        "held": show_bytes(t.replay.held_peak),
        "against now": _against(found, t),
        "used": show_share(t.replay.utilisation) if t.replay.held_peak else "",
        "refused": counts["refused"],
        "device calls": counts["device_allocs"] + counts["device_frees"],
        "how": t.candidate.how,
    }

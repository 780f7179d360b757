"""The verdict in one line, and the arithmetic behind it in one more."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.base.units import show_bytes
from gpusim.policies.trials.allocator_replay import ENDLESS
from gpusim.studies.fragmentation.answer import Cause
from gpusim.studies.fragmentation.moment import Moment

TITLES = {
    "shortage": "shortage", "impossible": "impossible request", "fragmentation": "fragmentation", "leak": "leak",
    "foreign": "memory outside PyTorch", "cached": "cached memory", "other_device": "another device",
}  # fmt: skip


def verdict(m: Moment, causes: Sequence[Cause], limit: int) -> str:
    """One sentence: what happened, of which kind, by how many bytes."""
    if not m.failed:
        if not causes:
            return f"Nothing is wrong: no request failed.{_peak(m)}"
        return f"No request failed, but there is {_list(causes)}.{_peak(m)}"
    begin = "It would run out of memory" if m.simulated else "Out of memory"
    asked = f"{begin} on a request of {show_bytes(m.size)}"
    if limit >= ENDLESS:
        known = f": {show_bytes(m.live)} were live" + (f" of {show_bytes(m.held)} held" if m.held >= 0 else "")
        return f"{asked}{known}; the recording does not say how much memory there was (give --capacity or --on)."
    missing = m.size - (limit - m.live)
    if missing > 0:
        kind = _list([cause for cause in causes if cause.kind not in ("fragmentation", "other_device")]) or "shortage"
        none = "nothing can serve it" if any(c.kind == "impossible" for c in causes) else "no allocator could serve it"
        return f"{asked}: {kind}. {show_bytes(m.live)} live + {show_bytes(m.size)} requested exceed the {show_bytes(limit)} " \
               f"that PyTorch could hold by {show_bytes(missing)}; {none}.{_elsewhere(causes)}"  # fmt: skip
    free = limit - m.live
    return (
        f"{asked}: {_list([c for c in causes if c.kind != 'other_device']) or 'fragmentation'}. {show_bytes(free)} were free, "
        f"{show_bytes(int(m.holes.bytes.max(initial=0)))} in the largest piece.{_elsewhere(causes)}"
    )


def _elsewhere(causes: Sequence[Cause]) -> str:
    """What other devices have to do with it."""
    return "".join(f" {c.detail[0].upper()}{c.detail[1:]}." for c in causes if c.kind == "other_device")


def _list(causes: Sequence[Cause]) -> str:
    """ "shortage and memory outside PyTorch (1 GiB)" """
    named = []
    for cause in causes:
        title = TITLES[cause.kind]
        if cause.kind == "fragmentation":
            title = f"fragmentation ({cause.detail.partition(':')[0].replace('_', ' ')})"
        article = "a " if cause.kind == "leak" else ""
        named.append(title if cause.kind in ("shortage", "impossible") else f"{article}{title} of {show_bytes(cause.bytes)}")
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}" if named else ""


def _peak(m: Moment) -> str:
    if m.held < 0:
        return f" At most {show_bytes(m.live)} live at once."
    share = f"{m.live / m.held:.1%}".replace("%", " %") if m.held else "none"
    where = "near" if m.simulated else "at"  # of a replay, where most of the peak was there for the first time
    return f" {show_bytes(m.held)} held {where} the peak, {show_bytes(m.live)} of it live ({share})."


def balance(m: Moment, limit: int, device: int) -> list[tuple[int, str]]:
    """Where the device's memory was at that moment: bytes and what they are."""
    rows: list[tuple[int, str]] = [(m.requested, "live tensors, as requested")]
    rows.append((m.live - m.requested, "rounding of their blocks"))
    if m.held >= 0:
        rows.append((m.held - m.live, "cached by PyTorch: free blocks and whole segments"))
    if m.left >= 0:
        rows.append((m.left, "free on the device"))
    if device < ENDLESS and limit < ENDLESS and device > limit:
        rows.append((device - limit, "outside PyTorch: CUDA context, NCCL, other processes"))
    return [(size, what) for size, what in rows if size]

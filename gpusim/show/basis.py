"""Where the kernel times of results come from, in words: recorded, or estimated from what; and how near a replay comes."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.base.text import join
from gpusim.base.units import show_time
from gpusim.machine.sharing import ENGINES
from gpusim.results.result import Result
from gpusim.trace.answers import unanswered

_WORDS = {
    "kernel_recorded_share": "recorded",
    "kernel_scaled_share": "scaled from another GPU",
    "kernel_measured_share": "estimated from measurements on this GPU",
    "kernel_family_share": "estimated from its family",
    "kernel_class_share": "estimated from other GPUs at its own rates",
    "kernel_default_share": "estimated from the vendor's numbers",
}
MOST = 3  # names before "and N others"


def basis(results: Sequence[Result]) -> str:
    """Of how much of the kernel time is how sure, and how far the model is from what was recorded; "" when unknown."""
    machines: dict[str, dict[str, None]] = {}
    errors: dict[str, dict[str, None]] = {}
    of_place: dict[str, list[Result]] = {}
    for r, name in zip(results, _places(results), strict=True):
        of_place.setdefault(name, []).append(r)
        if (error := r.metrics.get("duration_error")) is not None:
            errors.setdefault(f"{100 * error:.0f} %", {})[name] = None
    for name, there in of_place.items():
        if words := _shares(there):
            machines.setdefault(words, {})[name] = None
    parts = [words + _on(list(names), len(machines)) for words, names in machines.items()]
    sentences = [f"Kernel times: {'; '.join(parts)}."] if parts else []
    if errors:
        off = [error + _on(list(names), len(errors)) for error, names in errors.items()]
        sentences.append(f"Where they were recorded, the model is off by {join(off)} (median over kernels).")
    gaps = {str(r.spec["trace"]): r.spec["unanswered"] for r in results if r.spec.get("unanswered")}
    unsaid = [f"{words}." for name, missing in gaps.items() if (words := unanswered(name, missing))]
    return " ".join([*sentences, *_baselines(results), *_contention(results), *_shared_link(results), *unsaid])


def _shared_link(results: Sequence[Result]) -> list[str]:
    """Where the program copied on several streams in one direction at once without turns: what the engine makes of that."""
    without = [r for r in results if ENGINES not in str(r.spec.get("share", ""))]
    most = max((int(r.metrics.get("program_copies_shared", 0)) for r in without), default=0)
    if not most:
        return []
    return [
        f"Up to {most:,} of the program's copies began while another went the same way: they share the link, as if each had a "
        "copy engine of its own; a GPU's one engine per direction would run them one after another."
    ]


def _baselines(results: Sequence[Result]) -> list[str]:
    """Of recordings with times: how long the program takes here without a memory limit, against how long it took."""
    found: dict[str, str] = {}
    for r, name in zip(results, _places(results), strict=True):
        recorded, replayed = r.metrics.get("recorded_ns"), r.bounds.get("bound_no_limit_ns")
        if recorded and replayed:
            took = f"{show_time(replayed)}, the recording {show_time(recorded)} ({100 * (replayed / recorded - 1):+.1f} %)"
            found[name] = f"without a memory limit the replay takes {took}"
    return [f"Baseline: {'; '.join(words + _on([name], len(found)) for name, words in found.items())}."] if found else []


def _contention(results: Sequence[Result]) -> list[str]:
    """Where it is not known what operators cost each other that ran side by side in the recording."""
    runs = zip(results, _places(results), strict=True)
    found = {name: str(r.spec["contention"]) for r, name in runs if r.spec.get("contention")}
    return [f"Contention {'; '.join(why + _on([name], len(found)) for name, why in found.items())}."] if found else []


def _shares(results: Sequence[Result]) -> str:
    """ "71 % fitted to measurements, 29 % estimated" of runs in one place; "" when no result says."""
    said = [r for r in results if any(name in r.metrics for name in _WORDS)]
    found = [([r.metrics.get(name, 0.0) for r in said], word) for name, word in _WORDS.items()]
    found = [(shares, word) for shares, word in found if any(shares)]
    if len(found) == 1:
        return f"all {found[0][1]}"
    return ", ".join(f"{_percent(min(shares), max(shares))} {word}" for shares, word in found)


def _percent(low: float, high: float) -> str:
    """A part is never rounded to nothing or to all."""
    ends = ["< 1 %" if share < 0.01 else "> 99 %" if share > 0.99 else f"{100 * share:.0f} %" for share in (low, high)]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _places(results: Sequence[Result]) -> list[str]:
    """Of each run its machine, program or both: what of them varies."""
    keys = [key for key in ("trace", "profile") if len({r.spec.get(key) for r in results}) > 1]
    return [" on ".join(str(r.spec.get(key)) for key in keys) for r in results]


def _on(names: Sequence[str], kinds: int) -> str:
    if kinds == 1 or not any(names):
        return ""
    few = list(names) if len(names) <= MOST else [*names[: MOST - 1], f"{len(names) - MOST + 1} others"]
    return f" ({join(few)})"

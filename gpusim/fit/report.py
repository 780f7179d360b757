"""The answer of a study in words and rows."""

from __future__ import annotations

from typing import Any

from gpusim.fit.need import BYTES_PER_PARAMETER, count, rule_of_thumb
from gpusim.fit.study import Answer, Study, Way
from gpusim.transforms.scaling import recorded_size
from gpusim.units import show_bytes, show_time


def rows(found: Study) -> list[dict[str, Any]]:
    """A row for each machine, the best answer first."""
    return [_row(a, a.best(), found) for a in ordered(found)]


def rows_of_several(found: Study) -> list[dict[str, Any]]:
    """A row for each machine that needs several GPUs, or could do better with them."""
    return [_row(a, way, found) for a in ordered(found) if (way := a.best(several=True))]


def ordered(found: Study) -> list[Answer]:
    """The machines on which it fits as it is, then those that can be helped, then the others; the faster first."""
    return sorted(
        found.answers,
        key=lambda a: (not a.fits, a.best() is None, way.step_ns if (way := a.best()) else 0, -a.capacity, a.profile.name),
    )


def _row(a: Answer, way: Way | None, found: Study) -> dict[str, Any]:
    return {
        "machine": a.profile.name,
        "has": show_bytes(a.capacity),
        "fits": "yes" if a.fits else "no",
        "with": "" if a.fits else str(way.remedy) if way else "nothing that was tried",
        **({"GPUs": way.remedy.gpus} if way and way.remedy.gpus > 1 else {}),
        "reserves": show_bytes(way.reserved) if way else "",
        "step": show_time(way.step_ns) if way else "",
        "slowdown": f"{a.slowdown(way):.2f}x" if way else "",
        **({} if way and way.remedy.gpus > 1 else {"largest batch": _batch(a.batch, found)}),
    }


def _batch(times: float | None, found: Study) -> str:
    """In samples where the recording says how many it has, else in recorded batches."""
    if not times:
        return "" if times is None else "none"
    if recorded_size(found.need.trace, ("batch",)):
        return f"{times:,.0f}"
    return f"{times:.2f} x" if times < 10 else f"{times:.0f} x"


def heading(found: Study) -> str:
    """What the program needs, of what that consists, and the rule of thumb beside it."""
    n = found.need
    parts = sorted(n.by_role.items(), key=lambda item: -item[1])
    lines = [
        f"{n.trace.name} needs {show_bytes(n.reserved)}: " + ", ".join(f"{name} {show_bytes(size)}" for name, size in parts),
    ]
    thumb = rule_of_thumb(n.trace)
    if thumb:
        number = count(n.trace)
        lines.append(
            f"Rule of thumb, {BYTES_PER_PARAMETER} bytes for each of {number:,} parameters: {show_bytes(thumb)}, "
            f"{thumb / n.reserved - 1:+.0%} from that; it knows nothing of activations"
        )
    return "\n".join(lines)


def answer(found: Study) -> str:
    """One sentence."""
    fits = [a for a in found.answers if a.fits]
    helped = [a for a in found.answers if not a.fits and a.best()]
    together = [a for a in found.answers if a.ways and not a.best()]
    words = f"It fits {len(fits)} of {len(found.answers)} machines as it is"
    if fits:
        first = ordered(found)[0]
        words += f", fastest on {first.profile.name} with {show_time(first.ways[0].step_ns)} a step"
    if helped:
        words += f"; {len(helped)} more when tensors are made again or moved elsewhere"
    if together:
        words += f"; {len(together)} only as one of several GPUs"
    return words + "."


def values(found: Study) -> dict[str, Any]:
    """All of it as JSON values; sizes in bytes, times in ns."""
    n = found.need
    return {
        "trace": n.trace.name,
        "live_bytes": n.live,
        "reserved_bytes": n.reserved,
        "at_peak": n.by_role,
        "parameters": count(n.trace),
        "rule_of_thumb_bytes": rule_of_thumb(n.trace),
        "remedies": {chain: {"live_bytes": x.live, "reserved_bytes": x.reserved} for chain, x in found.needs.items()},
        "impossible": found.impossible,
        "machines": [
            {
                "profile": a.profile.name, "capacity_bytes": a.capacity, "fits": a.fits, "free_ns": a.free_ns,
                "largest_batch": a.batch, "refused": a.refused,
                "ways": [
                    {
                        "remedy": str(way.remedy), "gpus": way.remedy.gpus, "step_ns": way.step_ns,
                        "slowdown": a.slowdown(way), "reserved_bytes": way.reserved,
                    }
                    for way in a.ways
                ],
            }
            for a in ordered(found)
        ],
    }  # fmt: skip

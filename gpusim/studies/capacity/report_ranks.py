"""What a study says of a program over several GPUs whose ranks were all simulated."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gpusim.base.units import show_bytes, show_time
from gpusim.programs.transforms import NONE
from gpusim.studies.capacity.ranks import LayoutAnswer, RanksAnswer
from gpusim.studies.capacity.settings import AllocatorSettings

EXPERIMENT = "layouts"
"""The shipped experiment whose axes a command overrides."""


def rows(found: Sequence[RanksAnswer]) -> list[dict[str, Any]]:
    """A row for each layout on each machine."""
    made = [_row(a, one) for a in found for one in a.layouts]
    told = {key: any(row[key] for row in made) for key in ("with", "because")}
    return [{key: value for key, value in row.items() if told.get(key, True)} for row in made]


def _row(a: RanksAnswer, one: LayoutAnswer) -> dict[str, Any]:
    return {
        "machine": a.machine,
        "GPUs": one.gpus,
        "divided": one.layout,
        "with": "" if one.chain == NONE else one.chain,
        "fits": "yes" if one.fits else "no",
        "fullest rank": "" if one.reserved is None else f"{show_bytes(one.reserved)} of {show_bytes(a.room)}",
        f"a {one.of}, estimated": _shown(one) if one.fits else "",
        "because": one.why,
    }


def _shown(one: LayoutAnswer) -> str:
    return f"{show_time(one.batch_ns)} ({show_time(one.low_ns)} to {show_time(one.high_ns)})"


def sentences(found: Sequence[RanksAnswer]) -> list[str]:
    """One for each machine: the fastest layout that fits, what its fullest rank holds, and what a batch or a step takes."""
    return [_sentence(a) for a in found]


def _sentence(a: RanksAnswer) -> str:
    if (one := a.best) is None:
        counts = {layout.gpus for layout in a.layouts}
        return f"It fits {' or '.join(map(str, sorted(counts)))} GPUs of {a.machine} in no layout that was tried."
    beside = "" if one.chain == NONE else f" after {one.chain}"
    assert one.reserved is not None
    return (
        f"It fits {one.gpus} GPUs of {a.machine} as {one.layout}{beside}: rank {one.rank} is the fullest with "
        f"{show_bytes(one.reserved)} of {show_bytes(a.room)}, and a {one.of} takes an estimated {_shown(one)}."
    )


def unknown(profiles: Sequence[str], found: Sequence[RanksAnswer], gpus: int) -> list[str]:
    """Of which GPUs no machine with so many is known, as a sentence."""
    lacking = [name for name in profiles if name not in {a.profile for a in found}]
    if not lacking:
        return []
    return [
        f"No machine with {gpus} {' or '.join(lacking)} is in the catalogue: of several of them one rank is simulated, whose "
        "peers are assumed to be as fast. `gpusim machines` lists those that are, and --on MACHINE.yaml takes your own."
    ]


def command(a: RanksAnswer, one: LayoutAnswer, program: str, settings: AllocatorSettings) -> str:
    """What runs the layout once more; `program` is a trace as `gpusim run` reads it."""
    changes = {
        "trace": program, "parallel": one.layout, "transform": one.chain, "policies.evict": NONE,
        **({"policies.place": f"pytorch(conf={settings.conf})"} if settings.conf else {}),
        **({"memory": f"{a.room} B"} if settings.context is not None else {}),
    }  # fmt: skip
    said = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    return shlex.join(["gpusim", "run", EXPERIMENT, "--on", a.machine, *said])


def commands(found: Sequence[RanksAnswer], program: str, settings: AllocatorSettings) -> list[str]:
    """Of the fastest layout on each machine."""
    return [command(a, a.best, program, settings) for a in found if a.best is not None]


def values(found: Sequence[RanksAnswer], program: str, settings: AllocatorSettings) -> list[dict[str, Any]]:
    """All of it as JSON values; sizes in bytes, times in ns."""
    return [
        {
            "machine": a.machine, "profile": a.profile, "capacity_bytes": a.room,
            "layouts": [
                {
                    **asdict(one), "gpus": one.gpus, "fits": one.fits,
                    **({"command": command(a, one, program, settings)} if one.fits else {}),
                }
                for one in a.layouts
            ],
        }
        for a in found
    ]  # fmt: skip


def ways(found: Sequence[RanksAnswer], profile: str, free_ns: int | None) -> list[dict[str, Any]]:
    """Layouts that fit several of this GPU, beside what was tried on one; where the program trains their step is a batch."""
    return [
        {
            "remedy": str(one), "gpus": one.gpus, "reserved_bytes": one.reserved, "step_ns": one.batch_ns,
            "low_ns": one.low_ns, "high_ns": one.high_ns, "basis": "estimated", "machine": a.machine,
            "slowdown": one.batch_ns / free_ns if free_ns else None,
        }
        for a in found if a.profile == profile for one in a.layouts if one.fits
    ]  # fmt: skip

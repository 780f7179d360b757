"""What is lost over hours and days: a generated program through every candidate, in pieces, without an event log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpusim.base.text import table
from gpusim.base.units import show_bytes
from gpusim.policies.trials.allocator_replay import AllocatorReplay, replay
from gpusim.policies.trials.allocator_requests import AllocatorRequests
from gpusim.studies.fragmentation.candidates import Candidate

DEVICE = 80 << 30  # bytes of the device where none is named
PART = 24  # a look at the first and at the last of so many parts of the program


@dataclass(frozen=True)
class Lasting:
    """A long program under each candidate; those that hold least first."""

    program: AllocatorRequests
    capacity: int
    tried: list[tuple[Candidate, AllocatorReplay]]

    @property
    def requested_peak(self) -> int:
        """Bytes requested at once, at most: what no allocator can hold less of; refused requests are not in it."""
        return max(run.counts["requested_peak"] for _, run in self.tried)


def lasting(
    program: AllocatorRequests, candidates: Sequence[Candidate], capacity: int | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Lasting:  # fmt: skip
    """Replay a generated program under each candidate on a device of `capacity` bytes (DEVICE).

    progress  called with (requests carried out, requests in all), over all candidates
    """
    limit = capacity or DEVICE
    done: list[tuple[Candidate, AllocatorReplay]] = []

    def told(requests: int) -> None:
        progress(len(done) * program.total + requests, len(candidates) * program.total)

    for c in candidates:
        done.append((c, replay(program, c.policy(), limit, progress=told)))
    return Lasting(program, limit, sorted(done, key=lambda d: (d[1].counts["refused"], d[1].held_peak, d[1].name)))


def idle(run: AllocatorReplay, part: int) -> int:
    """The most bytes held during one part of the program, beyond the most requested: what the allocator could do without."""
    first, last = len(run.samples) * part // PART, len(run.samples) * (part + 1) // PART
    within = run.samples[first : max(last, first + 1)]
    return int(within["held"].max() - within["requested"].max())


def rows(found: Lasting) -> list[dict[str, Any]]:
    """One row per candidate, bytes and counts."""
    return [
        {
            "allocator": run.name, "held_peak": run.held_peak, "idle_first": idle(run, 0),
            "idle_last": idle(run, PART - 1), "refused": run.counts["refused"],
            "device_calls": run.counts["device_allocs"] + run.counts["device_frees"],
        }
        for _, run in found.tried
    ]  # fmt: skip


def values(found: Lasting) -> dict[str, Any]:
    """Everything as JSON: bytes and counts."""
    return {
        "name": found.program.name, "requests": found.program.total, "capacity": found.capacity,
        "requested_peak": found.requested_peak, "candidates": rows(found),
    }  # fmt: skip


def text(found: Lasting) -> str:
    """The report that `gpusim oom` prints of a generated program."""
    lines = [
        {"allocator": r["allocator"], "held": show_bytes(r["held_peak"]), "not in use, first": show_bytes(r["idle_first"]),
         "last": show_bytes(r["idle_last"]), "refused": r["refused"], "device calls": r["device_calls"]}
        for r in rows(found)
    ]  # fmt: skip
    return "\n\n".join(
        (
            f"{found.program.name}: {found.program.total:,} requests, at most {show_bytes(found.requested_peak)} "
            f"at once, on a device of {show_bytes(found.capacity)}",
            table(lines, list(lines[0])),
            f"Not in use: the most held beyond the most requested, in the first and in the last 1/{PART} of the program.",
        )
    )

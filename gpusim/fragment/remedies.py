"""What would help, ranked: each change replayed over the program as it ran, held against the program's own replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.fragment.answer import Remedy
from gpusim.fragment.baseline import Baseline, Outcome
from gpusim.fragment.candidates import Candidate
from gpusim.fragment.replay import ENDLESS, Replay

WORTH = 0.02  # of the device's memory, or of what is held where the device is not known: less is no advice
MODELLED = "pytorch"  # the place policy whose answers are checked against the real library; others are never advised


@dataclass(frozen=True)
class Tried:
    """One candidate over the program as it ran."""

    candidate: Candidate
    outcome: Outcome

    @property
    def replay(self) -> Replay:
        return self.outcome.replay


def settings(base: Baseline, own: Candidate, tried: Sequence[Tried], device: int) -> list[Remedy]:
    """Settings worth a change, best first.  The recorded one is never among them."""
    found = []
    for t in tried:
        if t.candidate != own and t.candidate.place == MODELLED and t.candidate.family == "pytorch":
            conf = str(dict(t.candidate.params).get("conf", ""))
            found.append(remedy(base, "setting", conf, t.outcome))
    return rank(base, found, device)


def remedy(base: Baseline, kind: str, what: str, outcome: Outcome) -> Remedy:
    held = outcome.replay.held_peak
    serves = outcome.replay.fits and (base.capacity >= ENDLESS or outcome.high <= base.capacity)
    return Remedy(kind, what, held, outcome.low, outcome.high, base.replay.held_peak - held, serves)


def rank(base: Baseline, found: Sequence[Remedy], device: int) -> list[Remedy]:
    """Of a program that failed, what serves every request; of another one what saves enough at its interval's worse end."""
    failed = not base.replay.fits
    least = max(WORTH * (device if device < ENDLESS else base.replay.held_peak), base.error)
    worst = [(r, base.replay.held_peak - r.high) for r in found if r.serves]
    return sorted((r for r, saves in worst if failed or saves >= least), key=lambda r: (r.high, r.held, r.setting))

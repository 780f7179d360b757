"""What would help, ranked: each change replayed over the program as it ran, held against the program's own replay."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.policies.trials.allocator_replay import ENDLESS
from gpusim.studies.fragmentation.answer import Remedy
from gpusim.studies.fragmentation.baseline import Baseline, SettingOutcome

WORTH = 0.02  # of the device's memory, or of what is held where the device is not known: less is no advice
MODELLED = "pytorch"  # the place policy whose answers are checked against the real library; no other is ever advised


def settings(base: Baseline, tried: Sequence[SettingOutcome]) -> list[Remedy]:
    """What each setting would hold.  The recorded one is never among them."""
    return [
        remedy("setting", str(dict(o.candidate.params).get("conf", "")), o)
        for o in tried
        if o.candidate != base.own and o.candidate.place == MODELLED == base.own.place
    ]


def remedy(kind: str, what: str, outcome: SettingOutcome) -> Remedy:
    low, high = outcome.held
    return Remedy(kind, what, outcome.high.held_peak, low, high, outcome.saving[0], outcome.fits)


def rank(base: Baseline, found: Sequence[Remedy], device: int) -> list[Remedy]:
    """What is worth a change, settings first, the least held first.

    Of a program that failed that is what serves every request, of another one what saves enough at its interval's worse end.
    """
    own = base.ran.high
    failed = not own.fits
    least = max(1, WORTH * (device if device < ENDLESS else own.held_peak), base.error)
    able = [r for r in found if r.serves and (failed or r.saves >= least)]
    return sorted(able, key=lambda r: (r.kind != "setting", r.high, r.held, r.setting))

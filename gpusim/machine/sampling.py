"""Machines that a profile allows: its numbers drawn between their error bars, and pushed to them one at a time.

A number is uncertain between its own `low` and `high`.  An estimate without a bar on a side is no more certain for that:
there a rate or time that the profile estimates may be off by a share that the experiment states.  Nothing else varies: what
was measured or published without bars, the nominal figures, and sizes and counts, which are choices.

A draw has a triangular distribution from `low` over the value, its peak, to `high`: no more is known than the best value
and the ends, and no draw leaves them.  The draws of a number are stratified (a Latin hypercube; McKay, Beckman and Conover
1979), so that few cover its interval evenly; they depend on the machine's and the number's name and the seed alone.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.machine.catalogue import quantities
from gpusim.machine.profile import GIVEN, Profile, changed
from gpusim.machine.quantity import Count, Quantity, Rate, Size, Time

# What a vendor states by design: a rate that is reached stays below it.
_LIMIT_OF = {
    **{f"memory.{name}": "memory.bandwidth" for name in ("read", "write", "copy", "copy_engine")},
    "link.h2d": "link.nominal", "link.d2h": "link.nominal", "link.kernel_read": "link.nominal",
    "link.kernel_write": "link.nominal", "peer.rate": "peer.nominal",
}  # fmt: skip
_NOMINAL = set(_LIMIT_OF.values())
# Measured curves whose level is this number.
_CURVE_OF = {
    "link.h2d": ("link", "size_curve"), "link.d2h": ("link", "size_curve_d2h"), "collective.rate": ("collective", "size_curve"),
    "host.pageable_h2d": ("host", "pageable_curve"), "host.pageable_d2h": ("host", "pageable_curve_d2h"),
    "memory.copy": ("memory", "copy_curve"), "memory.read": ("memory", "read_curve"),
}  # fmt: skip


@dataclass(frozen=True)
class Interval:
    """A number that is not known exactly, in base units."""

    path: str
    low: float
    value: float
    high: float
    assumed: bool  # an end is no error bar of the profile's but the share for estimates
    quantity: Quantity

    def at(self, quantile: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The triangular distribution's values at these quantiles."""
        width, below, above = self.high - self.low, self.value - self.low, self.high - self.value
        rising = self.low + np.sqrt(quantile * width * below)
        falling = self.high - np.sqrt((1 - quantile) * width * above)
        found: npt.NDArray[np.float64] = np.where(quantile * width < below, rising, falling)
        return np.rint(found) if isinstance(self.quantity, Size | Count) else found


def intervals(profile: Profile, estimated: float) -> list[Interval]:
    """The uncertain numbers of a machine, in the order of the model; `estimated` is the share for estimates."""
    known = dict(quantities(profile))
    found = []
    for path, q in known.items():
        guessed = q.basis == "estimated" and q.source != GIVEN and isinstance(q, Rate | Time) and path not in _NOMINAL
        share = estimated if guessed else 0.0
        low = q.value * (1 - share) if q.low is None else q.low
        high = q.value * (1 + share) if q.high is None else q.high
        if path in _LIMIT_OF:
            high = max(q.value, min(high, known[_LIMIT_OF[path]].value))
        if low < high:
            assumed = (q.low is None and low < q.value) or (q.high is None and high > q.value)
            found.append(Interval(path, float(low), float(q.value), float(high), assumed, q))
    return found


def draws(profile: Profile, uncertain: list[Interval], count: int, seed: int) -> list[dict[str, float]]:
    """The uncertain numbers of `count` machines."""
    columns = {}
    for interval in uncertain:
        random = np.random.default_rng([seed, zlib.crc32(f"{profile.name} {interval.path}".encode())])
        columns[interval.path] = interval.at((random.permutation(count) + random.random(count)) / count)
    return [{path: float(column[i]) for path, column in columns.items()} for i in range(count)]


def with_numbers(profile: Profile, numbers: Mapping[str, float]) -> Profile:
    """The machine with these numbers; measured curves move with theirs, and both directions stay below the sum of each."""
    new = profile
    for path, value in numbers.items():
        new = changed(new, path, value)
        if path in _CURVE_OF:
            part, curve = _CURVE_OF[path]
            new = _scaled(new, part, curve, value / getattr(getattr(profile, part), path.partition(".")[2]).value)
    most = new.link.h2d.value + new.link.d2h.value
    return changed(new, "link.both", most) if new.link.both.value > most else new


def _scaled(profile: Profile, part: str, name: str, factor: float) -> Profile:
    new: Any = copy.copy(profile)
    inner = copy.copy(getattr(profile, part))
    object.__setattr__(inner, name, tuple((size, rate * factor) for size, rate in getattr(inner, name, ())))
    object.__setattr__(new, part, inner)  # frozen everywhere else
    found: Profile = new
    return found

"""What managed memory costs, as factors to what the base says, found with the driver's model itself.

Rows do not tell a fault from a batch or a page, and hardly the copies from the work around them.  So all of the driver's work
on a service has one factor, the first touch of a block another, what the CPU does when it faults a third, and the slowness of
copies one for each direction.  They are found by linear regression that begins at the base (Bishop, Pattern Recognition and
Machine Learning, section 3.3.1), on slopes that are taken anew at each answer: what rows hardly decide stays near the base, and
its bar is wide.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from gpusim.calibrate.as_programs import paged
from gpusim.calibrate.fit.estimate import Estimate, Found, Left, plateau
from gpusim.calibrate.meaning import nanoseconds
from gpusim.calibrate.rows import Row
from gpusim.machine.paging import Paging
from gpusim.machine.platforms import numbers
from gpusim.machine.profile import Profile

F64 = npt.NDArray[np.float64]
TIMES = (
    ("service_pass", "batch", "fault", "block", "page", "run"),
    ("first_touch",),
    ("cpu_fault", "cpu_page"),
)
"""Numbers that have a factor together."""
RATES = ("rate_h2d", "rate_d2h", "remote_rate")
_GROUPS = (*TIMES, ("rate_h2d",), ("rate_d2h",))
_REMOTE = "hint=preferred_host"
_LARGEST = 64 << 20  # bytes: larger ones say the same and take longer to simulate
_DECIDES = 0.01  # share of a row's time that a group must have in it
_LEAST = 0.02  # of a factor
_STEP = 0.1    # of a factor, for slopes
_ROUNDS = 4
_NOISE = 0.02  # of a row, relative
_BAR = 1.28    # standard deviations to p10 and p90


def fit(rows: Sequence[Row], base: Profile) -> Iterator[Found]:
    """Nothing but reasons where there are no rows of managed memory."""
    mine = [r for r in rows if r.metric.startswith("managed_") and r.size_bytes]
    remote = [r for r in mine if r.param == _REMOTE]
    path = "paging.remote_rate"
    yield plateau(path, remote, lambda r: r.value * 1e9, "median at the largest sizes") or Left(path, "no rows")
    used = [r for r in mine if r.param in ("", "hint=none") and (r.size_bytes or 0) <= _LARGEST]
    used = [r for r in used if r.metric.endswith("_bw")]
    known = {name: number.value for name, number in numbers(base).items()}
    measured = np.array([nanoseconds(r) for r in used])
    factors, spread, shares = np.ones(len(_GROUPS)), np.eye(len(_GROUPS)), np.zeros((len(used), len(_GROUPS)))
    for _ in range(_ROUNDS if used else 0):
        times, slopes = _lines(used, base, known, factors)
        # Relative to the measured times; a factor of two is as likely as a row that is off by its noise.
        relative, off = slopes / measured[:, None], (measured - times) / measured
        spread = np.linalg.inv(relative.T @ relative / _NOISE**2 + np.eye(len(_GROUPS)))
        factors = np.maximum(_LEAST, 1 + spread @ relative.T @ (off + relative @ (factors - 1)) / _NOISE**2)
        shares = relative * factors
    decides = [bool((column > _DECIDES).any()) for column in shares.T]
    deviations = np.sqrt(np.diag(spread))
    for names, factor, deviation, said, share in zip(_GROUPS, factors, deviations, decides, shares.T, strict=True):
        bar = _BAR * deviation
        because = tuple(r for r, part in zip(used, share, strict=True) if part > _DECIDES)
        low, value, high = (max(_LEAST, float(f)) for f in (factor - bar, factor, factor + bar))
        for name in names:
            path, old = f"paging.{name}", known[name]
            how = f"{value:.3g} times the {'slowness' if name in RATES else 'work'} before, by the driver's model"
            bars = (old / value, old / high, old / low) if name in RATES else (old * value, old * low, old * high)
            yield Estimate(path, bars[0], because, how, *bars[1:]) if said else Left(path, "no rows")


def _lines(rows: Sequence[Row], base: Profile, known: Mapping[str, float], factors: F64) -> tuple[F64, F64]:
    """(rows,) ns of the rows' programs with these factors, and (rows, groups) how they change with each."""
    def machine(factors: F64) -> Profile:
        scaled = zip(_GROUPS, factors.tolist(), strict=True)
        changes = {n: known[n] / f if n in RATES else known[n] * f for names, f in scaled for n in names}
        return _machine(base, {**known, **changes})

    def all_ns(factors: F64) -> F64:
        return np.array([paged.ns(one, machine(factors)) if isinstance(one, paged.Managed) else 0.0 for one in made])

    made = [paged.managed(row, base) for row in rows]
    times = all_ns(factors)
    steps = np.diag(_STEP * factors)
    return times, np.stack([(all_ns(factors + step) - times) / step.sum() for step in steps], axis=1)


def _machine(base: Profile, paging: Mapping[str, float]) -> Profile:
    """The base with these numbers of unified memory, all of them."""
    new, section = copy.copy(base), copy.copy(base.paging or Paging())
    for name, value in paging.items():
        number = copy.copy(base.link.h2d)  # whatever its kind: the driver's model takes the value
        object.__setattr__(number, "value", value)
        object.__setattr__(section, name, number)
    object.__setattr__(new, "paging", section)
    return new

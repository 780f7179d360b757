"""The fit: what rows say becomes a profile, and the rest stays as the catalogue has it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from gpusim.base.errors import MeasurementError
from gpusim.base.yaml import document, validate
from gpusim.calibrate.fit import calls, kernel_numbers, kernels, links, paging, yaml_text
from gpusim.calibrate.fit.estimate import Curve, Estimate, Found, Left, said_by
from gpusim.calibrate.fit.unused import unused
from gpusim.calibrate.rows import Row, gpus, held_out, series
from gpusim.machine.paging import Paging
from gpusim.machine.profile import Collective, Profile
from gpusim.machine.quantity import Quantity

T = TypeVar("T")
DIGITS = 5
SOME, ALL = "rows of ", "all rows of "  # how keys of sources begin; only numbers from some rows can predict the others
SERIES, GPU, HOST = "fitted series", "fitted GPU", "fitted host"  # further keys of sources: what the fit saw
_ANOTHER_HOST = 0.05
_OPTIONAL = (
    *((name, "launch.gap") for name in (
        "launch.empty", "launch.barrier", "launch.copy", "memory.turnaround", "link.load", "peer.load", "link.staged_latency",
    )),
    *((name, "link.h2d") for name in (
        "link.kernel_read", "link.peer", "link.peer_both", "link.staged", "link.staged_both", "host.all_h2d",
    )),
    ("link.kernel_write", "link.d2h"), ("host.all_d2h", "link.d2h"), ("host.all_both", "link.both"),
    ("peer.both", "peer.rate"), ("gpu.fma", "gpu.peak.fp32"),
    *((f"paging.{name}", "launch.gap") for names in paging.TIMES for name in names),
    *((f"paging.{name}", "link.h2d") for name in paging.RATES),
)  # fmt: skip
"""Numbers that a profile may lack -> one of the same kind."""
_RATES = ("read", "write", "copy", "copy_engine", "h2d", "d2h", "rate", "kernel_read", "kernel_write")


@dataclass(frozen=True)
class Fitted:
    """A profile with what rows said, and what they did not."""

    base: Profile
    profile: Profile
    text: str
    """As YAML."""
    estimates: tuple[Estimate | Curve, ...]
    left: tuple[Left, ...]
    seen: tuple[Row, ...]
    """The rows that the fit was given; the held-out ones are not among them."""

    @property
    def paths(self) -> set[str]:
        """What was fitted."""
        return {e.path for e in self.estimates}


def fit(rows: Sequence[Row], base: Profile, name: str | None = None, everything: bool = False) -> Fitted:
    """A profile from the rows that are not held out, or from all.  Raises MeasurementError when there are none."""
    if not rows:
        raise MeasurementError("there are no rows to fit")
    seen = [r for r in rows if everything or not held_out(r.series_id)]
    if not seen:
        raise MeasurementError("all rows are held out for the comparison: nothing is left to fit")
    found: list[Found] = list(kernels.fit(seen, base))
    gap = next((f.value for f in found if isinstance(f, Estimate) and f.path == "launch.gap"), base.launch.gap.value)
    found += [*links.fit(seen, base, gap), *calls.fit(seen), *calls.others(seen), *paging.fit(seen, base)]
    found += kernel_numbers.products(seen, base)
    found = list(_possible(found, base))
    profile = _with_room(replace(base, name=name or base.name, sources=dict(base.sources)), {f.path for f in _said(found)})
    profile.sources.update(_saw(seen))
    notes = {}
    for one in found:
        if isinstance(one, Estimate):
            key = f"{ALL if everything else SOME}{one.path}"
            profile.sources[key] = f"{one.how}, {said_by(one.rows)}"
            profile = _set(profile, one.path.split("."), partial(_measured, one=one, key=key))
        elif isinstance(one, Curve):
            notes[one.path] = f"{one.how}, {said_by(one.rows)}; median distance {one.residual:.1%}"
            profile = _set(profile, one.path.split("."), partial(_instead, new=one.points))
    estimates = tuple(_said(found))
    profile = _consistent(profile, base, {f.path for f in estimates})
    left = (*(f for f in found if isinstance(f, Left)), *unused(seen, found))
    text = yaml_text.text(profile, _head(base, len(seen), len(rows) - len(seen), left), notes, (SERIES, GPU, HOST))
    doc = document.loads(text, f"the profile fitted to {base.name}")
    return Fitted(base, validate.build(Profile, doc, context=doc.data["sources"]), text, estimates, left, tuple(seen))


def _saw(seen: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """What the comparison asks of the fit, as sources."""
    yield SERIES, "; ".join(series(seen))
    yield from ((GPU, gpu) for gpu in gpus(seen)[:1])
    yield from ((HOST, row.system) for row in links.of_host(seen)[:1] if row.system)


def _said(found: Sequence[Found]) -> Iterator[Estimate | Curve]:
    return (f for f in found if not isinstance(f, Left))


def _with_room(profile: Profile, paths: Collection[str]) -> Profile:
    """With places for numbers that the base does not have; they are overwritten."""
    link, peer = profile.link, profile.peer
    if profile.paging is None and any(path.startswith("paging.") for path in paths):
        profile = _set(profile, ["paging"], partial(_instead, new=Paging()))
    products = {path.rpartition(".")[2] for path in paths if path.startswith("gpu.achieved.")}
    if products:
        known = {name: profile.gpu.peak[name] for name in profile.gpu.peak if name in products}
        profile = _set(profile, ["gpu", "achieved"], partial(_instead, new={**known, **(profile.gpu.achieved or {})}))
    for path, alike in _OPTIONAL:
        if path in paths and _get(profile, path) is None:
            profile = _set(profile, path.split("."), partial(_instead, new=_get(profile, alike)))
    if profile.collective is None and "collective.rate" in paths:
        rate, latency = (peer.rate, peer.latency) if peer else (link.h2d, link.latency_queued)
        profile = replace(profile, collective=Collective(rate=rate, latency=latency))
    return profile


def _possible(found: Sequence[Found], base: Profile) -> Iterator[Found]:
    """Without rates above what the pins can do: such rows measured something else."""
    limits = {"memory": base.memory.bandwidth.value, "link": base.link.nominal.value}
    if base.peer is not None:
        limits["peer"] = base.peer.nominal.value
    for one in found:
        part, _, name = one.path.partition(".")
        limit = limits.get(part, 0.0) if name in _RATES else 0.0
        if isinstance(one, Estimate) and 0 < limit < one.value:
            yield Left(one.path, f"the rows say {one.value / 1e9:.4g} GB/s, above the nominal {limit / 1e9:.4g} GB/s")
        else:
            yield one


def _consistent(profile: Profile, base: Profile, fitted: Collection[str]) -> Profile:
    """What was not measured on this host agrees with what was: the directions are alike, and together no faster than alone."""
    for one, other in (("h2d", "d2h"), ("d2h", "h2d")):
        known, before = getattr(profile.link, one), getattr(base.link, one)
        moved = abs(known.value / before.value - 1) > _ANOTHER_HOST
        if f"link.{one}" in fitted and f"link.{other}" not in fitted and moved:
            profile.sources[f"as {one}"] = f"as link.{one}, which was measured on this host, and is not that of the catalogue"
            given = {"value": known.value, "basis": "estimated", "source": f"as {one}", "low": None, "high": None, "note": ""}
            profile = _set(profile, ["link", other], partial(_with, given=given))
    most = profile.link.h2d.value + profile.link.d2h.value
    if profile.link.both.value <= most:
        return profile
    profile.sources["both alone"] = "the sum of the directions alone; both at once were not measured on this host"
    given = {"value": most, "basis": "estimated", "source": "both alone", "low": None, "high": None, "note": ""}
    return _set(profile, ["link", "both"], partial(_with, given=given))


def _instead(_: object, new: T) -> T:
    return new


def _with(quantity: Quantity, given: dict[str, Any]) -> Quantity:
    new = copy.copy(quantity)
    for name, value in given.items():
        object.__setattr__(new, name, value)
    return new


def _measured(old: Quantity, one: Estimate, key: str) -> Quantity:
    """The quantity as measured."""

    def rounded(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.{DIGITS}g}")

    value = rounded(one.value) or 0.0
    low = None if one.low is None else min(value, rounded(one.low) or 0.0)
    high = None if one.high is None else max(value, rounded(one.high) or 0.0)
    return _with(old, {"value": value, "basis": "measured", "source": key, "low": low, "high": high, "note": ""})


def _set(part: T, steps: Sequence[str], change: Callable[[Any], Any]) -> T:
    """A copy in which the part at these steps is `change` of itself."""
    new = copy.copy(part)
    old = part[steps[0]] if isinstance(part, dict) else getattr(part, steps[0])
    made = change(old) if len(steps) == 1 else _set(old, steps[1:], change)
    if isinstance(new, dict):
        new[steps[0]] = made
    else:
        object.__setattr__(new, steps[0], made)
    return new


def _head(base: Profile, seen: int, kept: int, left: Sequence[Left]) -> str:
    rest = f"{kept:,} more were held out for the comparison" if kept else "none was held out"
    lines = [
        f"{base.name} of the catalogue, with what {seen:,} measured rows say ({rest}).",
        "Made by `gpusim calibrate fit`. Not fitted, as the catalogue has it:",
        *(f"  {one.path}: {one.why}" for one in left),
    ]
    return "\n".join(lines)


def difference(fitted: Fitted) -> list[dict[str, Any]]:
    """Rows of a table: what the fit changed."""
    rows: list[dict[str, Any]] = []
    for one in fitted.estimates:
        if isinstance(one, Curve):
            rows.append({
                "number": one.path, "catalogue": "", "fitted": f"{len(one.points)} points", "change": "",
                "low": "", "high": f"{one.residual:.1%} off", "rows": len(one.rows),
            })  # fmt: skip
            continue
        old, new = _get(fitted.base, one.path), _get(fitted.profile, one.path)
        assert new is not None
        change = f"{new.value / old.value - 1:+.1%}" if old and old.value else ""
        low, high = ("" if bar is None else new.text(bar, 4) for bar in (new.low, new.high))
        rows.append({
            "number": one.path, "catalogue": f"{old.text(digits=4)} ({old.basis})" if old else "", "fitted": new.text(digits=4),
            "change": change, "low": low, "high": high, "rows": len(one.rows),
        })  # fmt: skip
    return rows


def _get(profile: Profile, path: str) -> Quantity | None:
    part: Any = profile
    for step in path.split("."):
        part = part.get(step) if isinstance(part, dict) else getattr(part, step, None)
    found: Quantity | None = part
    return found

"""The machines there are, and what is known about each, as plain rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from gpusim.base.units import show_fraction
from gpusim.base.yaml import find
from gpusim.base.yaml.descriptions import descriptions
from gpusim.machine.profile import Profile, load_file
from gpusim.machine.quantity import Quantity


@dataclass(frozen=True)
class NumberRow:
    """One number of a profile."""

    path: str  # link.h2d
    value: str  # with its unit
    basis: str
    source: str  # key into the profile's sources
    low: str
    high: str
    note: str
    meaning: str


def names() -> list[str]:
    """The machines known by name, sorted."""
    return find.names("profile")


def load(name: str, base: Path | None = None) -> Profile:
    """The profile that a name or a path means.  Raises ProfileError (unknown) or ConfigError (wrong)."""
    return load_file(find.find("profile", name, base))


def quantities(profile: Profile) -> Iterator[tuple[str, Quantity]]:
    """(path, quantity) of every number, in the order of the model."""
    yield from _walk(profile, "")


def _walk(value: Any, path: str) -> Iterator[tuple[str, Quantity]]:
    if isinstance(value, Quantity):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, f"{path}.{key}")
    elif is_dataclass(value):
        for field in fields(value):
            yield from _walk(getattr(value, field.name), f"{path}.{field.name}".lstrip("."))


def describe(profile: Profile) -> list[NumberRow]:
    """All numbers of a profile with unit, basis, source and meaning."""
    rows = []
    for path, q in quantities(profile):
        low, high = ("" if bar is None else q.text(bar) for bar in (q.low, q.high))
        rows.append(NumberRow(path, q.text(), q.basis, q.source, low, high, q.note, _meaning(path)))
    return rows


def bases(profile: Profile) -> dict[str, float]:
    """The share of its numbers that are measured, published and estimated."""
    counts = Counter(q.basis for _, q in quantities(profile))
    return {basis: counts[basis] / counts.total() for basis in ("measured", "published", "estimated")}


def measured_share(profile: Profile) -> float:
    """The share of the profile's numbers that were measured."""
    return bases(profile)["measured"]


def overview(profile: Profile) -> dict[str, str]:
    """One line about a machine."""
    memory, link = profile.memory, profile.link
    fp16 = profile.gpu.peak.get("fp16")
    return {
        "profile": profile.name,
        "architecture": profile.gpu.architecture,
        "memory": memory.capacity.text(digits=3),
        "kind": memory.kind + (", unified" if memory.unified else ""),
        "copy kernel": memory.copy.text(digits=3),
        "link": link.kind,
        "to device": link.h2d.text(digits=3),
        "to host": link.d2h.text(digits=3),
        "fp16": fp16.text(digits=3) if fp16 else "",
        "measured": show_fraction(measured_share(profile), 2),
    }


def _meaning(path: str) -> str:
    """The description of the field at `path` ('gpu.peak.fp16' -> that of 'gpu.peak')."""
    model: Any = Profile
    text = ""
    for step in path.split("."):
        field = getattr(model, "__pydantic_fields__", {}).get(step)
        if field is None:
            break
        text = descriptions(model).get(step, "")
        model = field.annotation
    return text

"""A profile as YAML, in the order and manner of the catalogue's files."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from gpusim.base.units import BYTES, RATE, TIME, Kind, write
from gpusim.machine.profile import Profile
from gpusim.machine.quantity import Quantity


def text(profile: Profile, head: str, beside: Mapping[str, str], kept: Collection[str] = ()) -> str:
    """The file; `head`: comment lines; `beside`: path of a curve -> comment; `kept`: sources that no number names."""
    used = _used(profile) | set(kept)
    lines = [f"# {line}".rstrip() for line in head.splitlines()]
    lines += ["", f"name: {word(profile.name)}", f"summary: {word(profile.summary)}"]
    lines += ["", "sources:", *(f"  {word(key)}: {word(what)}" for key, what in profile.sources.items() if key in used)]
    for field in fields(profile):
        value = getattr(profile, field.name)
        if field.name in ("name", "summary", "sources") or value is None:
            continue
        if isinstance(value, Quantity):
            lines += ["", f"{field.name}: {quantity(value)}"]
        else:
            lines += ["", f"{field.name}:", *_section(value, field.name, 2, beside)]
    return "\n".join(lines) + "\n"


def _section(part: Any, path: str, indent: int, beside: Mapping[str, str]) -> list[str]:
    items = part if isinstance(part, dict) else {f.name: getattr(part, f.name) for f in fields(part)}
    usual = {} if isinstance(part, dict) else {f.name: f.default for f in fields(part)}
    lines = []
    for key, value in items.items():
        left = f"{' ' * indent}{key}:"
        if value is None or (key in usual and value is usual[key]):
            continue
        if isinstance(value, Quantity):
            lines.append(f"{left} {quantity(value)}")
        elif isinstance(value, dict) or is_dataclass(value):
            lines += [left, *_section(value, f"{path}.{key}", indent + 2, beside)]
        elif isinstance(value, tuple):
            if value:
                lines += [f"{' ' * indent}# {beside[f'{path}.{key}']}"] if f"{path}.{key}" in beside else []
                lines.append(f"{left} {curve(value, TIME if key == 'latency_curve' else RATE)}")
        else:
            lines.append(f"{left} {word(value)}")
    return lines


def curve(points: Sequence[tuple[float, float]], kind: Kind = RATE) -> str:
    """As a list of pairs: bytes and a rate, or another quantity."""
    return f"[{', '.join(f'[{write(int(size), BYTES)}, {write(value, kind)}]' for size, value in points)}]"


def quantity(q: Quantity) -> str:
    """As a mapping in one line."""
    parts = [f"value: {_number(q.value, q.kind)}", f"basis: {q.basis}", f"source: {word(q.source)}"]
    parts += [f"{name}: {_number(bar, q.kind)}" for name, bar in (("low", q.low), ("high", q.high)) if bar is not None]
    parts += [f"note: {word(q.note)}"] if q.note else []
    return f"{{{', '.join(parts)}}}"


def _number(value: float, kind: Kind | None) -> str:
    if kind is None:
        return f"{value:g}"
    return write(int(value) if kind.whole else value, kind)


def word(value: Any) -> str:
    """A text, in quotes, or another value."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else "true" if value is True else str(value)


def _used(part: Any) -> set[str]:
    if isinstance(part, Quantity):
        return {part.source}
    if isinstance(part, dict):
        return set().union(*(_used(item) for item in part.values()))
    if is_dataclass(part):
        return set().union(*(_used(getattr(part, f.name)) for f in fields(part)))
    return set()

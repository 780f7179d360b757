"""Which machine a run was on: a hash of the numbers of its profile, whatever their sources and notes say."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from typing import Any

from gpusim.machine.profile import Profile
from gpusim.machine.quantity import Quantity

_WORDS = ("sources", "summary")  # of a profile, which decide nothing


def profile_hash(profile: Profile) -> str:
    """sha256 over the numbers, in hexadecimal."""
    return hashlib.sha256(repr(_numbers(profile)).encode()).hexdigest()


def _numbers(part: Any) -> Any:
    if isinstance(part, Quantity):
        return float(part.value)
    if isinstance(part, dict):
        return sorted((key, _numbers(item)) for key, item in part.items())
    if is_dataclass(part):
        return [(field.name, _numbers(getattr(part, field.name))) for field in fields(part) if field.name not in _WORDS]
    return part

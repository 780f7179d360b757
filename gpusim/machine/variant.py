"""A machine with some numbers of its own: "a100-pcie-80gb(launch.submit=8 us, link.h2d=50 GB/s)", "a100-sxm4-80gb/3g.40gb".

Measured curves move with the number that is their level; what is given is not sampled as uncertain.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpusim.base.errors import ProfileError, suggest
from gpusim.base.units import parse
from gpusim.base.yaml.values import machine, whole_and_slice
from gpusim.machine import mig
from gpusim.machine.profile import Profile, load_file
from gpusim.machine.quantity import Compute, Quantity, Rate
from gpusim.machine.sampling import with_numbers


def load(file: Path, text: str) -> Profile:
    """The profile in the file with the numbers that `text` gives it.

    Raises ConfigError for a profile with mistakes, ProfileError for a path that leads to no number, UnitError for its value.
    """
    profile = load_file(file)
    if part := whole_and_slice(text)[1]:
        profile = mig.instance(profile, part)
    numbers: dict[str, float] = {}
    for path, given in machine(text)[1]:
        if path in numbers:
            raise ProfileError(f"'{text}' gives '{path}' twice")
        numbers[path] = _value(profile, path, given)
    return with_numbers(profile, numbers) if numbers else profile


def _value(profile: Profile, path: str, text: str) -> float:
    part: Any = profile
    for step in path.split("."):
        known = part if isinstance(part, dict) else getattr(part, "__dataclass_fields__", {})
        found = part.get(step) if isinstance(part, dict) else getattr(part, step, None) if step in known else None
        if found is None or isinstance(part, Quantity):
            hint = f"`gpusim profiles {profile.name}` lists its numbers" if step in known else suggest(step, known)
            raise ProfileError(f"profile '{profile.name}' has no number '{path}'", hint=hint)
        part = found
    if not isinstance(part, Quantity):
        inside = [f"{path}.{name}" for name in (part if isinstance(part, dict) else getattr(part, "__dataclass_fields__", {}))]
        raise ProfileError(f"'{path}' is not a number of a profile", hint="such as " + ", ".join(inside[:3]) if inside else "")
    if part.kind is None:
        if not text.isdecimal() or not int(text):
            raise ProfileError(f"'{path}' is '{text}', not a whole number above 0")
        return int(text)
    value = float(parse(text, part.kind))
    if isinstance(part, Rate | Compute) and value <= 0:
        raise ProfileError(f"'{path}' is {text}: a rate of 0 would never come to an end")
    return value



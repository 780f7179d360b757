"""The profile that a GPU's product name means, as drivers and profilers write it: "NVIDIA A100 80GB PCIe", "Tesla T4".

Every word of the name must be one of the profile's name or its kind of memory, but for words that all GPUs share.  A name that
fits several profiles ("NVIDIA H200") or none means no profile.
"""

from __future__ import annotations

import re
from functools import cache

from gpusim.machine import catalogue
from gpusim.machine.profile import Profile

_IDLE = {"nvidia", "tesla", "geforce", "generation", "gpu", "graphics"}
_MEMORY = re.compile(r"^(hbm|gddr|lpddr)\d")


@cache
def profile_of(product: str) -> Profile | None:
    """The catalogue's profile of this name or product; None where not exactly one fits."""
    if product in catalogue.names():
        return catalogue.load(product)
    words = set(re.findall(r"[a-z0-9]+", product.lower())) - _IDLE
    memory = {word for word in words if _MEMORY.match(word)}
    named = words - memory
    fitting = [name for name in catalogue.names() if named and named <= set(name.split("-"))]
    profiles = [catalogue.load(name) for name in fitting]
    found = [profile for profile in profiles if memory <= {profile.memory.kind.lower()}]
    return found[0] if len(found) == 1 else None

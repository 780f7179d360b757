"""The allocator's settings that a memory snapshot tells, as the environment variable has them."""

from __future__ import annotations

from typing import Any

MIB = 1 << 20


def settings_of(told: Any, maps: bool) -> str | None:
    """The settings; None where an old snapshot tells none.

    told  the snapshot's allocator_settings.  The text is there when the settings were given as one, otherwise they are put
          together from their values
    maps  the snapshot shows expandable segments, whatever it tells
    """
    if not isinstance(told, dict):
        return "expandable_segments:True" if maps else None
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if isinstance(told.get(name), str) and told[name].strip():
            return str(told[name])
    found = []
    most, threshold = told.get("max_split_size"), told.get("garbage_collection_threshold")
    if type(most) is int and 0 < most < 2**62:
        found.append(f"max_split_size_mb:{most // MIB}")
    if type(threshold) is float and 0 < threshold < 1:
        found.append(f"garbage_collection_threshold:{threshold}")
    parts = told.get("roundup_power2_divisions")
    if isinstance(parts, dict):
        counts = {size: n for size, n in parts.items() if type(size) is str and size.isdigit() and type(n) is int and n > 0}
        named = [f"{size}:{n}" for size, n in counts.items()]
        found += [f"roundup_power2_divisions:[{','.join(named)}]"] if named else []
    if told.get("expandable_segments") is True:
        found.append("expandable_segments:True")
    return ",".join(found)

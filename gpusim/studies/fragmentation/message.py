"""The text of PyTorch's OutOfMemoryError: what a snapshot does not tell, the device's total among it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpusim.base.errors import TraceError
from gpusim.base.units import parse_bytes

_SIZE = r"(\d+(?:\.\d+)?) (bytes|KiB|MiB|GiB|TiB)"
_FIELDS = {
    "asked": rf"[Tt]ried to allocate {_SIZE}",
    "total": rf"(?:total capacity of {_SIZE}|{_SIZE} total capacity)",
    "free": rf"(?:of which {_SIZE} is free|{_SIZE} free)",
    "live": rf"(?:{_SIZE} is allocated by PyTorch|{_SIZE} already allocated)",
}


@dataclass(frozen=True)
class Message:
    """Bytes as the text rounds them, -1 where it does not say.

    asked  the request; total: of the device; free: left on it; live: allocated by PyTorch
    """

    asked: int = -1
    total: int = -1
    free: int = -1
    live: int = -1


def parse(text: str) -> Message:
    """Read the text of the error, of any release since 1.0.  Raises TraceError when it tells no capacity."""
    found = {}
    for name, pattern in _FIELDS.items():
        match = re.search(pattern, text)
        if match:
            number, unit = (group for group in match.groups() if group is not None)
            found[name] = parse_bytes(f"{number} {'B' if unit == 'bytes' else unit}")
    if "total" not in found:
        raise TraceError(
            "this text does not say the device's total capacity", hint="copy the whole line of torch.OutOfMemoryError"
        )
    return Message(**found)

"""Collectives in a recording of several devices: the least time of a group is the collective's own, the rest is waiting."""

from __future__ import annotations

import re
from collections.abc import Sequence

_COLLECTIVE = re.compile(r"^nccl(?!.*SendRecv)", re.IGNORECASE)


def least_of_groups(kernels: Sequence[tuple[int, int, str, int]]) -> dict[int, int]:
    """Number of a collective's kernel -> the least time that it took on any of the devices, ns.

    kernels  (start, device, name, duration), ns

    The n-th collective of a name is the same one on all devices that have as many of that name; else it is not known which is
    which, and none is told.
    """
    turns: dict[str, dict[int, list[int]]] = {}
    for i, (_, device, name, _) in sorted(enumerate(kernels), key=lambda each: each[1][0]):
        if _COLLECTIVE.match(name):
            turns.setdefault(name, {}).setdefault(device, []).append(i)
    own: dict[int, int] = {}
    for devices in turns.values():
        if len({len(numbers) for numbers in devices.values()}) == 1:
            for group in zip(*devices.values(), strict=True):
                own |= dict.fromkeys(group, min(kernels[i][3] for i in group))
    return own

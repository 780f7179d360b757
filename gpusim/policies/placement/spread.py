"""One rank on each host in turn."""

from __future__ import annotations

from itertools import zip_longest

from gpusim.policies.placing import PlacementView


def spread(view: PlacementView) -> list[str]:
    """One rank on each host in turn."""
    of: dict[int, list[str]] = {}
    for gpu in view.gpus:
        of.setdefault(view.machine.host[gpu], []).append(gpu)
    return [gpu for turn in zip_longest(*of.values()) for gpu in turn if gpu is not None][: view.ranks]

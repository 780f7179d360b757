"""Neighbouring ranks on neighbouring GPUs."""

from __future__ import annotations

from gpusim.policies.placing import PlacementView


def packed(view: PlacementView) -> list[str]:
    """Neighbouring ranks on neighbouring GPUs, host by host, in the order in which the machine lists them."""
    return list(view.gpus[: view.ranks])

"""A fixed time between checkpoints."""

from __future__ import annotations

from gpusim.policies.intervals import CheckpointView


def every(view: CheckpointView, seconds: float = 1800.0) -> float:
    """A checkpoint after so many seconds of work, whatever fails."""
    return seconds * 1e9

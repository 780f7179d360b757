"""What one run came to on machines that the profile's error bars allow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Push:
    """One number of one machine at one end of its interval."""

    profile: str
    path: str
    side: str  # "low" or "high"
    at: str  # with its unit
    instead: str


@dataclass(frozen=True)
class Sampled:
    """What one run came to elsewhere than on the machine of its profile."""

    values: dict[str, tuple[float, ...]]  # metric -> on each sampled machine, inf where it did not finish
    pushed: dict[Push, float]  # makespan, inf where it did not finish
    given: int  # numbers with error bars of their own
    assumed: int  # numbers that are estimates without a bar on some side
    estimated: float  # how far these may be off

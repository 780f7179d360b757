"""A replay beside its recording: how long the device was at work in both, and whether what ran at once there is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusim.base.units import show_time
from gpusim.engine import state
from gpusim.machine.kernels.alone import beside, recorded_span
from gpusim.machine.product import profile_of
from gpusim.machine.profile import Profile
from gpusim.machine.sharing import MEMORY, SMS
from gpusim.trace.recorded_times import recorded_on
from gpusim.trace.trace import Trace

if TYPE_CHECKING:
    from gpusim.engine.run.simulate import Simulation

APART = 0.02
"""A replay on the recorded machine that is further from the recorded time does not come back to it."""
OF_A_STRANGER = "unknown: operators ran side by side on a machine that is not in the catalogue"


def device_times(simulation: Simulation, trace: Trace) -> dict[str, int | float]:
    """Metrics: from the first start to the last end on the device, here and in the recording; none where that does not say."""
    span = recorded_span(trace)
    if not span or simulation.reason != state.FINISHED:
        return {}
    streams = simulation.island.queues[: int(simulation.island.clock[0]["streams"])]
    first, last = int(simulation.island.began.min()), int(streams["free_at"].max())
    return {"device_ns": last - first, "recorded_device_ns": span}


def contention(simulation: Simulation, profile: Profile, trace: Trace, metrics: dict[str, int | float]) -> dict[str, Any]:
    """What a result's spec says where it is not known what the operators of the recording cost each other; else nothing.

    That is so where operators ran side by side on a machine that is not in the catalogue, and where a replay on the recorded
    machine, of a run that swaps nothing, takes another time than the recording.
    """
    origin = profile_of(recorded_on(trace))
    if origin is None:
        shares = {SMS, MEMORY} & set(simulation.shared.words)
        return {"contention": OF_A_STRANGER} if shares and len(beside(trace).stretch) else {}
    if origin.name != profile.name or "device_ns" not in metrics or metrics["swap_ins"] or metrics["swap_outs"]:
        return {}
    here, there = metrics["device_ns"], metrics["recorded_device_ns"]
    said = f"unknown: the device works for {show_time(here)}, in the recording for {show_time(there)}"
    return {"contention": said} if abs(here / there - 1) > APART else {}

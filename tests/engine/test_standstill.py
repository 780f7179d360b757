"""Is a simulation that waits for what never comes named, with what waits for what?"""

from __future__ import annotations

import pytest

from gpusim.base.errors import GpusimError
from gpusim.engine import state
from gpusim.engine.run.simulate import prepared
from gpusim.machine.catalogue import load
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import RECORD, WAIT, Trace


def two_streams() -> Trace:
    """Stream 1's kernel waits for an event behind stream 0's, which takes 5 ms."""
    r = TraceBuilder("two streams")
    x = r.alloc(1024)
    r.op("first", reads=[], writes=[x], duration=5_000_000)
    r.event(RECORD, 0, stream=0)
    r.event(WAIT, 0, stream=1)
    r.op("second", reads=[x], writes=[], duration=1000, stream=1)
    return r.finish()


def test_what_waits_for_what_never_comes_is_named() -> None:
    run = prepared(two_streams(), load("l4"))
    assert run.simulation.advance(1_000_000) == state.REACHED
    island = run.simulation.island
    island.need[island.queues[1]["base"], 0] = 2  # as if a fault of the engine had it wait for a second kernel of stream 0
    assert run.simulation.advance(state.NEVER) == state.STUCK
    with pytest.raises(GpusimError) as told:
        run.result()
    assert "the simulation of two streams stands still at 5" in told.value.message
    assert "in stream 1 kernel 1 (second) waits for something that was never submitted in stream 0" in told.value.message


def test_a_host_that_waits_is_named_and_an_activity_that_does_not_end() -> None:
    run = prepared(two_streams(), load("l4"))
    assert run.simulation.advance(1_000_000) == state.REACHED
    island = run.simulation.island
    island.clock[0]["events"] = 0  # as if the end of the kernel had been forgotten
    island.hosts[0]["state"] = state.DRAIN
    assert run.simulation.advance(state.NEVER) == state.STUCK
    with pytest.raises(GpusimError) as told:
        run.result()
    waits = "the host waits until the device is idle; in stream 0 kernel 0 (first) has started and does not end"
    assert waits in told.value.message

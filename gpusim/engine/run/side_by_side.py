"""Simulations that run side by side on one clock: whose turn it is the island says, what is done about it each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gpusim.base.compiled import Placed, direct
from gpusim.base.errors import GpusimError
from gpusim.base.tables import filled
from gpusim.engine import state
from gpusim.engine.host.island import run_until
from gpusim.engine.state import ISLAND, POLICIES, PROGRAM, Instructions, Island, PolicyTables, Processes

if TYPE_CHECKING:
    from gpusim.engine.run.simulate import Simulation


def enter(row: Any, island: Island, program: Instructions, policies: PolicyTables) -> Any:
    """The row of a process names these tables; they stay where they are as long as the answer lives."""
    placed = Placed(island, ISLAND), Placed(program, PROGRAM), Placed(policies, POLICIES)
    row["island"], row["program"], row["policies"] = (tables.address for tables in placed)
    return placed


def step(simulations: Sequence[Simulation], processes: Processes, until: int) -> tuple[int, int]:
    """Run the simulations up to `until` ns, each of them a row of the processes: (why they stopped, because of which)."""
    return guarded(simulations, processes, lambda: direct(run_until)(processes, until))


def guarded(simulations: Sequence[Simulation], processes: Processes, run: Callable[[], int]) -> tuple[int, int]:
    """What the loop returned, and whose step was at hand; an exception is that of the policy that raised it."""
    try:
        reason = run()
    except GpusimError:
        raise
    except Exception as error:  # the island itself raises nothing
        raise simulations[int(processes.turn[0]["process"])].theirs(error) from error
    return reason, int(processes.turn[0]["process"])


class SideBySide:
    """Several simulations in progress, each on a device of its own.

    lookahead   ns: what one does reaches another so much later, so far each may run ahead; NEVER, as they share nothing
    """

    def __init__(self, simulations: Sequence[Simulation], lookahead: int = state.NEVER) -> None:
        self.simulations = simulations
        self.processes = filled(Processes, {"P": len(simulations)})
        self.processes.turn["lookahead"] = lookahead
        for number, simulation in enumerate(simulations):
            row = self.processes.rows[number]
            row["device"] = row["host"] = row["tenant"] = number
            row["ended"] = simulation.reason == state.HOST_OUT_OF_MEMORY
            simulation.enter(row)

    @property
    def now(self) -> int:
        """Simulated time, ns."""
        return max(simulation.now for simulation in self.simulations)

    def advance(self, until: int) -> int:
        """Run all up to `until` ns, serving what they ask for; FINISHED when each has come to its end, else REACHED."""
        ended = self.processes.rows["ended"]
        while not ended.all():
            reason, which = self._step(until)
            if reason == state.REACHED:
                return reason
            stopped = self.simulations[which]
            stopped.reason = reason
            if not stopped.served():
                ended[which] = 1
                self._left(which)
        return state.FINISHED

    def _left(self, which: int) -> None:
        """A program has come to its end."""

    def _step(self, until: int) -> tuple[int, int]:
        return step(self.simulations, self.processes, until)

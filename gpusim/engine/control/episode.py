"""One run that something outside decides: it stops at each decision, and goes on with the answer.

    episode = DecisionEpisode(prepared(...), DecisionAsked("victim", observe=("size", "last_use"), candidates=4))
    while episode.decide(action):
        episode.observed ...

This is the bare machinery of `gpusim.environment`, without Gymnasium.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.base.compiled import Placed, address, direct
from gpusim.base.errors import GpusimError, suggest
from gpusim.base.tables import filled, table
from gpusim.engine import state
from gpusim.engine.control.deciding import DECIDED, DECISION, MOMENT_FACTS, RUN, Decision, decide
from gpusim.engine.host.island import run_until
from gpusim.engine.run.outcome import OUTCOMES
from gpusim.engine.run.simulate import Prepared
from gpusim.engine.state import PROCESSES
from gpusim.policies.compiled import F64, I64
from gpusim.policies.contract import FACTS, FUTURE_FACTS
from gpusim.trace.roles import stages

KINDS = {"victim": state.VICTIM, "prefetch": state.DEPTH}
MOST = 1 << 20   # of candidates, and of operators ahead
OOM_CHARGE = 10  # slowdown that the operators count which a run out of memory leaves


@dataclass(frozen=True)
class DecisionAsked:
    """What is decided, and what is observed of it.

    kind        "victim": which of the candidates leaves; "prefetch": of how many operators ahead what they use comes in
    observe     names of facts: those of the moment (MOMENT_FACTS) once, those of a candidate (contract.FACTS) for each
    candidates  so many units to choose from
    depth       the most operators ahead
    """

    kind: str = "victim"
    observe: tuple[str, ...] = ("size", "last_use", "uses", "dirty")
    candidates: int = 4
    depth: int = 8

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise GpusimError(f"an episode cannot decide '{self.kind}'", hint=suggest(self.kind, KINDS) or ", ".join(KINDS))
        known = [*MOMENT_FACTS, *(FACTS if self.kind == "victim" else ())]
        for name in self.observe:
            if name not in known:
                raise GpusimError(
                    f"'{name}' is no fact that can be observed where '{self.kind}' is decided",
                    hint=suggest(name, known) or "facts: " + ", ".join(dict.fromkeys(known)),
                )  # fmt: skip
        if len(set(self.observe)) < len(self.observe) or not self.observe:
            raise GpusimError("observe names each fact once, and at least one")
        for name, value in (("candidates", self.candidates), ("depth", self.depth)):
            if not 1 <= value <= MOST:
                raise GpusimError(f"{name} is {value:,}", hint=f"1 to {MOST:,}")

    @property
    def of_moment(self) -> list[int]:
        """Numbers of the facts that are observed once."""
        return [list(MOMENT_FACTS).index(name) for name in self.observe if name in MOMENT_FACTS]

    @property
    def of_candidate(self) -> list[int]:
        """Numbers of the facts that are observed of each candidate."""
        return [list(FACTS).index(name) for name in self.observe if name not in MOMENT_FACTS]

    @property
    def numbers(self) -> int:
        """How many numbers are observed."""
        return len(self.of_moment) + len(self.of_candidate) * self.candidates

    @property
    def actions(self) -> int:
        """The actions are 0 to one less."""
        return self.candidates if self.kind == "victim" else self.depth + 1

    @property
    def foresees(self) -> bool:
        """Whether what is observed tells the future."""
        return bool({*FUTURE_FACTS, "missing"} & set(self.observe))


class DecisionEpisode:
    """A prepared run, from its first decision to its end.

    observed    the numbers at the decision: facts of the moment in the order of `observe`, then those of each candidate
    passed      ns of simulated time since the decision before
    reason      why it stopped last (engine.state)
    """

    def __init__(self, run: Prepared, asked: DecisionAsked) -> None:
        simulation = run.simulation
        if asked.kind == "victim" and simulation.evict.form in ("none", "ask"):
            raise simulation.evict.error("cannot make the list of candidates: that takes a compiled policy")
        if asked.kind == "prefetch" and simulation.prefetch.name != "next_k":
            raise simulation.prefetch.error("has no depth that could be decided: that takes next_k")
        self.run, self.asked, self.simulation = run, asked, simulation
        simulation.policies.rules["decides"] = KINDS[asked.kind]
        if "stage" in asked.observe:
            simulation.island.units["stage"] = stages(simulation.work.trace)
        row = table(1, DECISION)
        row["kind"], row["look"] = KINDS[asked.kind], asked.depth
        self._decision: Decision = filled(
            Decision, {}, row=row, run=np.array([address(run_until, RUN)], np.int64),
            of_moment=np.array(asked.of_moment or [-1], np.int64), of_candidate=np.array(asked.of_candidate or [-1], np.int64),
            candidates=np.zeros(asked.candidates, np.int64), observed=np.zeros(max(1, asked.numbers)),
        )  # fmt: skip
        self._row, self.observed = row[0], self._decision.observed
        self._placed = Placed(self._decision, DECIDED), Placed(simulation.alone, PROCESSES)
        self._at = self._placed[1].address, self._placed[0].address
        self._decide = direct(decide)
        self.reason = simulation.reason
        self.ends = float(run.work.clock[-1] + run.work.duration[-1]) if len(run.work.clock) else 1.0

    def decide(self, action: int = 0) -> bool:
        """Go on with this action to the next decision; False when there is none, as the run has ended."""
        reason = self._decide(*self._at, action)
        if reason == state.ASK:
            return True
        simulation, passed = self.simulation, int(self._row["passed"])
        while reason != state.ASK:
            simulation.reason = self.reason = reason
            if not simulation.served():
                break
            reason = self._decide(*self._at, 0)
            passed += int(self._row["passed"])
        self._row["passed"] = passed
        return bool(reason == state.ASK)

    @property
    def passed(self) -> int:
        """ns of simulated time since the decision before."""
        return int(self._row["passed"])

    @property
    def candidates(self) -> I64:
        """The units that may be chosen now."""
        return self._decision.candidates[: int(self._row["count"])]

    def told(self) -> dict[str, Any]:
        """Of a run that has ended: its outcome, the time that it took, and the share of its operators that it left."""
        simulation = self.simulation
        done = int(simulation.island.tenants[0]["kernels"]) / max(1, len(simulation.program.duration))
        outcome = OUTCOMES.get(simulation.reason, "failed")
        return {"outcome": outcome, "makespan_ns": simulation.now, "left": 0.0 if outcome == "finished" else 1.0 - done}

    def copy_observed(self) -> F64:
        """The numbers at this decision, which stay as they are."""
        return self.observed.copy()

"""The environments of `gpusim.environment`, in Gymnasium's convention; only loaded where that package is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from gpusim.api.result import Result
from gpusim.base.errors import GpusimError
from gpusim.engine.control.episode import OOM_CHARGE, DecisionAsked, DecisionEpisode
from gpusim.engine.control.games import Game

F64 = npt.NDArray[np.float64]
Step = tuple[F64, float, bool, bool, dict[str, Any]]


class _Environment(gymnasium.Env[F64, np.int64]):
    """names: of the numbers that are observed, in order."""

    _going = False  # an episode has begun and not ended

    def __init__(self, names: tuple[str, ...], numbers: int, actions: int) -> None:
        self.names = names
        self.metadata = {"render_modes": []}
        self.observation_space = gymnasium.spaces.Box(0.0, np.inf, (numbers,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(actions)
        self._actions = actions

    def _checked(self, action: Any) -> int:
        """The action.  Raises GpusimError outside of an episode, and for a number that is no action."""
        chosen = int(action)
        if not self._going:
            raise GpusimError("a step outside of an episode", hint="call reset() first, and again when an episode has ended")
        if not 0 <= chosen < self._actions:
            raise GpusimError(f"{chosen} is not an action", hint=f"0 to {self._actions - 1}")
        return chosen


class RunEnvironment(_Environment):
    """One run an episode: each step answers one decision of it.

    begin  makes the run anew, from a seed; made  the result of one that has ended
    """

    episode: DecisionEpisode

    def __init__(
        self, begin: Callable[[int], DecisionEpisode], asked: DecisionAsked, seed: int,
        made: Callable[[DecisionEpisode], Result],
    ) -> None:  # fmt: skip
        super().__init__(asked.observe, asked.numbers, asked.actions)
        self._begin, self._seed, self._made = begin, seed, made

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[F64, dict[str, Any]]:
        """Begin the run again, up to its first decision.  A seed stays until the next one."""
        super().reset(seed=seed)
        self._seed = self._seed if seed is None else seed
        self.episode, self._going = self._begin(self._seed), True
        return self.episode.copy_observed(), {}

    def step(self, action: Any) -> Step:
        """Carry out the action, go on to the next decision."""
        chosen, episode = self._checked(action), self.episode
        self._going = going = episode.decide(chosen)
        reward = -episode.passed / episode.ends
        if going:
            return episode.observed.copy(), reward, False, False, {}
        told = episode.told()
        return episode.copy_observed(), reward - OOM_CHARGE * told["left"], True, False, told

    @property
    def candidates(self) -> npt.NDArray[np.int64]:
        """The tensors that may be chosen now."""
        return self.episode.candidates.copy()

    def result(self) -> Result:
        """Of the run that has ended, as `gpusim.simulate` has it.  Raises GpusimError before its end."""
        if self._going or not hasattr(self, "episode"):
            raise GpusimError("there is no result before the episode has ended")
        return self._made(self.episode)


class RoundEnvironment(_Environment):
    """Rounds of whole runs: each step chooses how the next is done."""

    game: Game

    def __init__(self, names: tuple[str, ...], begin: Callable[[], Game], actions: int) -> None:
        super().__init__(names, len(names), actions)
        self._begin = begin

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[F64, dict[str, Any]]:
        """Begin with the first round; what is observed before is 0."""
        super().reset(seed=seed)
        self.game, self._going = self._begin(), True
        return np.zeros(len(self.names)), {}

    def step(self, action: Any) -> Step:
        """One round."""
        seen = self.game.round(self._checked(action))
        self._going = self.game.left > 0
        observed = np.array([float(seen.facts[name]) for name in self.names])
        return observed, seen.reward, False, self.game.left == 0, dict(seen.facts)

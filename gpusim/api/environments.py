"""A run, or rounds of runs, as an environment to learn in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.api.inputs import Source, machine_of, source_of
from gpusim.api.result import Result
from gpusim.base.errors import GpusimError, suggest
from gpusim.base.yaml import values
from gpusim.engine.control.episode import DecisionAsked, DecisionEpisode
from gpusim.engine.control.games import BATCH_FACTS, SHARE_FACTS, BatchGame, Game, ShareGame
from gpusim.engine.run.simulate import prepared
from gpusim.experiment.execute import RunProgram
from gpusim.machine import sharing
from gpusim.machine.profile import Profile
from gpusim.trace.trace import Trace
from gpusim.trace.workload import Workload

if TYPE_CHECKING:
    from gpusim.api.gym import RoundEnvironment, RunEnvironment

DECIDE = ("victim", "prefetch", "batch", "share")


def environment(
    trace: str | Path | Source,
    on: str | Path | Profile,
    *,
    decide: str = "victim",
    observe: Sequence[str] = (),
    candidates: int = 4,
    depth: int = 8,
    batches: Sequence[int] = (),
    shares: Sequence[int] = (10, 25, 50, 75, 90),
    beside: str | Path | Source | None = None,
    rounds: int = 20,
    memory: str | int = "capacity",
    seed: int = 0,
    log: bool = False,
    **policies: Any,
) -> RunEnvironment | RoundEnvironment:
    """An environment in Gymnasium's convention: a program on a GPU, of which each step decides one thing.

    decide      "victim": which of the `candidates` leaves; "prefetch": of how many operators ahead, 0 to `depth`, what they use
                comes in; "batch": which of `batches` the next round of a training has; "share": which of `shares` percent of
                the multiprocessors the program has beside another, under MPS
    observe     facts by name; docs/learned.md has those of each decision.  Empty: a few of them
    candidates  units to choose from: those that the evict policy of the run would name first
    beside      the other program, of "share"
    rounds      so many steps, of "batch" and "share"
    memory      bytes that the program may use: "32 GiB", "60 %" of its footprint, or "capacity"
    policies    place, evict, prefetch, release, use, ...: as for `simulate`

    The rewards of a run are minus the time since the decision before, over the program's own time without a stall.
    Raises GpusimError without Gymnasium, for what cannot be decided or observed, and where a run has nothing to decide.

    >>> import gpusim
    >>> env = gpusim.environment("resnet50-train", on="a100-pcie-40gb", memory="60 %", observe=("size", "last_use"))
    >>> observed, _ = env.reset(seed=0)
    >>> observed.shape, int(env.action_space.n)
    ((8,), 4)
    """
    gym = _gymnasium()
    if decide not in DECIDE:
        raise GpusimError(f"no environment decides '{decide}'", hint=suggest(decide, DECIDE) or ", ".join(DECIDE))
    program, profile = _program(trace), machine_of(on)[1]
    capacity = values.capacity(memory)
    work = _work(program, profile, policies.get("share", sharing.WORDS))
    room = None if capacity == values.Capacity() else capacity.resolve(work.live_peak, 0)
    if decide == "batch":

        def train() -> Game:
            return BatchGame(program, profile, batches, rounds, capacity_bytes=room, **policies)

        train()  # which says what is wrong
        training: RoundEnvironment = gym.RoundEnvironment(_observed(observe, BATCH_FACTS, decide), train, len(batches))
        return training
    if decide == "share":
        if beside is None:
            raise GpusimError("a share is divided between two programs", hint='say beside="resnet50-train"')
        works = [work, _work(_program(beside), profile, sharing.WORDS)]
        game = ShareGame(works, profile, shares, rounds, **policies)
        shared: RoundEnvironment = gym.RoundEnvironment(_observed(observe, SHARE_FACTS, decide), game.again, len(shares))
        return shared
    asked = DecisionAsked(decide, tuple(observe) or _USUAL[decide], candidates, depth)
    given = {"prefetch": "next_k", **policies} if decide == "prefetch" else policies

    def begin(drawn: int) -> DecisionEpisode:
        run = prepared(program, profile, work=work, capacity_bytes=room, seed=drawn, log=log, **given)
        episode = DecisionEpisode(run, asked)
        if not episode.decide():
            why = "needs no room" if episode.told()["outcome"] == "finished" else "runs out of memory before"
            raise GpusimError(f"nothing is decided: {program.name} {why}", hint='give it another memory: memory="60 %"')
        return episode

    def result(episode: DecisionEpisode) -> Result:
        return Result(episode.run.result(), program, machine=profile)

    made: RunEnvironment = gym.RunEnvironment(begin, asked, seed, result)
    return made


_USUAL = {"victim": ("size", "last_use", "uses", "dirty"), "prefetch": ("free", "missing", "waited", "progress")}


def _program(what: str | Path | Source) -> Trace:
    name, found = source_of(what)
    if not isinstance(found, Trace):
        raise GpusimError(f"'{name}' is not the program of one GPU, which an environment runs")
    return found


def _work(program: Trace, profile: Profile, share: str | Sequence[str]) -> Workload:
    found = RunProgram(program, profile, None, sharing.parse(share)).work
    assert isinstance(found, Workload), "of a trace"
    return found


def _observed(names: Sequence[str], facts: dict[str, str], decide: str) -> tuple[str, ...]:
    for name in names:
        if name not in facts:
            raise GpusimError(
                f"'{name}' is no fact that can be observed where '{decide}' is decided",
                hint=suggest(name, facts) or "facts: " + ", ".join(facts),
            )  # fmt: skip
    return tuple(names) or tuple(facts)


def _gymnasium() -> Any:
    """The environments; GpusimError where the package is absent, which is an extra."""
    try:
        from gpusim.api import gym
    except ImportError:
        raise GpusimError("an environment needs Gymnasium", hint="pip install 'gpusim[learn]'") from None
    return gym

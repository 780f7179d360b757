"""Parts of a cluster that are slow for a time, or lose memory for good: jobs that it reaches, and their speed then."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.engine.cluster.breakdowns import BEYOND, WITHIN, ClusterFailure
from gpusim.policies.cluster_state import FreeGpus


@dataclass(frozen=True)
class SlowEpisode:
    """Until `ends` s; gpu: -1 where it is no single one."""

    ends: float
    node: int
    gpu: int
    kind: ClusterFailure


class SlowParts:
    """What is slow now."""

    def __init__(self, free: FreeGpus) -> None:
        self._free, self._episodes = free, list[SlowEpisode]()

    @property
    def ends(self) -> float:
        """When the next of them is as before, s."""
        return min((each.ends for each in self._episodes), default=math.inf)

    def begins(self, now: float, node: int, gpu: int, kind: ClusterFailure) -> SlowEpisode:
        """A part is slow from now on."""
        made = SlowEpisode(now + kind.lasts, node, gpu, kind)
        self._episodes.append(made)
        return made

    def over(self, now: float) -> list[SlowEpisode]:
        """Those whose time is over, which are no more."""
        return self._drop([each for each in self._episodes if each.ends <= now])

    def replaced(self, node: int) -> list[SlowEpisode]:
        """The node is gone, and with it what was slow there."""
        return self._drop([each for each in self._episodes if each.node == node])

    def _drop(self, gone: list[SlowEpisode]) -> list[SlowEpisode]:
        self._episodes = [each for each in self._episodes if each not in gone]
        return gone

    def reaches(self, each: SlowEpisode, gpus: Sequence[int]) -> bool:
        """Whether a job on these GPUs waits for it: a GPU for its job, a wire for those with several GPUs there, a network card
        for those on several nodes."""
        if each.gpu >= 0:
            return each.gpu in gpus
        nodes = [self._free.node_of[gpu] for gpu in gpus]
        here = nodes.count(each.node)
        return here > 0 and ((each.kind.reach == WITHIN and here > 1) or (each.kind.reach == BEYOND and len(set(nodes)) > 1))

    def factor(self, gpus: Sequence[int]) -> float:
        """Of its pace what a job keeps on these GPUs: all its ranks wait for the slowest."""
        return min((each.kind.speed for each in self._episodes if self.reaches(each, gpus)), default=1.0)

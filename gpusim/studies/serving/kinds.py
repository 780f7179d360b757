"""Kinds of replicas of a service: those on GPUs of one kind are alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpusim.base.errors import GpusimError
from gpusim.base.text import join
from gpusim.machine.serving import step as steps
from gpusim.machine.serving.build import ServedStepTimes
from gpusim.machine.serving.given import GivenStepTimes
from gpusim.machine.topology.topology import Topology
from gpusim.studies.serving.flexgen import FlexgenOffload
from gpusim.studies.serving.offload import LayerOffload

Below = LayerOffload | FlexgenOffload | None
"""Weights that lie below the GPUs."""


@dataclass(frozen=True)
class ReplicaKind:
    """What replicas on GPUs of one kind have in common.

    name     of the GPU's profile
    blocks   of keys and values, of each replica
    offload  weights that lie below the GPUs
    """

    name: str
    times: ServedStepTimes | GivenStepTimes
    blocks: int
    offload: Below = None

    def paced(self, bound: str) -> ReplicaKind:
        """See `PreparedService.paced`."""
        if isinstance(self.times, GivenStepTimes):
            return self
        first = {"fast": steps.LOW, "slow": steps.HIGH}[bound]
        table = steps.paced(self.times.table, self.times.table[first : first + 5])
        below = self.offload and self.offload.paced(bound)
        return replace(self, times=replace(self.times, table=table), offload=below)


def too_few(machine: Topology, tensor: int, replicas: int) -> str:
    """Why a machine has no room for so many replicas (0: for one)."""
    wanted, there = max(replicas, 1), len(machine.gpus)
    said = f"{wanted} replica{'s' if wanted > 1 else ''} of {tensor} GPU{'s' if tensor > 1 else ''}"
    if there >= wanted * tensor:
        return f"machine '{machine.name}' has {there} GPUs of several kinds, and a replica has one kind: too few for {said}"
    said = f"machine '{machine.name}' has {there} GPU{'s' if there > 1 else ''}, too few for {said}"
    return said if there > 1 else f"{said} (write '{wanted * tensor} x {machine.name}')"


def check_kinds(names: Sequence[str], *, given: str, below: str) -> None:
    """Raises GpusimError for step times that are given, and weights below the GPU, where GPUs are of several kinds."""
    if len(set(names)) < 2:
        return
    for asked, what in ((given, "given step times are"), (below, "weights below the GPU are modelled")):
        if asked:
            raise GpusimError(f"{what} of one kind of GPU, and the service has {join(tuple(names))}", hint="name one machine")

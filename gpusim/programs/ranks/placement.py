"""Which GPU of a machine each rank has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from gpusim.base.errors import GpusimError, suggest
from gpusim.machine.topology.topology import Topology

PLACEMENTS = PACKED, SPREAD = "packed", "spread"


def placement(word: str) -> str:
    """The word, when it names a placement.  Raises GpusimError."""
    if word not in PLACEMENTS:
        raise GpusimError(f"'{word}' is no placement of ranks", hint=suggest(str(word), PLACEMENTS))
    return word


def placed(machine: Topology, ranks: int, how: str | Sequence[str] = PACKED) -> tuple[str, ...]:
    """The GPU of each rank, by name.

    how  "packed": neighbouring ranks on neighbouring GPUs, host by host; "spread": one rank on each host in turn;
         or the GPUs themselves, in the order of ranks
    Raises GpusimError: more ranks than GPUs, a GPU that is not there or has two ranks, another word.
    """
    if ranks > len(machine.gpus):
        raise GpusimError(
            f"{ranks} ranks do not fit machine '{machine.name}', which has {len(machine.gpus)} GPU"
            f"{'s' if len(machine.gpus) > 1 else ''}",
            hint="one rank is one GPU: lower a degree, or take more machines: '2 x NAME'",
        )  # fmt: skip
    if isinstance(how, str):
        return tuple(_WAYS[placement(how)](machine)[:ranks])
    for i, gpu in enumerate(how):
        if gpu not in machine.gpus:
            raise GpusimError(f"machine '{machine.name}' has no GPU '{gpu}'", hint=suggest(gpu, machine.gpus))
        if gpu in how[:i]:
            raise GpusimError(f"ranks {[*how].index(gpu)} and {i} are both on '{gpu}'", hint="one rank is one GPU")
    if len(how) != ranks:
        raise GpusimError(f"{len(how)} GPUs are named for {ranks} ranks")
    return tuple(how)


def _spread(machine: Topology) -> list[str]:
    of: dict[int, list[str]] = {}
    for gpu in machine.gpus:
        of.setdefault(machine.host[gpu], []).append(gpu)
    return [gpu for turn in zip_longest(*of.values()) for gpu in turn if gpu is not None]


_WAYS: dict[str, Callable[[Topology], list[str]]] = {PACKED: lambda machine: list(machine.gpus), SPREAD: _spread}

"""Which GPU of a machine each rank has: given, or as a policy of kind placement answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from gpusim.base.errors import GpusimError, PolicyError, suggest
from gpusim.base.yaml.values import policy
from gpusim.machine.collectives.passes import Kind
from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.topology.topology import Topology
from gpusim.policies import registry
from gpusim.policies.placing import GroupExchange, PlacementView
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.programs.ranks.matching import Members, absent_of
from gpusim.trace.exchanges import RECEIVE, SEND, Exchange, parse_exchanges
from gpusim.trace.trace import KERNEL, OP, Trace

PACKED = "packed"


def placement_text(said: Any) -> str:
    """How an experiment names a placement: "by_topology(tries=100)", or GPUs in the order of ranks, "gpu0 gpu3".

    said  such a text, or a list of GPUs.  Raises GpusimError.
    """
    if isinstance(said, list | tuple):
        return " ".join(map(str, said))
    return " ".join(given(str(said))) or str(policy(said))


def given(text: str) -> tuple[str, ...]:
    """The GPUs that a placement names itself, in the order of ranks; () of a policy."""
    words = tuple(text.split())
    return words if len(words) > 1 and "(" not in text else ()


def check(text: str, own: Registry = SHIPPED) -> None:
    """Raises PolicyError for a placement that is no policy, or a parameter that it does not have."""
    if not given(text):
        _entry(text, own)


def sources(text: str, own: Registry = SHIPPED) -> list[Any]:
    """The module of a built-in, the entry of a user's own policy; none of GPUs that are given."""
    if given(text):
        return []
    entry = _entry(text, own)
    return [entry.module if entry.builtin else entry]


def _entry(text: str, own: Registry) -> Any:
    spec = policy(text)
    entry = own.find("placement", spec.name)
    registry.bind(entry, dict(spec.params))
    return entry


def check_room(machine: Topology, ranks: int, text: str = PACKED) -> None:
    """Raises GpusimError: more ranks than GPUs; a GPU that is not there, or has two ranks; more or fewer of them than ranks."""
    if ranks > len(machine.gpus):
        raise GpusimError(
            f"{ranks} ranks do not fit machine '{machine.name}', which has {len(machine.gpus)} GPU"
            f"{'s' if len(machine.gpus) > 1 else ''}",
            hint="one rank is one GPU: lower a degree, or take more machines: '2 x NAME'",
        )  # fmt: skip
    if gpus := given(text):
        _check_gpus(machine, ranks, gpus)


def placed(
    collectives: CollectiveTimes, ranks: int, how: str | Sequence[str] = PACKED, exchanges: Sequence[GroupExchange] = (),
    kernels: float = 0.0, own: Registry = SHIPPED,
) -> tuple[str, ...]:  # fmt: skip
    """The GPU of each rank, by name.

    how        a policy of kind placement, or the GPUs themselves, in the order of ranks
    exchanges  what the ranks exchange, and ns of their kernels, by which the policy may go

    Raises GpusimError as `check_room`; PolicyError for what the policy answers.
    """
    machine = collectives.machine
    gpus = given(how) if isinstance(how, str) else tuple(how)
    check_room(machine, ranks)
    if gpus:
        _check_gpus(machine, ranks, gpus)
        return gpus
    found = own.get("placement", policy(how))
    answer = found.order(PlacementView(machine, ranks, tuple(exchanges), kernels, collectives))
    try:
        _check_gpus(machine, ranks, answer)
    except GpusimError as error:
        said = f"policy '{found.name}' places ranks wrongly: {error.message}"
        raise PolicyError(said, found.entry.where, error.hint) from None
    return tuple(answer)


def group_exchanges(programs: Sequence[Trace], members: Members) -> list[GroupExchange]:
    """What ranks exchange, each once; ranks that were not recorded take part in what others do.

    programs  of each rank.  Raises GpusimError for a group that there is not
    """
    absent, used = absent_of(programs), {id(program): _used(program) for program in programs}
    found = []
    for rank, program in enumerate(programs):
        for (each, apart), calls in used[id(program)].items():
            ranks = members(rank, each.group)
            if each.kind == SEND:
                found.append(GroupExchange(each.group, cast("Kind", SEND), each.size, (rank, *ranks), apart, calls))
            elif each.kind != RECEIVE and len(ranks) > 1 and next(r for r in ranks if r not in absent) == rank:
                found.append(GroupExchange(each.group, cast("Kind", each.kind), each.size, ranks, apart, calls))
    return found


def _used(program: Trace) -> Counter[tuple[Exchange, bool]]:
    """How often a program has each exchange on a stream with kernels, and on one without."""
    stream = program.stream[program.kind == OP]
    apart = ~np.isin(stream, stream[program.activity == KERNEL])
    exchanged, said = program.exchange >= 0, [parse_exchanges(text) for text in program.exchanges]
    pairs = zip(program.exchange[exchanged].tolist(), apart[exchanged].tolist(), strict=True)
    return Counter((each, beside) for number, beside in pairs for each in said[number])


def _check_gpus(machine: Topology, ranks: int, gpus: Sequence[str]) -> None:
    for i, gpu in enumerate(gpus):
        if gpu not in machine.gpus:
            raise GpusimError(f"machine '{machine.name}' has no GPU '{gpu}'", hint=suggest(str(gpu), machine.gpus))
        if gpu in gpus[:i]:
            raise GpusimError(f"ranks {[*gpus].index(gpu)} and {i} are both on '{gpu}'", hint="one rank is one GPU")
    if len(gpus) != ranks:
        raise GpusimError(f"{len(gpus)} GPUs are named for {ranks} ranks")

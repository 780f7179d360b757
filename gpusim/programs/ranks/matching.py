"""Which operators of which ranks belong together: the n-th call of a group on each of its ranks is one collective."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from gpusim.base.errors import TraceError
from gpusim.trace.exchanges import RECEIVE, SEND, Exchange, communicator, parse_exchanges
from gpusim.trace.trace import Trace

Members = Callable[[int, str], tuple[int, ...]]  # (rank, group) -> its ranks
_Group = tuple[bool, str, tuple[int, ...]]  # whether it is a pair of sender and receiver, communicator, ranks
Call = tuple[int, Exchange]  # an operator, and what it exchanges


ABSENT = "absent"
"""Key in the meta of the empty program of a rank that was not recorded."""


@dataclass(frozen=True)
class Matched:
    """One collective, or a send with its receive.

    ranks      of the group in its order; of a send the sender, then the receiver
    operators  of each of them, -1 of one that was not recorded
    """

    kind: str
    size: int
    ranks: tuple[int, ...]
    operators: tuple[int, ...]


def absent_of(programs: Sequence[Trace]) -> frozenset[int]:
    """The ranks that were not recorded."""
    return frozenset(rank for rank, program in enumerate(programs) if program.meta.get(ABSENT))


def matched(programs: Sequence[Trace], members: Members) -> list[Matched]:
    """What the ranks' programs exchange, each once; a group of one rank exchanges nothing, an absent rank is not asked.

    Calls of a group are matched in the order in which each rank issues them, as NCCL does; those of a batch each for itself.
    Raises TraceError, naming ranks and operators, where they do not agree.
    """
    members = cache(members)
    calls: dict[_Group, dict[int, list[Call]]] = {}
    for rank, program in enumerate(programs):
        exchanges = [parse_exchanges(text) for text in program.exchanges]
        for operator in np.flatnonzero(program.exchange >= 0).tolist():
            for said in exchanges[int(program.exchange[operator])]:
                group = _group(rank, operator, said, members)
                if len(group[2]) > 1:
                    calls.setdefault(group, {}).setdefault(rank, []).append((operator, said))
    absent = absent_of(programs)
    return [one for (_, _, ranks), of in calls.items() for one in _of_group(programs, ranks, of, absent)]


def _group(rank: int, operator: int, said: Exchange, members: Members) -> _Group:
    ranks = members(rank, said.group)
    if said.kind in (SEND, RECEIVE):
        ranks = (rank, *ranks) if said.kind == SEND else (*ranks, rank)
    elif rank not in ranks:
        raise TraceError(f"operator {operator} of rank {rank} calls group {said.group}, of which it is no rank")
    return said.kind in (SEND, RECEIVE), communicator(said.group), ranks


def _of_group(
    programs: Sequence[Trace], ranks: tuple[int, ...], of: dict[int, list[Call]], absent: Collection[int]
) -> list[Matched]:
    present = tuple(rank for rank in ranks if rank not in absent)
    counts = {rank: len(of.get(rank, ())) for rank in present}
    if len(set(counts.values())) > 1:
        most, least = max(counts, key=lambda rank: counts[rank]), min(counts, key=lambda rank: counts[rank])
        operator, said = of[most][counts[least]]
        raise TraceError(
            f"rank {most} waits in {_named(programs, most, operator, said)} for rank {least}, which never comes there: it has "
            f"{counts[least]} calls of the group {','.join(map(str, ranks))}, and rank {most} has {counts[most]}"
        )
    found = [_agreed(programs, present, each) for each in zip(*(of[rank] for rank in present), strict=True)]
    return found if len(present) == len(ranks) else [_with_absent(one, ranks) for one in found]


def _with_absent(one: Matched, ranks: tuple[int, ...]) -> Matched:
    of = dict(zip(one.ranks, one.operators, strict=True))
    return replace(one, ranks=ranks, operators=tuple(of.get(rank, -1) for rank in ranks))


def _agreed(programs: Sequence[Trace], ranks: tuple[int, ...], each: tuple[Call, ...]) -> Matched:
    """The n-th calls of these ranks, which have to be one collective of one size."""
    operator, said = each[0]
    for rank, (other, says) in zip(ranks, each, strict=True):
        alike = said.kind == says.kind or {said.kind, says.kind} == {SEND, RECEIVE}
        if not alike or said.size != says.size:
            raise TraceError(
                f"rank {ranks[0]} is in {_named(programs, ranks[0], operator, said)} with rank {rank}, which is in "
                f"{_named(programs, rank, other, says)}"
            )
    return Matched(SEND if said.kind == RECEIVE else said.kind, said.size, ranks, tuple(operator for operator, _ in each))


def _named(programs: Sequence[Trace], rank: int, operator: int, said: Exchange) -> str:
    return f"{said.kind} of {said.size} bytes (its operator {operator})"

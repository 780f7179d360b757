"""Programs that were recorded on many ranks: each rank's own, with collectives matched by communicator and sequence number."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from gpusim.base.errors import TraceError
from gpusim.programs.ranks.layout import RankLayout
from gpusim.programs.ranks.matching import ABSENT, Matched, Members, absent_of, matched
from gpusim.programs.ranks.order import check_order
from gpusim.trace.answers import NEEDS, Answers, answers
from gpusim.trace.build import make_trace
from gpusim.trace.exchanges import RECEIVE, SEND, exchange_text
from gpusim.trace.importers.collective_calls import CollectiveCall
from gpusim.trace.importers.rank_recording import RankRecording
from gpusim.trace.trace import COLLECTIVE, NAME_TABLES, Trace, columns

_SHARE = {
    "all_reduce": lambda n: 2 * (n - 1) / n, "all_gather": lambda n: (n - 1) / n, "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
}  # fmt: skip
"""Of a collective's bytes, what a rank sends; else all of them."""


@dataclass(frozen=True, eq=False)
class RankPrograms:
    """The program of each rank; one that was not recorded has an empty one.

    meta  JSON: what was assumed (`filled`), what to check (`warnings`)
    """

    name: str
    programs: tuple[Trace, ...]
    meta: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def absent(self) -> frozenset[int]:
        """Ranks that were not recorded."""
        return absent_of(self.programs)

    @property
    def answers(self) -> Answers:
        """What all of the recorded ones can answer."""
        each = [answers(program) for rank, program in enumerate(self.programs) if rank not in self.absent]
        return Answers(**{need: all(getattr(one, need) for one in each) for need in NEEDS})

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over all programs, in hex: what they are as an input."""
        return hashlib.sha256("".join(program.content_hash for program in self.programs).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RankPrograms) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)

    @property
    def members(self) -> Members:
        """The ranks of a group, as an exchange names it."""
        return RankLayout(data=len(self.programs)).members

    def check(self) -> list[Matched]:
        """What the ranks exchange.  Raises TraceError where calls do not match, or ranks wait for each other for ever."""
        found = matched(self.programs, self.members)
        check_order(self.programs, found)
        return found


class RankCall(NamedTuple):
    """A call of a rank, by its operator."""

    operator: int
    call: CollectiveCall


def joined(recordings: Mapping[int, RankRecording], name: str) -> RankPrograms:
    """The programs of the ranks that were recorded, and empty ones for the others.

    recordings  by rank
    Raises TraceError where they contradict each other.
    """
    world = _world(recordings)
    join = _Join(recordings, world)
    exchanges = join.exchanges()
    shifts, apart = _clocks(recordings, join.together)
    programs = tuple(
        _program(recordings[rank], exchanges[rank], shifts[rank]) if rank in recordings else _empty(rank)
        for rank in range(world)
    )  # fmt: skip
    meta = join.meta()
    if apart:
        meta["filled"]["clocks"] = f"those of the hosts, up to {apart} ns apart, are set so that collectives end at once"
    made = RankPrograms(name, programs, meta)
    made.check()
    return made


def _world(recordings: Mapping[int, RankRecording]) -> int:
    said = {recording.world: rank for rank, recording in sorted(recordings.items()) if recording.world}
    if len(said) > 1:
        (a, first), (b, second), *_ = said.items()
        raise TraceError(
            f"rank {first} was recorded in a run of {a} ranks, and rank {second} in one of {b}",
            recordings[second].path, "import the recordings of one run",
        )  # fmt: skip
    listed = [rank for recording in recordings.values() for group in recording.groups.values() for rank in group]
    listed += [rank for recording in recordings.values() for call in recording.calls.values() for rank in call.ranks]
    least = 1 + max(*recordings, *listed) if listed else 1 + max(recordings)
    world = next(iter(said), least)
    if least > world:
        where = recordings[max(recordings)].path
        raise TraceError(f"rank {least - 1} is named, and the run had {world} ranks", where, "they are counted from 0")
    return world


class _Join:
    """Calls of all ranks being matched."""

    def __init__(self, recordings: Mapping[int, RankRecording], world: int) -> None:
        self.recordings, self.world = recordings, world
        self.together: list[dict[int, int]] = []  # of each collective: rank -> operator
        self.cut: Counter[int] = Counter()  # rank -> calls at the ends of its recording that others did not record
        self.uneven = self.lonely = 0
        self.unread = sum(recording.unread for recording in recordings.values())
        self._called = {rank: {call.group for call in each.calls.values()} for rank, each in recordings.items()}

    def exchanges(self) -> dict[int, dict[int, str]]:
        """Rank -> operator -> its exchange, as `trace.exchanges` writes it.  Raises TraceError."""
        found: dict[int, dict[int, str]] = {rank: {} for rank in self.recordings}
        collectives: dict[tuple[tuple[int, ...], str], dict[int, list[RankCall]]] = {}
        for rank, recording in sorted(self.recordings.items()):
            for operator, call in sorted(recording.calls.items()):
                if call.kind in (SEND, RECEIVE):
                    self._point_to_point(rank, RankCall(operator, call), found)
                else:
                    ranks = self._ranks(rank, call)
                    if len(ranks) > 1:
                        of = collectives.setdefault((ranks, call.group), {})
                        of.setdefault(rank, []).append(RankCall(operator, call))
        several = Counter(ranks for ranks, _ in collectives)
        unlike = {ranks for ranks in several if len({frozenset(of) for (r, _), of in collectives.items() if r == ranks}) > 1}
        for (ranks, group), of in _merged(collectives, unlike).items():
            self._group(ranks, group if several[ranks] > 1 and ranks not in unlike else "", of, found)
        return found

    def _ranks(self, rank: int, call: CollectiveCall) -> tuple[int, ...]:
        """The ranks of the call's group.  Raises TraceError where they are not known."""
        recording = self.recordings[rank]
        ranks = call.ranks or recording.groups.get(call.group, ()) or self._callers(call)
        named = f"group '{call.group}'" + (f" ({call.desc})" if call.desc and call.desc != call.group else "")
        if not ranks or (call.ranked and len(ranks) != call.ranked):
            many = f" of {call.ranked} ranks" if call.ranked else ""
            raise TraceError(
                f"rank {rank} calls {call.kind} in {named}{many}, and no recording says which ranks it has", recording.path,
                "record all ranks, or with PyTorch 2.4 or later, which lists the ranks of each group",
            )  # fmt: skip
        if rank not in ranks:
            listed = ", ".join(map(str, ranks))
            raise TraceError(f"rank {rank} calls {call.kind} in {named}, whose ranks are {listed}", recording.path)
        return ranks

    def _callers(self, call: CollectiveCall) -> tuple[int, ...]:
        """The ranks of a group that no recording lists: all, or those that call it where no other can; else none."""
        callers = tuple(rank for rank in sorted(self.recordings) if call.group in self._called[rank])
        if call.ranked == self.world or (not call.ranked and len(callers) == len(self.recordings)):
            return tuple(range(self.world))
        certain = len(callers) == call.ranked if call.ranked else len(self.recordings) == self.world
        return callers if certain else ()

    def _point_to_point(self, rank: int, one: RankCall, found: dict[int, dict[int, str]]) -> None:
        call, peer = one.call, one.call.peer
        if peer < 0 and len(ranks := call.ranks or self.recordings[rank].groups.get(call.group, ())) == 2:
            peer = next(r for r in ranks if r != rank)
        if 0 <= peer < self.world:
            size = call.sent if call.kind == SEND or call.received < 0 else call.received
            found[rank][one.operator] = exchange_text(call.kind, str(peer), size)
        else:
            self.unread += 1

    def _group(
        self, ranks: tuple[int, ...], label: str, of: Mapping[int, list[RankCall]], found: dict[int, dict[int, str]]
    ) -> None:
        """One communicator's calls, matched by sequence number where all have one, else in the order of issue."""
        present = [rank for rank in ranks if rank in self.recordings]
        text = ",".join(map(str, ranks)) + (f"@{label}" if label else "")
        numbered = _numbered(of)
        if numbered is None:
            longest = max(len(calls) for calls in of.values())
            rows = [{rank: of[rank][n] for rank in present if n < len(of.get(rank, ()))} for n in range(longest)]
        else:
            rows = list(self._by_number(present, numbered))
        for row in rows:
            self.together.append({rank: one.operator for rank, one in row.items()})
            self.lonely += len(present) < len(ranks)
            sizes = self._sizes(row, len(ranks))
            for rank, one in row.items():
                found[rank][one.operator] = exchange_text(one.call.kind, text, sizes[rank])

    def _by_number(
        self, present: Sequence[int], numbered: Mapping[int, Mapping[int, RankCall]]
    ) -> Iterator[dict[int, RankCall]]:
        """Calls of each number; those before all recordings have begun, or after one has ended, keep their recorded times."""
        if missing := [rank for rank in present if rank not in numbered]:
            other = next(iter(numbered))
            raise self._never(other, next(iter(numbered[other].values())), missing[0])
        first, last = max(min(of) for of in numbered.values()), min(max(of) for of in numbered.values())
        for rank, of in numbered.items():
            self.cut[rank] += sum(not first <= number <= last for number in of)
        for number in sorted({number for of in numbered.values() for number in of if first <= number <= last}):
            row = {rank: of[number] for rank, of in numbered.items() if number in of}
            if missing := [rank for rank in present if rank not in row]:
                other, one = next(iter(row.items()))
                raise self._never(other, one, missing[0])
            yield row

    def _never(self, rank: int, one: RankCall, missing: int) -> TraceError:
        call, number = one.call, f"call {one.call.sequence} of group '{one.call.group or 'of all'}'"
        return TraceError(
            f"rank {rank} waits in {call.kind} of {call.sent} bytes ({number}) for rank {missing}, which never comes there",
            self.recordings[missing].path, "is the recording of that rank whole, and of the same run?",
        )  # fmt: skip

    def _sizes(self, row: Mapping[int, RankCall], ranks: int) -> dict[int, int]:
        """The bytes of each rank's call, as `trace.exchanges` counts them; an uneven all-to-all has its largest part's."""
        if all(one.call.kind == "all_to_all" for one in row.values()):
            each = [size for one in row.values() for size in (one.call.sent, one.call.received) if size >= 0]
            self.uneven += len(set(each)) > 1
            return dict.fromkeys(row, max(each))
        return {rank: _whole(one.call, ranks) for rank, one in row.items()}

    def meta(self) -> dict[str, Any]:
        """What was assumed, and what to check."""
        missing = [rank for rank in range(self.world) if rank not in self.recordings]
        filled, warnings = dict[str, str](), list[str]()
        if missing:
            few = ", ".join(map(str, missing[:16])) + (", ..." if len(missing) > 16 else "")
            were = "was" if len(missing) == 1 else "were"
            filled["ranks"] = f"{len(missing)} of {self.world} {were} not recorded: {few}"
            warnings.append(
                f"{len(missing)} of {self.world} ranks {were} not recorded ({few}): such ranks are taken to come in time to "
                f"{self.lonely} collectives, so that no other waits for them, and else to do nothing"
            )
        if self.uneven:
            filled["sizes"] = f"an uneven all-to-all takes the time of its largest part: {self.uneven} of them"
        if cut := sum(self.cut.values()):
            filled["ends"] = f"{cut} calls before all recordings have begun or after one has ended keep their recorded times"
        if self.unread:
            said = f"{self.unread} kernels of NCCL do not say what they exchange with which ranks"
            warnings.append(f"{said}: they keep their recorded times")
        return {"filled": filled, "warnings": warnings}


def _merged(
    collectives: Mapping[tuple[tuple[int, ...], str], dict[int, list[RankCall]]], unlike: set[tuple[int, ...]]
) -> dict[tuple[tuple[int, ...], str], dict[int, list[RankCall]]]:
    """Communicators apart; of ranks that name theirs in different ways there is one."""
    found: dict[tuple[tuple[int, ...], str], dict[int, list[RankCall]]] = {}
    for (ranks, group), of in collectives.items():
        into = found.setdefault((ranks, "" if ranks in unlike else group), {})
        for rank, calls in of.items():
            into[rank] = sorted([*into.get(rank, ()), *calls])
    return found


def _numbered(of: Mapping[int, list[RankCall]]) -> dict[int, dict[int, RankCall]] | None:
    """Rank -> number -> call, where every call has a number of its own."""
    found = {rank: {one.call.sequence: one for one in calls} for rank, calls in of.items()}
    whole = all(-1 not in found[rank] and len(found[rank]) == len(of[rank]) for rank in of)
    return found if whole else None


def _whole(call: CollectiveCall, ranks: int) -> int:
    if call.kind == "all_gather":
        return call.received if call.received >= 0 else call.sent * ranks
    return 0 if call.kind == "barrier" else call.sent


def _clocks(recordings: Mapping[int, RankRecording], together: Iterable[Mapping[int, int]]) -> tuple[dict[int, int], int]:
    """What is added to each rank's times, ns, so that all stand on one clock from 0; and how far clocks were apart.

    A collective ends on all ranks at once, whatever their hosts' clocks say.
    """
    if any(recording.start < 0 for recording in recordings.values()):
        return dict.fromkeys(recordings, 0), 0
    later: dict[int, list[float]] = defaultdict(list)
    for row in together:
        ends = {r: recordings[r].spans[o].end for r, o in row.items() if o in recordings[r].spans}
        least = min(ends.values(), default=0)
        middle = median(end - least for end in ends.values()) if ends else 0
        for rank, end in ends.items():
            later[rank].append(end - least - middle)
    ahead = {rank: round(median(later[rank])) if later[rank] else 0 for rank in recordings}
    begins = {rank: recording.start - ahead[rank] for rank, recording in recordings.items()}
    first = min(begins.values())
    return {rank: begin - first for rank, begin in begins.items()}, max(map(abs, ahead.values()))


def _program(recording: RankRecording, exchanges: Mapping[int, str], shift: int) -> Trace:
    """The rank's trace with what it exchanges, on the clock of all."""
    trace, made = recording.trace, {name: array.copy() for name, array in columns(recording.trace)}
    texts = list(dict.fromkeys(exchanges.values()))
    number = {text: i for i, text in enumerate(texts)}
    for operator, text in exchanges.items():
        kind, group, size = text.split(" ")
        ranks = group.partition("@")[0].count(",") + 1
        made["exchange"][operator] = number[text]
        made["activity"][operator] = COLLECTIVE
        made["read_bytes"][operator] = round(int(size) * (_SHARE[kind](ranks) if kind in _SHARE else 1))
        made["written_bytes"][operator] = 0
    for name in ("time", "device_time"):
        made[name] = np.where(made[name] >= 0, made[name] + shift, made[name])
    tables = {table: getattr(trace, table) for table in NAME_TABLES} | {"exchanges": texts}
    return make_trace(trace.name, made, tables, trace.meta)


def _empty(rank: int) -> Trace:
    return make_trace(f"rank {rank}", {"size": [], "kind": [], "arg": []}, {}, {ABSENT: True, "lacks": [], "filled": {}})


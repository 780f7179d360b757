"""The heap from which a PyTorch recording begins, laid out in the model: commands that hold its segments and place its blocks.

A recording tells the segments and the blocks in use then, but of a block only what was requested.  Its own size is the
rounded request; in a large segment up to 1 MiB more, since a rest of at most 1 MiB is not split off there.  So a gap of at
most 1 MiB belongs to the block before it; a larger one may be that and a free block, which `repeat` finds out.

Pages of expandable segments are laid out as the range of addresses that they are of: the runs of one stream and pool, from
the lowest address that the recording ever maps for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpusim.policies.place.parts.pytorch import rules
from gpusim.policies.trials.requests import R_ALLOC, R_COMMAND

MIB = 1 << 20
SMALL_SEGMENT = 2 * MIB
ROUND = 512
LONGEST = 1 << 40  # bytes: no range of addresses is longer (9/8 of a device's memory)

Kind = tuple[int, bool, int]  # of a range: stream, for small requests, private pool

CommandRow = tuple[int, int, int, int]  # as policies.trials.requests.REQUEST


@dataclass(frozen=True)
class StartBlock:
    """A block in use: the unit that it was given to, the bytes requested."""

    unit: int
    addr: int
    requested: int


@dataclass(frozen=True)
class Segment:
    """A segment, or a run of mapped pages.

    blocks  by address, each within the segment
    small   it serves requests of at most 1 MiB
    pool    number of the private pool, 0: none
    """

    addr: int
    size: int
    stream: int
    blocks: Sequence[StartBlock]
    small: bool = False
    mapped: bool = False
    pool: int = 0

    @property
    def end(self) -> int:
        return self.addr + self.size

    @property
    def kind(self) -> Kind:
        return self.stream, self.small, self.pool

    @property
    def side(self) -> int:
        """As the commands of policies/place/parts/pytorch/restore.py have it."""
        return 2 * self.stream + self.small

    def limits(self) -> Iterator[tuple[StartBlock, int]]:
        """Each block with the address where the next one begins, or the segment ends."""
        return zip(self.blocks, [*(block.addr for block in self.blocks[1:]), self.end], strict=False)

    def sizes(self, parts: Mapping[int, int], known: Mapping[int, int]) -> list[int]:
        """The size of each block.  parts: `divisions`; known: unit -> size, where it is known better."""
        found = []
        for block, end in self.limits():
            need = rounded(block.requested, parts)
            gap = end - block.addr - need
            slack = gap if 0 <= gap <= MIB and not self.small and not self.mapped else 0
            found.append(min(known.get(block.unit, need + slack), end - block.addr))
        return found


def divisions(conf: Sequence[rules.Command]) -> dict[int, int]:
    """roundup_power2_divisions: entry -> parts, for the sizes from 2^(20 + entry) to twice that."""
    return {entry: parts for code, entry, parts in conf if code == rules.SET_DIVISIONS}


def rounded(size: int, parts: Mapping[int, int]) -> int:
    """What a request becomes; policies/place/parts/pytorch/rounding.py in plain Python."""
    power = size.bit_length() - 1
    n = parts.get(min(max(power - 20, 0), 15), 0)
    unit = max((1 << power) // n, ROUND) if n > 1 and size > ROUND * n else ROUND
    return -(-size // unit) * unit


def lay(
    segments: Sequence[Segment], fronts: Mapping[Kind, int], conf: Sequence[rules.Command], known: Mapping[int, int]
) -> list[CommandRow]:
    """The commands and requests that make these segments, in this order.

    fronts  the lowest address at which pages were mapped later: a range reaches as far down
    conf    the settings under which the program ran
    """
    rows: list[CommandRow] = []
    parts = divisions(conf)
    for segment in [s for s in segments if not s.mapped]:
        laid = [(R_COMMAND, rules.LAY_SEGMENT, segment.size, segment.side), *_blocks(segment, segment.addr, parts, known)]
        rows += within(segment.pool, laid)
    for runs in ranges(segments):
        first = runs[0]
        front = fronts.get(first.kind, first.addr)
        near = 0 < first.addr - front < LONGEST and (first.addr - front) % SMALL_SEGMENT == 0
        begin = front if near else first.addr
        laid = [(R_COMMAND, rules.LAY_RANGE, runs[-1].end - begin, first.side)]
        for run in runs:
            laid += [(R_COMMAND, rules.LAY_PAGES, run.addr - begin, run.size), *_blocks(run, begin, parts, known)]
        rows += within(first.pool, laid)
    return rows


def within(pool: int, rows: list[CommandRow]) -> list[CommandRow]:
    """Rows of this private pool."""
    return [(R_COMMAND, rules.POOL_BEGIN, pool, 1), *rows, (R_COMMAND, rules.POOL_END, pool, 1)] if pool else rows


def _blocks(segment: Segment, begin: int, parts: Mapping[int, int], known: Mapping[int, int]) -> Iterator[CommandRow]:
    for block, size in zip(segment.blocks, segment.sizes(parts, known), strict=True):
        yield R_COMMAND, rules.LAY_BLOCK, block.addr - begin, size
        yield R_ALLOC, block.unit, block.requested, segment.stream


def ranges(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Runs of mapped pages, those of one range together, by address."""
    found: dict[Kind, list[list[Segment]]] = {}
    for run in sorted((s for s in segments if s.mapped), key=lambda s: s.addr):
        ranges = found.setdefault(run.kind, [])
        if ranges and run.addr - ranges[-1][0].addr < LONGEST:
            ranges[-1].append(run)
        else:
            ranges.append([run])
    return [runs for ranges in found.values() for runs in ranges]

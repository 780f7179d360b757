"""The heap from which a PyTorch recording begins, rebuilt: the requests that lead the allocator there from an empty device.

A recording tells the segments and the blocks in use then, but of a block only what was requested.  Its own size is the
rounded request; on the large side up to 1 MiB more, since a rest of at most 1 MiB is not split off.  So a gap of at most
1 MiB belongs to the block before it; a larger one may be that and a free block, which `fidelity` finds out.

Each segment in turn is taken, then filled from its start with its blocks and with spare ones for its gaps; nothing else
is free meanwhile, so best fit has no choice.  The spare ones are freed at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpusim.core.requests import R_ALLOC, R_COMMAND, R_FREE
from gpusim.policies.pytorch import rules

MIB = 1 << 20
SMALL_SEGMENT = OWN_ROUNDING = 2 * MIB
OWN_SEGMENT = 10 * MIB
ROUND = 512

Row = tuple[int, int, int, int]  # as core.requests.REQUEST


@dataclass(frozen=True)
class Block:
    """A block in use: the unit that it was given to, the bytes requested."""

    unit: int
    addr: int
    requested: int


@dataclass(frozen=True)
class Segment:
    """blocks: by address, each within the segment."""

    addr: int
    size: int
    stream: int
    blocks: Sequence[Block]

    @property
    def small(self) -> bool:
        return self.size == SMALL_SEGMENT

    @property
    def end(self) -> int:
        return self.addr + self.size

    def limits(self) -> Iterator[tuple[Block, int]]:
        """Each block with the address where the next one begins, or the segment ends."""
        return zip(self.blocks, [*(block.addr for block in self.blocks[1:]), self.end], strict=False)

    def sizes(self, parts: Mapping[int, int], known: Mapping[int, int]) -> list[int]:
        """The size of each block.  parts: `divisions`; known: unit -> size, where it is known better."""
        found = []
        for block, end in self.limits():
            need = rounded(block.requested, parts)
            gap = end - block.addr - need
            found.append(known.get(block.unit, need if self.small or not 0 <= gap <= MIB else need + gap))
        return found


def divisions(conf: Sequence[rules.Command]) -> dict[int, int]:
    """roundup_power2_divisions: entry -> parts, for the sizes from 2^(20 + entry) to twice that."""
    return {entry: parts for code, entry, parts in conf if code == rules.SET_DIVISIONS}


def rounded(size: int, parts: Mapping[int, int]) -> int:
    """What a request becomes; policies/pytorch/rounding.py in plain Python."""
    power = size.bit_length() - 1
    n = parts.get(min(max(power - 20, 0), 15), 0)
    unit = max((1 << power) // n, ROUND) if n > 1 and size > ROUND * n else ROUND
    return -(-size // unit) * unit


def requests(
    segments: Sequence[Segment], conf: Sequence[rules.Command], known: Mapping[int, int], spare: int
) -> tuple[list[Row], int]:
    """The requests that make these segments, and how many units they take beyond those of the blocks: from `spare` on.

    conf  the settings under which the program runs, in effect from then on; the allocator has none before
    """
    rows: list[Row] = []
    gaps: list[Row] = []
    unit = spare
    for segment in segments:
        stream = segment.stream
        whole = MIB if segment.small else segment.size
        if not segment.small and (whole < OWN_SEGMENT or whole % OWN_ROUNDING):  # that of requests below 10 MiB, as it was set
            rows.append((R_COMMAND, rules.SET_LARGE_SEGMENT, segment.size, 0))
            whole = 2 * MIB
        rows += [(R_ALLOC, unit, whole, stream), (R_FREE, unit, 0, stream)]
        unit += 1
        for owner, size in _pieces(segment, segment.sizes(divisions(conf), known)):
            rows.append((R_ALLOC, unit if owner < 0 else owner, size, stream))
            if owner < 0:
                gaps.append((R_FREE, unit, 0, stream))
                unit += 1
    settings = [(rules.SET_LARGE_SEGMENT, rules.LARGE_SEGMENT * MIB, 0), *conf]
    if conf == rules.commands("") and not any(row[0] == R_COMMAND for row in rows):
        settings = []  # nothing to set: commands are compiled at their first use
    return [*rows, *gaps, *((R_COMMAND, *command) for command in settings)], unit - spare


def _pieces(segment: Segment, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(unit, bytes) of what fills a segment, in order; unit -1: a gap."""
    at, most = segment.addr, MIB if segment.small else segment.size
    for block, size in zip(segment.blocks, sizes, strict=True):
        yield from _gap(block.addr - at, most)
        yield block.unit, size
        at = block.addr + size
    yield from _gap(segment.end - at, most)


def _gap(size: int, most: int) -> Iterator[tuple[int, int]]:
    """Requests of more than 1 MiB would not go to a small segment."""
    for at in range(0, size, most):
        yield -1, min(most, size - at)

"""Does `gmlake` stitch as its rules say?  By hand, and against a reference in which every piece knows its users.

`Watched` books every range of memory at one address only, so it sees when memory that is mapped twice is handed out twice.
"""

from __future__ import annotations

import random

import pytest
from gmlake_reference import VIRTUAL, Gmlake
from place_programs import Watched

from gpusim.policies import registry
from gpusim.policies.contract import BLOCK, HELD, MOVES, ROUNDED

pytestmark = pytest.mark.hand_worked

MIB = 1 << 20


def heap(capacity: int = 1024, parameters: str = "frag_limit=33554432", units: int = 40) -> Watched:
    return Watched(registry.get("place", f"gmlake({parameters})"), capacity * MIB, units)


def holes(count: int = 4, **given: object) -> Watched:
    """Segments of 32 MiB, of which every second one is free: 0, 64, ..."""
    h = heap(**given)  # type: ignore[arg-type]
    for unit in range(count):
        assert h.alloc(unit, 32 * MIB) == 32 * unit * MIB
    for unit in range(0, count, 2):
        h.free(unit)
    return h


def mib(calls: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """In MiB, the addresses of stitches as 10000 and more."""
    return [((a - VIRTUAL) // MIB + 10000 if a >= VIRTUAL else a // MIB, size // MIB) for a, size in calls]


def test_sizes_and_segments() -> None:
    for size, segment, block in [
        (1, 2, 512), (1 * MIB, 2, 1 * MIB), (1 * MIB + 1, 20, 2 * MIB), (3 * MIB, 20, 4 * MIB), (9 * MIB, 10, 10 * MIB),
        (33 * MIB, 34, 34 * MIB),
    ]:  # fmt: skip
        h = heap()
        h.alloc(0, size)
        assert (h.S[HELD], h.S[BLOCK]) == (segment * MIB, block), size


def test_free_chunks_are_stitched_from_the_largest_down() -> None:
    """Of equal ones the highest address first.  Nothing new is held; the books move the memory to where it is used."""
    h = holes()
    assert h.alloc(4, 64 * MIB) == VIRTUAL and h.S[BLOCK] == 64 * MIB
    assert mib(h.calls()) == [(64, -32), (0, -32), (10000, 64)]
    assert h.S[MOVES] == 2  # the mapping of the new range is paid for
    assert h.S[HELD] == 128 * MIB
    h.free(4)
    assert mib(h.calls()) == [(10000, -64), (64, 32), (0, 32)] and h.S[MOVES] == 3


def test_an_idle_stitch_is_used_again() -> None:
    h = holes()
    h.alloc(4, 64 * MIB)
    h.free(4)
    assert h.alloc(5, 64 * MIB) == VIRTUAL and h.S[MOVES] == 3
    h.free(5)
    assert h.alloc(6, 32 * MIB) == 0              # an ordinary chunk goes first
    assert h.alloc(7, 64 * MIB) == 128 * MIB      # a part of the stitch is in use, and one chunk is not enough to stitch
    h.free(6)
    assert h.alloc(8, 64 * MIB) == VIRTUAL


def test_a_stitch_may_be_used_in_part() -> None:
    """40 of its 64 MiB: all of the chunk at 64 and 8 MiB of the one at 0."""
    h = holes()
    h.alloc(4, 64 * MIB)
    h.free(4)
    assert h.alloc(5, 40 * MIB) == VIRTUAL and h.S[BLOCK] == 40 * MIB
    assert mib(h.calls()) == [(64, -32), (0, -8), (10000, 40)]
    assert h.alloc(6, 24 * MIB) == 8 * MIB
    h.free(5)
    assert h.alloc(7, 8 * MIB) == 0
    assert h.S[HELD] == 128 * MIB


def test_a_stitch_much_larger_than_the_request_is_left_alone() -> None:
    for limit, addr in [(1.6, VIRTUAL), (1.5, VIRTUAL + 64 * MIB)]:  # 64 / 40 = 1.6
        h = holes(parameters=f"frag_limit=33554432, reuse_limit={limit}")
        h.alloc(4, 64 * MIB)
        h.free(4)
        assert h.alloc(5, 40 * MIB) == addr


def test_the_last_chunk_is_split() -> None:
    h = holes()
    assert h.alloc(4, 50 * MIB) == VIRTUAL  # 32 at 64, 18 at 0
    assert h.alloc(5, 14 * MIB) == 18 * MIB
    assert h.S[ROUNDED] == h.S[HELD] == 128 * MIB


def test_small_requests_and_other_streams_are_not_stitched() -> None:
    h = holes(parameters="frag_limit=67108865")
    assert h.alloc(4, 64 * MIB) == 128 * MIB
    h = holes()
    assert h.alloc(4, 64 * MIB, stream=1) == 128 * MIB


def test_levels() -> None:
    """When a new segment would do, when the device is full, and when wholly free segments went back in vain."""
    for level, capacity, addr in [
        (0, 1024, VIRTUAL),
        (1, 1024, 128 * MIB),
        (1, 160, VIRTUAL),
        (2, 160, 128 * MIB),  # both free segments went back, and left room for a new one
    ]:
        h = holes(capacity=capacity, parameters=f"frag_limit=33554432, defrag_level={level}")
        assert h.alloc(4, 64 * MIB) == addr
    h = holes(capacity=128, parameters="frag_limit=16777216, defrag_level=2")
    assert h.alloc(4, 12 * MIB) == 0
    assert h.alloc(5, 24 * MIB) == 64 * MIB
    assert h.alloc(6, 28 * MIB) == VIRTUAL  # no segment is wholly free; 20 MiB and 8 MiB are left of two


def test_given_back_memory_takes_its_stitches_along() -> None:
    """A stitch of 64, 128 and 0 is used for 40 MiB; the segment at 0, beyond them, goes back; so does the stitch at the end."""
    h = holes(6)
    assert h.alloc(6, 96 * MIB) == VIRTUAL
    assert mib(h.calls())[:3] == [(128, -32), (64, -32), (0, -32)]
    h.free(6)
    assert h.alloc(7, 40 * MIB) == VIRTUAL
    assert h.release() == 32 * MIB and h.S[HELD] == 160 * MIB
    h.free(7)
    assert h.alloc(8, 64 * MIB) == VIRTUAL  # a new one at the same place: the old is not idle but gone
    assert h.S[MOVES] == 2


def test_idle_stitches_are_dropped_when_too_much_was_stitched() -> None:
    h = holes(parameters="frag_limit=33554432, auto_gc=0")
    h.alloc(4, 64 * MIB)
    h.free(4)
    assert h.alloc(5, 62 * MIB) == VIRTUAL  # idle, so far
    h.free(5)
    h.alloc(6, 32 * MIB)
    h.alloc(7, 32 * MIB)
    for unit in (1, 3):
        h.free(unit)
    assert h.alloc(8, 64 * MIB) == VIRTUAL + 64 * MIB  # of 96 and 32; now the idle one is dropped
    for unit in (6, 7, 8):
        h.free(unit)
    assert h.alloc(9, 128 * MIB) == VIRTUAL + 128 * MIB


def parameters(rng: random.Random) -> tuple[dict[str, float], str]:
    limit, reuse = rng.choice([4, 16, 64]) * MIB, rng.choice([10.0, 2.0, 1.0])
    level, auto_gc = rng.choice([0, 0, 1, 2]), rng.choice([0, 3, 1000, 1000])
    given = {"frag_limit": limit, "reuse_limit": reuse, "level": level, "auto_gc": auto_gc}
    return given, f"frag_limit={limit}, reuse_limit={reuse}, defrag_level={level}, auto_gc={auto_gc}"


@pytest.mark.agreement
@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_programs_as_the_reference(first: int) -> None:
    made = reused = refused = 0
    for seed in range(first, first + 20):
        rng = random.Random(seed)
        capacity = rng.choice([200, 400, 1000])
        given, text = parameters(rng)
        menu = [int(2 ** rng.uniform(22, 27.5)) for _ in range(5)]
        mine, reference = heap(capacity, text, units=400), Gmlake(capacity * MIB, **given)  # type: ignore[arg-type]
        live: list[int] = []
        for unit in range(400):
            if rng.random() < 0.004:
                mine.release()
                reference.release()
            if live and rng.random() < rng.choice([0.3, 0.5, 0.6]):
                gone = live.pop(rng.randrange(len(live)))
                mine.free(gone)
                reference.free(gone)
                continue
            size = rng.choice([*menu, *menu, rng.randrange(1, MIB), int(2 ** rng.uniform(20, 28)), 2 * MIB])
            stream = rng.choice([0, 0, 0, 1]) if seed % 2 else 0
            wanted = reference.alloc(unit, size, stream)
            assert mine.alloc(unit, size, stream) == wanted, (seed, unit)
            if wanted >= 0:
                live.append(unit)
                assert mine.S[BLOCK] == reference.live[unit][1]
            refused += wanted < 0
            assert (mine.S[HELD], mine.S[ROUNDED]) == (reference.held, sum(b for _, b, _ in reference.live.values()))
        made, reused = made + reference.made, reused + reference.reused
    assert made > 50 and reused > 5 and refused > 0

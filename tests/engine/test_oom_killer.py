"""Does memory that is full kill the process that Linux would kill?  Points worked out by the rules of mm/oom_kill.c."""

from __future__ import annotations

import math

import pytest

from gpusim.engine.failures.oom_killer import HostMemory, HostProcess, kills, points, victim

pytestmark = pytest.mark.hand_worked
GIB = 1 << 30
PAGES = 100 * GIB // 4096  # 26,214,400 of a host of 100 GiB; a thousandth: 26,214
FULL = HostMemory(100 * GIB)


def test_points_are_pages_in_use_with_their_tables_and_the_adjustment() -> None:
    one = HostProcess("rank", 10 * GIB)
    assert points(one, PAGES) == 2_621_440 + 5120  # 8 bytes of table for each page: 20 MiB
    assert points(HostProcess("rank", 10 * GIB, adj=200), PAGES) == 2_626_560 + 200 * 26_214
    assert points(HostProcess("rank", 10 * GIB, adj=-1000), PAGES) is None
    small = points(HostProcess("rank", GIB, adj=-500), PAGES)
    assert small is not None and small < 0  # since 5.9 a score below 0 stays, and such processes are told apart


def test_the_most_points_lose_and_of_equals_the_last() -> None:
    large, small = HostProcess("large", 30 * GIB), HostProcess("small", 10 * GIB)
    assert victim([large, small, small], PAGES) == 0
    assert victim([small, small], PAGES) == 1
    assert victim([large, HostProcess("daemon", GIB, adj=300)], PAGES) == 1  # 300 thousandths and one of a hundred: above 30
    assert victim([HostProcess("exempt", 90 * GIB, adj=-1000), small], PAGES) == 1
    assert victim([HostProcess("exempt", 90 * GIB, adj=-1000)], PAGES) is None


def test_memory_that_leaks_is_full_when_its_bytes_are_used_up() -> None:
    """8 x 5 and 4 x 10 GiB have 80.15625 with their tables; 4 x 0.5 GiB an hour, and 2 MiB of tables for each GiB."""
    of_all = [HostProcess("rank", 5 * GIB)] * 8 + [HostProcess("loader", 10 * GIB, grows=GIB / 2)] * 4
    (killed,) = kills(FULL, of_all)
    assert killed.at == pytest.approx((100 - 80 * 513 / 512) / (2 * 513 / 512), rel=1e-12)  # 9.9 hours
    assert killed.process.name == "loader" and not killed.cgroup
    assert killed.process.memory == pytest.approx((10 + killed.at / 2) * GIB)
    assert killed.score == pytest.approx(149.5, abs=0.5)  # 14.95 GiB of 100


def test_pinned_copies_make_the_agent_the_largest() -> None:
    agent = HostProcess("agent", 40 * GIB)
    loaders = [HostProcess("loader", 5 * GIB, grows=GIB)] * 4
    assert kills(FULL, [agent, *loaders])[0].process.name == "agent"
    spared = HostProcess("agent", 40 * GIB, adj=-500)
    assert kills(FULL, [spared, *loaders])[0].process.name == "loader"


def test_what_is_not_of_the_job_goes_first_where_it_is_larger_and_its_memory_is_free_again() -> None:
    logs = HostProcess("logs", 50 * GIB, job=False)
    leak = HostProcess("rank", 20 * GIB, grows=GIB)
    first, second = kills(FULL, [logs, leak])
    assert first.process.name == "logs" and second.process.name == "rank"
    assert first.at == pytest.approx((100 - 70 * 513 / 512) / (513 / 512))
    assert second.at == pytest.approx((100 - 20 * 513 / 512) / (513 / 512))  # SIGKILL has freed 50 GiB


def test_a_full_cgroup_kills_inside_and_by_its_own_limit() -> None:
    outside = HostProcess("database", 60 * GIB, job=False)
    inside = [HostProcess("rank", 4 * GIB), HostProcess("loader", 5 * GIB, grows=GIB)]
    (killed,) = kills(HostMemory(100 * GIB, limit=20 * GIB), [outside, *inside])
    assert killed.cgroup and killed.process.name == "loader" and not killed.whole
    assert killed.score == pytest.approx(1000 * killed.process.pages * 4096 / (20 * GIB))
    assert kills(HostMemory(100 * GIB, limit=20 * GIB, group=True), [outside, *inside])[0].whole


def test_swap_counts_as_memory_and_nothing_dies_where_all_are_exempt_or_none_leaks() -> None:
    leak = HostProcess("rank", 20 * GIB, grows=GIB)
    without, with_swap = (kills(HostMemory(100 * GIB, swap), [leak])[0] for swap in (0.0, 50.0 * GIB))
    assert with_swap.at - without.at == pytest.approx(50 / (513 / 512))
    assert kills(FULL, [HostProcess("rank", 20 * GIB)]) == []
    assert kills(FULL, [HostProcess("rank", 20 * GIB, grows=GIB, adj=-1000)]) == []
    assert kills(FULL, [HostProcess("rank", 200 * GIB)])[0].at == 0.0 and math.isinf(FULL.limit)

"""What it takes to leave a GPU and to come back, and to load layers group by group: worked out by hand."""

import pytest

from gpusim.machine import catalogue
from gpusim.machine.profile import changed
from gpusim.machine.suspending import GIB, Process, SleepCosts, checkpoint, restore, sleep, total, wake

pytestmark = [pytest.mark.fast, pytest.mark.hand_worked]
COSTS = SleepCosts(pin=100e6, map=10e6, release=5e6, load=50e6)
PROCESS = Process((3 * GIB, GIB), 10 * GIB)


@pytest.fixture
def machine():
    return changed(changed(catalogue.load("a100-sxm4-80gb"), "link.h2d", float(GIB)), "link.d2h", 2.0 * GIB)


def test_what_is_copied_at_level_1_and_what_the_first_sleep_costs_more(machine):
    assert PROCESS.buffers == 5 * GIB  # 3 GiB have a buffer of 4
    first = sleep(machine, PROCESS, 1, PROCESS.buffers, COSTS)
    assert [round(step.ns) for step in first] == [500_000_000, 2_000_000_000, 5_000_000]
    assert round(total(sleep(machine, PROCESS, 1, 0, COSTS))) == 2_005_000_000
    assert [round(step.ns) for step in wake(machine, PROCESS, 1, "page_cache", COSTS)] == [100_000_000, 4_000_000_000]


def test_level_2_copies_nothing_out_and_reads_the_files(machine):
    assert round(total(sleep(machine, PROCESS, 2, PROCESS.buffers, COSTS))) == 5_000_000
    from_cache, from_disk = (wake(machine, PROCESS, 2, files, COSTS) for files in ("page_cache", "nvme"))
    assert round(from_cache[2].ns) == round(4 * GIB / 10)  # 10 GB/s
    assert round(from_disk[2].ns) == round(4 * GIB / 2.896166912)
    assert from_cache[3] == from_disk[3]


def test_a_checkpoint_copies_all_that_is_allocated(machine):
    size = 10 * GIB + machine.context.value
    steps = checkpoint(machine, PROCESS, drain=7e6)
    assert [step.size for step in steps[1:]] == [size] * 3 and steps[0].ns == 7e6
    assert round(steps[2].ns) == round(size / 10.8)  # GB/s, pageable
    assert restore(machine, PROCESS)[1].ns == pytest.approx(size / 10)

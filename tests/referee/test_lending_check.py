"""Does the referee find memory that is lent and is not there, ways that do not exist, and hosts that wait too long?

See `test_lending` for the programs: at 1700 ns the lender wants two blocks, and has them when one has been copied to the host.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from coupled_programs import Together
from hand_worked import BLOCK, Steps, three_tensors_in_two_blocks
from lending_programs import lent

from gpusim.machine.topology.connections import Connections, Lender
from gpusim.results import log
from gpusim.results.result import Result


def recalled() -> Together:
    lender = Steps()
    lender.until(1700)
    lender.kernel(100, writes=(lender.alloc(2),))
    return lent(three_tensors_in_two_blocks(), lender, blocks=[2, 2], idle=[0.5])


def said(together: Together, **changes: Any) -> str:
    """What is wrong, of all."""
    return "; ".join(str(v) for report in together.checked(**changes) for v in report.violations)


def edited(result: Result, kind: int, what: int, **columns: int) -> Result:
    """The result with other numbers in its decisions of this kind."""
    assert result.log is not None
    records = result.log.copy()
    at = np.flatnonzero((records["kind"] == kind) & (records["b"] == what))
    assert len(at)
    for name, value in columns.items():
        records[name][at] = value
    return replace(result, log=records)


def test_what_is_right_is_right() -> None:
    together = recalled()
    reports = together.checked()
    assert [report.ok for report in reports] == [True, True], said(together)
    assert reports[1].facts["waits for lent memory"] == 1 and reports[1].facts["lent memory"] > 2


@pytest.mark.parametrize(("changed", "what"), [
    (Lender(1 << 50, BLOCK, 1), f"{2 * BLOCK} bytes others have of 1 at 0 ns; expected at most {BLOCK}"),
    (Lender(BLOCK, 1 << 50), f"{2 * BLOCK} bytes memory of 1 holds, whoever they belong to, at 0 ns; expected at most {BLOCK}"),
])  # fmt: skip
def test_more_than_a_lender_has_is_found(changed: Lender, what: str) -> None:
    together = recalled()
    between = replace(together.between, lenders={**together.between.lenders, "1": changed})
    assert what in said(together, between=between)


def test_an_allocator_that_takes_what_it_has_lent_is_found() -> None:
    """As if the lender had had its block at 1700, while a's bytes were there until 3980."""
    together = recalled()
    assert together.results[1].log is not None
    early = together.results[1].log.copy()
    early["t"][early["t"] == 3980] = 1700
    found = said(together, results=[together.results[0], replace(together.results[1], log=early)])
    assert f"{3 * BLOCK} bytes memory of 1 holds, whoever they belong to, at 1700 ns; expected at most {2 * BLOCK}" in found
    assert "goes on at 1700 ns without memory that comes back; expected 3980 ns" in found


def test_a_host_that_waits_longer_than_it_must_is_found() -> None:
    """One block is free at once, as b has not left yet."""
    together = recalled()
    less = edited(together.results[1], log.DECIDE, log.WANTS, bytes=BLOCK)
    found = said(together, results=[together.results[0], less])
    assert "the host goes on at 3980 ns with memory that it had lent; expected 1700 ns, when it has enough back" in found


def test_memory_that_the_machine_does_not_have_is_found() -> None:
    together = recalled()
    without = replace(together.between, tiers=[tiers[1:] for tiers in together.between.tiers])
    assert "the result has the tiers peer, peer, host; expected peer, host, as the machine" in said(together, between=without)
    elsewhere = replace(together.between, beyond=[{**ways, "peer_out 1": ("0>2", "none")} for ways in together.between.beyond])
    assert "bytes pass none; expected a link of the machine" in said(together, between=elsewhere)


def test_a_copy_from_a_lender_that_is_too_fast_for_its_links_is_found() -> None:
    together = recalled()
    slower = Connections(
        {**together.between.rates, "slow": 4.0},
        [{**ways, "from 1 to host": ("slow",)} for ways in together.between.beyond], (),
        together.between.tiers, together.between.lenders,
    )  # fmt: skip
    assert "a swap of 10240 bytes, takes 2280 ns; expected 3560 ns" in said(together, between=slower)


def test_a_copy_that_changes_its_way_after_its_start_is_found() -> None:
    together = recalled()
    assert together.results[0].log is not None
    records = together.results[0].log.copy()
    moved = int(np.flatnonzero(records["kind"] == log.REDIRECT)[0])
    records["addr"][moved] = 2  # the first copy, which has arrived
    assert "activity 2 takes another way; expected an earlier swap of the same tensor, not begun" in said(
        together, results=[replace(together.results[0], log=records), together.results[1]]
    )

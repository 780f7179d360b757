"""Rows of managed memory: do they run through the driver's model, and does a fit find the machine that they are from?"""

from __future__ import annotations

import pytest
from test_calibrate_fit import MIB, UNFITTED, number, row

from gpusim.base.yaml import document, validate
from gpusim.calibrate.as_programs import paged
from gpusim.calibrate.as_programs.of_rows import program
from gpusim.calibrate.as_programs.row_program import Cannot
from gpusim.calibrate.compare.score import compare
from gpusim.calibrate.fit.fitting import fit
from gpusim.calibrate.fit.paging import TIMES
from gpusim.calibrate.rows import Row
from gpusim.machine.catalogue import load
from gpusim.machine.platforms import numbers
from gpusim.machine.profile import Profile, changed, load_file

BASE = load_file(UNFITTED)
KNOWN = load("gtx-1080-ti")  # which says all of `paging`


def managed(metric: str, mib: int, hint: str = "", value: float = 1.0) -> Row:
    return row(f"managed_{metric}_bw", value, mib * MIB, f"hint={hint}" if hint else "", gpu="GTX-1080-TI")


@pytest.mark.slow
def test_what_is_read_in_place_comes_at_the_remote_rate() -> None:
    """16 MiB over the link, in lines of 128 bytes; what migrates comes later by the driver's work."""
    found = compare([managed("gpu_read", 16, "preferred_host")] * 20, KNOWN).series[0]
    remote = numbers(KNOWN)["remote_rate"].value / 1e9
    assert found.points[0].simulated == pytest.approx(remote, rel=0.05)
    assert found.uses == ("paging.remote_rate",)
    moved = compare([managed("gpu_read", 16, "none")] * 20, KNOWN).series[0].points[0].simulated
    assert moved < 0.6 * remote


@pytest.mark.slow
def test_prefetching_reaches_no_more_than_its_copies_do() -> None:
    for way in ("h2d", "d2h"):
        rate = numbers(KNOWN)[f"rate_{way}"].value / 1e9
        one = compare([managed(f"prefetch_{way}", 16)] * 20, KNOWN).series[0].points[0]
        assert 0.8 * rate < one.simulated <= rate


@pytest.mark.slow
def test_what_fits_is_a_pass_over_memory_and_what_does_not_goes_over_the_link() -> None:
    triads = ([row("um_triad_bw", 1.0, n << 30, gpu="GTX-1080-TI")] * 20 for n in (1, 20))
    inside, beyond = (compare(rows, KNOWN).series[0].points[0].simulated for rows in triads)
    assert inside == pytest.approx(KNOWN.memory.copy.value / 1e9, rel=0.02)
    assert beyond < KNOWN.link.h2d.value / 1e9


def test_what_the_model_has_no_cost_for_is_said() -> None:
    for metric in ("managed_alloc_first_touch_us", "managed_free_us"):
        found = program(row(metric, 1.0, MIB), KNOWN)
        assert isinstance(found, Cannot) and "free in the driver's model" in found.why


@pytest.mark.slow
def test_a_fit_explains_the_rows() -> None:
    """All of the driver's work on a service takes 2.5 times as long, the first touch of a block half as long.

    Slower copies would explain the same rows almost as well: what is asked is that the fitted machine runs as measured.
    """
    theirs = KNOWN
    for names, factor in zip(TIMES, (2.5, 0.5, 1.0), strict=True):
        for name in names:
            theirs = changed(theirs, f"paging.{name}", factor * numbers(KNOWN)[name].value)
    rows = []
    for metric, hint in (("first_touch", ""), ("gpu_read", "none"), ("prefetch_h2d", "")):
        for mib in (2, 16):
            made = paged.managed(managed(metric, mib, hint), theirs)
            assert isinstance(made, paged.Managed)
            rows.append(managed(metric, mib, hint, mib * MIB / paged.ns(made, theirs)))
    fitted = fit(rows, KNOWN)
    before, after = (compare(rows * 4, profile).series[0].errors for profile in (KNOWN, fitted.profile))
    assert before.max() > 0.3 and after.max() < before.max() / 5
    value, low, high = number(fitted, "paging.fault")
    assert low is not None and high is not None and numbers(KNOWN)["fault"].value < value and low < value < high
    assert "paging.cpu_fault" in {one.path for one in fitted.left}, "no row of the CPU's faults"
    doc = document.loads(fitted.text)
    assert validate.build(Profile, doc, context=doc.data["sources"]) == fitted.profile


def test_a_profile_without_the_section_gets_it_from_rows() -> None:
    fitted = fit([managed("gpu_read", 64, "preferred_host", 20.0)], BASE)
    assert BASE.paging is None and number(fitted, "paging.remote_rate") == (20e9, None, None)

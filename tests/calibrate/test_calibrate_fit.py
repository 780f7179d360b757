"""Does a fit say what its rows say, with bars and sources, and leave alone what they do not?  Rows are written down by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from gpusim.base.errors import MeasurementError
from gpusim.base.yaml import document, validate
from gpusim.calibrate.fit.fitting import Fitted, difference, fit
from gpusim.calibrate.rows import Row, held_out, unit_of
from gpusim.machine.catalogue import load, quantities
from gpusim.machine.loads import latency
from gpusim.machine.profile import Profile, load_file
from gpusim.machine.streaming import in_step, rates, shared

UNFITTED = Path(__file__).parents[1] / "data" / "profiles" / "a100-sxm4-80gb.yaml"  # as the catalogue was before any fit
BASE = load_file(UNFITTED)  # 40 MiB of L2
MIB = 2**20
SEEN = next(f"seen-{n}" for n in count() if not held_out(f"seen-{n}"))
HELD = next(f"held-{n}" for n in count() if held_out(f"held-{n}"))


def row(metric: str, value: float, size: int | None = None, param: str = "", series: str = SEEN, **other: str) -> Row:
    words = {"gpu": "A100-SXM4-80GB", "system": "here", "stat": "median", "method": "by hand", "source": "a page"} | other
    return Row(f"{series}", metric=metric, size_bytes=size, param=param, value=value, unit=unit_of(metric), **words)


def number(fitted: Fitted, path: str) -> tuple[float, float | None, float | None]:
    q = dict(quantities(fitted.profile))[path]
    assert q.basis == "measured"
    return q.value, q.low, q.high


def test_a_rate_is_the_median_of_its_largest_copies() -> None:
    rows = [row("h2d_pinned_bw", v, s) for v, s in ((3.0, MIB), (23.0, 512 * MIB), (24.0, 512 * MIB), (25.0, 512 * MIB))]
    value, low, high = number(fit(rows, BASE), "link.h2d")
    assert (value, low, high) == (24e9, pytest.approx(23.2e9), pytest.approx(24.8e9))


def test_what_is_held_out_is_not_seen() -> None:
    rows = [row("h2d_pinned_bw", 20.0, 512 * MIB), row("h2d_pinned_bw", 10.0, 512 * MIB, series=HELD)]
    fitted = fit(rows, BASE)
    assert number(fitted, "link.h2d") == (20e9, None, None)
    assert fitted.seen == (rows[0],)
    with pytest.raises(MeasurementError, match="held out"):
        fit(rows[1:], BASE)
    with pytest.raises(MeasurementError, match="there are no rows to fit"):
        fit([], BASE)
    everything = fit(rows, BASE, everything=True)
    assert number(everything, "link.h2d")[0] == 15e9
    assert everything.profile.link.h2d.source == "all rows of link.h2d"


def test_starts_are_what_small_copies_cost_beside_their_bytes() -> None:
    """At 20 GB/s 2,000 bytes take 100 ns; that empty kernels follow each other every 1.5 us is nothing to copies."""
    sizes = (2000, 4000, 8000)
    large = [row("h2d_pinned_bw", 20.0, 512 * MIB)]
    queued = [row("h2d_pinned_bw", s / (4000 + s / 20), s) for s in sizes]
    awaited = [row("h2d_pinned_time_us", (9000 + s / 20) / 1e3, s, method="copy and synchronise") for s in sizes]
    empty = [row("null_kernel_us", 1.5, param="mode=stream"), row("null_kernel_us", 1.0, param="mode=graph")]
    fitted = fit([*large, *queued, *awaited, *empty], BASE)
    assert (number(fitted, "launch.gap")[0], number(fitted, "launch.empty")[0]) == (pytest.approx(1000), pytest.approx(500))
    assert number(fitted, "link.latency_queued")[0] == pytest.approx(4000)
    assert number(fitted, "link.latency_synchronised")[0] == pytest.approx(9000)


def test_times_of_kernels_in_l2_give_their_start_and_their_rate() -> None:
    """2 us and 4,000 bytes/ns in L2: the line meets the axis at 2 us; memory gives 1,600 bytes/ns from four times L2 on."""
    sizes = [2**k * MIB for k in range(5)] + [10 * MIB, 12 * MIB, 18 * MIB]
    small = [row("queued_kernel_scale_bw", s / (2000 + s / 4000), s, "mode=stream") for s in sizes]
    far = [row("hbm_copy_bw", 1600.0, 2048 * MIB)]
    fitted = fit([*small, *far], BASE)
    assert number(fitted, "launch.empty")[0] == pytest.approx(2000 - BASE.launch.gap.value, rel=1e-4)
    assert fitted.profile.launch.gap == BASE.launch.gap
    assert number(fitted, "memory.copy")[0] == 1600e9
    curve = dict(fitted.profile.memory.copy_curve)
    assert curve[4 * 40 * MIB] == 1600e9
    assert rates(fitted.profile, 16 * MIB)[1] == pytest.approx(4000e9, rel=1e-3)
    assert rates(fitted.profile, 1024 * MIB)[1] == 1600e9


def test_long_kernels_say_the_rate_of_l2_and_short_ones_the_start() -> None:
    """Kernels below 2.5 MiB start in 2 us; those of several waves take 0.5 us more, and 4,000 bytes/ns."""
    short = [row("queued_kernel_scale_bw", s / (2000 + s / 8000), s, "mode=stream") for s in range(65_536, 2 * MIB, 262_144)]
    long = [row("queued_kernel_scale_bw", s / (2500 + s / 4000), s, "mode=stream") for s in range(5 * MIB, 20 * MIB, 2 * MIB)]
    fitted = fit([*short, *long, row("hbm_copy_bw", 1600.0, 2048 * MIB)], BASE)
    assert number(fitted, "launch.empty")[0] == pytest.approx(2000 - BASE.launch.gap.value, rel=1e-3)
    assert rates(fitted.profile, 1 * MIB)[1] == rates(fitted.profile, 16 * MIB)[1] == pytest.approx(4000e9, rel=1e-3)


def test_what_all_multiprocessors_read_has_a_curve_of_its_own() -> None:
    """In L2 5,400 bytes/ns for what all read, 2,900 for a part each; in memory 1,900 against 1,700."""
    sizes = (4, 8, 16, 20, 80, 160, 400)
    same = [row("l2_or_dram_read_bw", 5400.0 if s <= 20 else 1900.0, s * MIB, method="a shared data set") for s in sizes]
    parts = [row("l2_or_dram_read_bw", 2900.0 if s <= 20 else 1700.0, s * MIB, series=f"{SEEN}") for s in sizes]
    profile = fit([*same, *parts], BASE).profile
    assert [shared(profile, s * MIB) for s in (8, 160, 1000)] == [pytest.approx(v) for v in (5400e9, 1900e9, 1900e9)]
    assert rates(profile, 8 * MIB)[0] == pytest.approx(2900e9)
    # Where no row says it: 36 bytes a clock for each of 108 multiprocessors at 1410 MHz; far beyond L2 memory's rate.
    assert shared(BASE, 8 * MIB) == pytest.approx(36 * 108 * 1.41e9)
    assert shared(BASE, 160 * MIB) == BASE.memory.read.value
    gddr = load("rtx-4090")
    assert shared(gddr, 8 * MIB) == pytest.approx(14.6 * 128 * 2.52e9), "as of an L40"
    # A GA102 has 64 bytes a clock of 48 slices for 84 multiprocessors, an L40's chip for 144: so each gets more.
    assert shared(load("a40"), MIB) == pytest.approx(14.6 * 144 / 84 * 84 * 1.74e9)


def test_loads_passes_and_multiply_adds() -> None:
    """What the forms give with 700 ns from load to load, barriers of 1000 ns and 18,000 Gflop/s is found again."""
    threads, processors, clock = 108 * 64, 108, 1.41
    alone, full = threads * 8 / 700, 2048 * processors * 8 / 700  # bytes/ns
    limit = (1700**-2 - full**-2) ** -0.5
    few = (alone**-2 + limit**-2) ** -0.5
    in_l2 = 25.6 * processors * clock
    rows = [row("hbm_read_bw", 1700.0, 2048 * MIB)]
    rows += [row("hbm_read_bw", few, 2048 * MIB, f"threads={threads};occupancy_pct=3.1")] * 5
    for kib in (64, 128, 256, 512, 1024):
        size = kib * 1024
        took = 1000 + 4 * (size // 16384) / clock + size / in_l2
        rows.append(row("queued_kernel_scale_bw", size / took, size, "mode=coop_gridsync"))
    for intensity in (40, 60, 70, 80, 90, 100):
        rate = intensity / (intensity / 18_000 + 0.2 / 1700)
        rows.append(row("fp32_fma_gflops", rate, None, f"flop_per_byte={intensity}"))
    fitted = fit(rows, replace(BASE, memory=replace(BASE.memory, copy_curve=())))
    assert number(fitted, "memory.turnaround")[0] == pytest.approx(700, rel=1e-3)
    assert number(fitted, "launch.barrier")[0] == pytest.approx(1000, rel=1e-3)
    assert number(fitted, "gpu.fma")[0] == pytest.approx(18e12, rel=1e-3)


def test_latencies_and_l1_are_curves_of_the_rows() -> None:
    """30 ns up to 64 KiB and 150 from 1 MiB on: the file says so in bytes and ns."""
    rows = [row("load_latency_ns", 30.0 if s <= 64 else 150.0, s * 1024) for s in (16, 32, 64, 1024, 2048)]
    rows += [row("l1_or_l2_read_bw", 20_000.0, s * 1024) for s in (16, 32, 64, 128, 256)]
    fitted = fit(rows, BASE)
    assert [latency(fitted.profile, size) for size in (1024, 65_536, MIB, 1 << 34)] == [30, 30, 150, 150]
    assert latency(fitted.profile, 256 * 1024) == pytest.approx(90), "half way between 64 KiB and 1 MiB"
    assert "latency_curve: [[16 KiB, 30 ns]" in fitted.text
    assert in_step(fitted.profile, MIB) == 20_000e9


def test_peers_without_links_of_their_own() -> None:
    """Both hosts were measured: the profile is of that with more rows."""
    rows = [row("p2p_staged_bw", v, 160_000_000, system="here") for v in (18.0, 19.0, 20.0)]
    rows += [row("p2p_staged_bw", 6.0, 160_000_000, system="narrow"), row("p2p_staged_bidir_total_bw", 21.0, 160_000_000)]
    rows += [row("p2p_pcie_bw", 22.0, 160_000_000), row("p2p_staged_latency_us", 12.0, 16)]
    rows += [row("p2p_nvlink_bidir_total_bw", 420.0, 160_000_000), row("local_copy_latency_us", 3.337, 16)]
    rows += [row("host_access_latency_ns", 600.0, 2 * MIB), row("peer_access_latency_ns", 800.0, 2 * MIB)]
    fitted = fit(rows, BASE)
    for path, value in (
        ("link.staged", 19e9), ("link.staged_both", 21e9), ("link.peer", 22e9), ("link.staged_latency", 12e3),
        ("peer.both", 420e9), ("link.load", 600.0), ("peer.load", 800.0), ("launch.copy", 2000.0),
    ):  # fmt: skip
        assert number(fitted, path)[0] == pytest.approx(value, rel=1e-3), path


def test_calls_are_a_line_over_the_size() -> None:
    """100 us, and 200 us for each GiB."""
    rows = [row("cudamalloc_us", 100 + 200 * s / 1024, s * MIB) for s in (2, 64, 512, 1024)]
    fitted = fit(rows, BASE)
    assert number(fitted, "allocation.malloc")[0] == pytest.approx(100e3, rel=1e-4)
    assert number(fitted, "allocation.malloc_per_gib")[0] == pytest.approx(200e3, rel=1e-4)
    parts = [row(f"cumem{call}_us", us, 2 * MIB) for call, us in (("create", 30.0), ("map", 2.0), ("setaccess", 40.0))]
    assert number(fit(parts, BASE), "allocation.map")[0] == 72e3


def test_calls_keep_the_spread_of_single_ones() -> None:
    """Of 50 calls of 100 us the tenth took 90, the 99th 400: the bar holds both, at every size alike."""
    spread = "p10={};p90={};p99={};outliers=3"
    rows = [replace(row("cudamalloc_us", 100 + s, s * MIB), note=spread.format(0.9 * (100 + s), 200, 4 * (100 + s)))
            for s in (1, 2, 64, 256)]  # fmt: skip
    value, low, high = number(fit(rows, BASE), "allocation.malloc")
    assert (value, low, high) == (pytest.approx(100e3, rel=1e-4), pytest.approx(90e3, rel=1e-3), pytest.approx(400e3, rel=1e-3))
    without = fit([replace(r, note="by hand") for r in rows], BASE)
    assert number(without, "allocation.malloc")[2] == pytest.approx(100e3, rel=1e-2)


def test_both_directions_are_the_sum_and_no_faster_than_alone() -> None:
    alone = [row("h2d_pinned_bw", 20.0, 512 * MIB), row("d2h_pinned_bw", 22.0, 512 * MIB)]
    both = [row("h2d_pinned_bidir_bw", 18.0, 512 * MIB), row("d2h_pinned_bidir_bw", 19.0, 512 * MIB)]
    assert number(fit([*alone, *both], BASE), "link.both")[0] == 37e9
    cap = fit(alone, BASE).profile.link.both
    assert (cap.value, cap.basis) == (42e9, "estimated")
    one = fit(alone[:1], BASE).profile.link
    assert (one.d2h.value, one.d2h.basis) == (20e9, "estimated"), "another host than the catalogue's: the directions are alike"


def test_pageable_copies_have_a_curve_and_several_gpus_a_sum() -> None:
    """Staged copies reach 1 byte/ns at 64 KiB and 4 from 16 MiB on; four GPUs reach 30 bytes/ns each of their 40."""
    staged = [row("d2h_pageable_bw", v, s * 1024) for s, v in ((64, 1.0), (256, 2.0), (1024, 3.0), (4096, 3.5), (16384, 4.0))]
    both = [row("host_to_all_bidir_bw", 5.0, 512 * MIB, "gpu=0;gpus=4")]
    all_at_once = [row("host_to_all_bw", 7.0 + i / 10, 512 * MIB, f"gpu={i};gpus=4") for i in range(4)]
    fitted = fit([*staged, *both, *all_at_once], BASE)
    assert dict(fitted.profile.host.pageable_curve_d2h)[64 * 1024] == 1e9 and not fitted.profile.host.pageable_curve
    assert number(fitted, "host.pageable_d2h")[0] == pytest.approx(4e9)
    assert number(fitted, "host.all_h2d") == (pytest.approx(28.6e9), pytest.approx(28.12e9), pytest.approx(29.08e9))
    assert number(fitted, "host.all_both")[0] == pytest.approx(40e9), "twice the direction that was measured, of four"
    assert fitted.profile.host.all_d2h is None


def test_rates_above_the_pins_and_too_few_rows_stay_with_the_catalogue() -> None:
    fitted = fit([row("h2d_pinned_bw", 40.0, 512 * MIB), row("cudamalloc_us", 90.0, MIB)], BASE)
    why = {one.path: one.why for one in fitted.left}
    assert "above the nominal 31.5 GB/s" in why["link.h2d"]
    assert "fewer than 3 sizes" in why["allocation.malloc_per_gib"]
    assert fitted.profile.link.h2d == BASE.link.h2d
    assert "allocation.malloc_per_gib: fewer than 3 sizes" in fitted.text


def test_the_file_is_the_profile_and_names_its_rows() -> None:
    rows = [row("l2_or_dram_read_bw", 3000.0 if s < 64 else 1700.0, s * MIB) for s in (1, 2, 4, 8, 16, 128, 256)]
    fitted = fit([*rows, row("p2p_nvlink_bw", 250.0, 160_000_000)], BASE, "mine")
    doc = document.loads(fitted.text)
    again = validate.build(Profile, doc, context=doc.data["sources"])
    assert again == fitted.profile
    assert (again.name, again.peer.rate.value if again.peer else 0) == ("mine", 250e9)
    assert again.sources["rows of peer.rate"] == f"median at the largest sizes, 1 row of {SEEN}: a page"
    assert len(again.memory.read_curve) >= 3
    rest = {path: q for path, q in quantities(again) if path not in fitted.paths}
    assert rest == {path: q for path, q in quantities(BASE) if path in rest}
    changed = {r["number"]: r["change"] for r in difference(fitted)}
    assert changed["peer.rate"] == "-8.8%"

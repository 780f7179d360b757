"""Does a row run through the engine as its test ran on the machine?  On a machine with round numbers, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hand_worked import machine
from test_calibrate_fit import BASE, HELD, MIB, SEEN, UNFITTED, row

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.as_programs.of_rows import program
from gpusim.calibrate.as_programs.row_program import Cannot
from gpusim.calibrate.compare import report
from gpusim.calibrate.compare.score import FITTED, PARTS, Comparison, Series, compare, quantile
from gpusim.calibrate.fit.fitting import fit
from gpusim.calibrate.rows import Row
from gpusim.machine.catalogue import load
from gpusim.machine.profile import changed, load_file

pytestmark = pytest.mark.hand_worked

# 10 bytes/ns in, 8 out, 18 both ways; 1 us of latency; memory reads 1000, copies 800, writes 500 bytes/ns.
ROUND = machine(
    {
        "memory.read": 1000e9, "memory.copy": 800e9, "memory.write": 500e9, "memory.copy_engine": 400e9,
        "peer.rate": 100e9, "peer.latency": 2000.0, "link.latency_synchronised": 5000.0,
        "launch.gap": 500.0, "launch.submit": 100.0,
        "allocation.malloc": 50e3, "allocation.malloc_per_gib": 100e3, "allocation.free": 70e3,
    },
    base=str(UNFITTED),
)  # fmt: skip


IN_L2 = 25.6 * 108 * 1.41  # bytes/ns of kernels that read as much as they write, by the rule for an A100


def simulated(one: Row) -> float:
    found = compare([one] * 20, ROUND)
    assert not found.series[0].cannot
    return found.series[0].points[0].simulated


@pytest.mark.slow
def test_copies_behind_a_kernel() -> None:
    """16 MiB in 1677721.6 + 1000 ns; the gap of 500 ns is between kernels only."""
    size = 16 * MIB
    period = 1000 + size / 10
    assert simulated(row("h2d_pinned_bw", 9.0, size)) == pytest.approx(size / period, rel=1e-5)
    assert simulated(row("d2h_pinned_bw", 9.0, size)) == pytest.approx(size / (period + size / 40), rel=1e-5)


@pytest.mark.slow
def test_copies_that_the_host_awaits() -> None:
    """5 us from call to return, and 1024 bytes in 102.4 ns."""
    one = row("h2d_pinned_time_us", 1.0, 1024, method="and synchronise")
    assert simulated(one) == pytest.approx(5.103, rel=1e-4)
    assert simulated(replace(one, metric="d2h_pinned_time_us")) == pytest.approx(5.128, rel=1e-4)


def test_both_directions_share_what_the_link_has_for_them() -> None:
    """9 bytes/ns for each would exceed the 8 of the way out: 8 go out, and 10 of the 18 come in."""
    size = 64 * MIB
    assert simulated(row("h2d_pinned_bidir_bw", 9.0, size)) == pytest.approx(10.0, rel=1e-3)
    assert simulated(row("d2h_pinned_bidir_bw", 9.0, size)) == pytest.approx(8.0, rel=1e-3)


@pytest.mark.slow
def test_kernels_run_at_the_rates_of_what_they_read_and_write() -> None:
    """A triad reads two of its three parts: per byte 1/3 at the rate of reading and 2/3 at that of copying."""
    size = 2048 * MIB
    triad = 1 / (1 / 3 / 1000 + 2 / 3 / 800)
    for metric, rate in (("hbm_read_bw", 1000), ("hbm_write_bw", 500), ("hbm_copy_bw", 800), ("hbm_triad_bw", triad)):
        assert simulated(row(metric, 1.0, size)) == pytest.approx(rate, rel=1e-5)
    assert simulated(row("hbm_copy_once_bw", 1.0, size, method="device_local_copy")) == pytest.approx(200, rel=1e-4)


def test_kernels_in_a_row_cost_their_gap() -> None:
    """800 MB at 800 bytes/ns and 500 ns; 8 MiB in L2 at 25.6 bytes a clock of 108 multiprocessors at 1.41 GHz."""
    far, near = (row("queued_kernel_scale_bw", 1.0, size, "mode=stream") for size in (800_000_000, 8 * MIB))
    assert simulated(far) == pytest.approx(800_000_000 / (1_000_000 + 500), rel=1e-3)
    assert simulated(near) == pytest.approx(8 * MIB / (8 * MIB / IN_L2 + 500), rel=1e-3)


@pytest.mark.slow
def test_kernels_of_a_graph_do_not_wait_for_the_host() -> None:
    """A host that needs 3 us for each of them: 269 ns of work come every 3 us in a stream, and after 500 ns in a graph."""
    slow = changed(ROUND, "launch.submit", 3000.0)
    size = 1 * MIB
    stream, graph = (row("queued_kernel_scale_bw", 1.0, size, f"mode={mode}") for mode in ("stream", "graph"))
    of = {one: compare([one] * 20, slow).series[0].points[0].simulated for one in (stream, graph)}
    assert of[stream] == pytest.approx(size / 3000, rel=1e-2)
    assert of[graph] == pytest.approx(size / (size / IN_L2 + 500), rel=1e-2)


def test_a_kernel_that_computes_more_than_it_reads() -> None:
    """97 % of 19.5 Tflop/s; the longer of computing and reading at 1000 bytes/ns hides four fifths of the shorter."""
    peak = 0.97 * 19_500
    for intensity, took in ((100, 100 / peak + 0.2 / 1000), (1, 1 / 1000 + 0.2 / peak)):
        one = row("fp32_fma_gflops", 1.0, param=f"flop_per_byte={intensity}")
        assert simulated(one) == pytest.approx(intensity / took, rel=1e-4)


def test_peers_and_collectives() -> None:
    """An all-reduce of 800 MB over 8 GPUs sends 1.4 GB from each, at 100 bytes/ns, 2 us after its start."""
    assert simulated(row("p2p_nvlink_bw", 1.0, 160_000_000)) == pytest.approx(100, rel=2e-3)
    assert simulated(row("p2p_latency_us", 1.0, 16)) == pytest.approx(2.001, rel=1e-4)
    reduced = row("nccl_allreduce_time_us", 1.0, 800_000_000, system="8x A100")
    assert simulated(reduced) == pytest.approx(14_002.5, rel=1e-4)


def test_peers_that_meet_over_the_links_to_the_host() -> None:
    """Past the host's memory as fast as the slower direction, 8 bytes/ns; by way of it 0.7 of that, both 1.25 times so."""
    size = 160_000_000
    for metric, rate in (("p2p_pcie_bw", 8.0), ("p2p_pcie_bidir_total_bw", 16.0), ("p2p_staged_bw", 5.6)):
        assert simulated(row(metric, 1.0, size)) == pytest.approx(rate, rel=2e-3)
    assert simulated(row("p2p_staged_bidir_total_bw", 1.0, size)) == pytest.approx(7.0, rel=2e-3)
    assert simulated(row("p2p_staged_latency_us", 1.0, 16)) == pytest.approx(14.0, rel=1e-3)
    assert simulated(row("p2p_nvlink_bidir_total_bw", 1.0, size)) == pytest.approx(200, rel=2e-3)


def test_a_bandwidth_of_a_collective_counts_what_one_gpu_sends() -> None:
    """An all-reduce of 800 MB over 8 GPUs sends 1.4 GB from each at 100 bytes/ns."""
    one = row("nccl_allreduce_busbw", 1.0, 800_000_000, "nodes=1", system="1x node, 8x A100")
    assert simulated(one) == pytest.approx(1.4e9 / 14_002_500, rel=1e-4)


def test_chains_of_loads_take_the_latency_of_what_they_go_through() -> None:
    """36 cycles of 1.41 GHz in L1, 213 in the near half of L2, 426 in the other, 571 in memory; 50 % of the way between."""
    between = 40 * MIB * (0.5 * 0.7) ** 0.5
    for size, cycles in ((1024, 36), (MIB, 213), (int(between), (213 + 426) / 2), (36 * MIB, 426), (1 << 30, 571)):
        assert simulated(row("load_latency_ns", 1.0, size)) == pytest.approx(cycles / 1.41, rel=1e-4)
    for metric, cycles in (("l1_latency_cycles", 36), ("l2_latency_cycles", 213), ("hbm_latency_cycles", 571)):
        assert simulated(row(metric, 1.0)) == pytest.approx(cycles, rel=1e-4)


def test_few_threads_reach_what_they_have_under_way() -> None:
    """64 of a multiprocessor's 2,048 threads, 8 bytes each in the 571 cycles that memory takes and, at 1.41 GHz, just under
    300 ns; a full device, which has 1000 bytes/ns, is the limit that both meet."""
    one = row("hbm_read_bw", 1.0, 1 << 31, f"threads={64 * 108};occupancy_pct=3.1")
    alone = 64 * 108 * 8 / (300 * (1.4 / 1.41) ** 0.5 + 571 / 1.41)
    full = 2048 * 108 * 8 / (300 * (1.4 / 1.41) ** 0.5 + 571 / 1.41)
    limit = (1000**-2 - full**-2) ** -0.5
    assert simulated(one) == pytest.approx((alone**-2 + limit**-2) ** -0.5, rel=1e-4)
    # By the percentage a multiprocessor is full of 1,024 of the threads that are printed: they are half of those that run.
    half = replace(one, param=f"threads={32 * 108};occupancy_pct=3")
    assert simulated(half) == pytest.approx(simulated(one), rel=1e-6)
    # Eight times as many bytes of each thread at once are as good as eight times as many threads.
    wide = replace(one, method="4 loads of 16 B under way per thread")
    many = 8 * alone
    whole = (1000**-2 - (8 * full) ** -2) ** -0.5
    assert simulated(wide) == pytest.approx((many**-2 + whole**-2) ** -0.5, rel=1e-4)


def test_passes_of_a_looping_kernel_wait_for_each_other() -> None:
    """5.5 trips of (213 + 426) / 2 cycles, 4 cycles for each of 64 thread blocks, and 1 MiB from L2."""
    one = row("queued_kernel_scale_bw", 1.0, MIB, "mode=persistent_atomic")
    waits = (5.5 * 319.5 + 4 * 64) / 1.41
    assert simulated(one) == pytest.approx(MIB / (waits + MIB / IN_L2), rel=1e-4)


def test_all_multiprocessors_read_the_same_bytes_side_by_side() -> None:
    """126 bytes a clock and 10 clocks to begin again in L1; 35.8 in the near half of L2, 0.88 of that beyond."""
    clock = 108 * 1.41
    assert simulated(row("l1_or_l2_read_bw", 1.0, 65_536)) == pytest.approx(clock * 65_536 / (65_536 / 126 + 10), rel=1e-4)
    for size, rate in ((4 * MIB, 35.8), (64 * MIB, 35.8 * 0.88)):
        assert simulated(row("l1_or_l2_read_bw", 1.0, size)) == pytest.approx(clock * rate, rel=1e-3)


def test_what_a_rule_decides_is_not_fitted() -> None:
    """Chains have a rule until a row of the fit says more."""
    rows = [row("load_latency_ns", 26.0, 1024, series=HELD), row("hbm_read_bw", 1000.0, 1 << 31)]
    assert [s.part for s in compare(rows * 10, fit(rows, BASE).profile).series] == ["not fitted", FITTED]
    said = [*rows, *(row("load_latency_ns", 30.0, 1024 << n) for n in range(6))]
    fitted = compare(said * 10, fit(said, BASE).profile).series[0]
    assert (fitted.part, fitted.points[0].simulated) == ("held out", pytest.approx(30.0, rel=1e-3))


def test_pageable_memory_is_swapped_to_and_from_by_a_waiting_host() -> None:
    """20 MB at 8 and at 4 bytes/ns, and 5 us from call to return."""
    size = 20_000_000
    numbers = {"host.pageable_h2d": 8e9, "host.pageable_d2h": 4e9, "link.latency_synchronised": 5000.0}
    slow = machine(numbers, base=str(UNFITTED))
    for way, rate in (("h2d", 8), ("d2h", 4)):
        found = compare([row(f"{way}_pageable_bw", 1.0, size)] * 20, slow).series[0]
        assert found.uses == (f"host.pageable_{way}", "link.latency_synchronised")
        assert found.points[0].simulated == pytest.approx(size / (5000 + size / rate), rel=1e-3)


@pytest.mark.slow
def test_kernels_on_host_memory_take_the_link() -> None:
    """10 bytes/ns to the device, 8 to the host; threads of one byte make requests of 32, a quarter of a full one."""
    size = 64 * MIB
    assert simulated(row("h2d_sm_copy_bw", 1.0, size)) == pytest.approx(10, rel=1e-3)
    assert simulated(row("d2h_sm_copy_bw", 1.0, size)) == pytest.approx(8, rel=1e-3)
    for width, share in ((1, 0.25), (4, 1.0), (16, 1.0)):
        assert simulated(row("zero_copy_read_bw", 1.0, size, f"access_bytes={width}")) == pytest.approx(10 * share, rel=1e-3)
    assert simulated(row("h2d_sm_bidir_bw", 1.0, size)) == pytest.approx(10, rel=1e-3)


def test_kernels_may_be_faster_than_copies() -> None:
    rows = [row("h2d_pinned_bw", 10.0, 512 * MIB), row("h2d_sm_copy_bw", 12.0, 512 * MIB)]
    found = compare(rows * 10, fit(rows, load_file(UNFITTED)).profile).series[0]
    assert [p.simulated for p in found.points[:2]] == [pytest.approx(10, rel=1e-3), pytest.approx(12, rel=1e-3)]


def test_gpus_that_copy_at_once_share_the_host() -> None:
    """Four GPUs with 10 bytes/ns each have 24 together: 6 for each; of the way back nothing is said: as one GPU's way in."""
    size = 512 * MIB
    rows = [row("host_to_all_bw", 6.0, size, param=f"gpu={i}", system="4x A100") for i in range(4)]
    fitted = fit([row("h2d_pinned_bw", 10.0, size, system="4x A100"), *rows], load_file(UNFITTED))
    back = row("all_to_host_bw", 8.0, size, param="gpu=0;gpus=4")
    narrow = row("all_to_host_sm_bw", 8.0, size, param="gpu=0;gpus=4")
    found = compare([*rows, back, narrow] * 4, fitted.profile).series[0]
    assert fitted.profile.host.all_h2d is not None and fitted.profile.host.all_h2d.value == 24e9
    assert [p.simulated for p in found.points[3:6]] == [pytest.approx(v, rel=1e-3) for v in (6, 10, 10)]


def test_another_host_than_the_fitted_one_is_apart() -> None:
    """What the fit says of a link is of the host that it was measured on."""
    rows = [row("h2d_pinned_bw", 10.0, 512 * MIB), *[row("h2d_pinned_bw", 20.0, 512 * MIB, series=HELD, system="there")] * 19]
    found = compare(rows, fit(rows, load_file(UNFITTED)).profile)
    assert [s.part for s in found.series] == [FITTED, "another host"] and found.score() is None


def test_calls_for_memory_cost_the_host() -> None:
    """64 MiB: 50 us and a sixteenth of 100 us; cudaFree 70 us, whatever the size."""
    assert simulated(row("cudamalloc_us", 1.0, 64 * MIB)) == pytest.approx(56.25, rel=1e-3)
    assert simulated(row("cudafree_us", 1.0, 64 * MIB)) == pytest.approx(70, rel=1e-3)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (row("shared_latency_cycles", 30.0), "no shared memory"),
        (row("peer_access_latency_ns", 1.0, 1024), "no time of a load from the peer's memory"),
        (row("queued_kernel_scale_bw", 1.0, 1024, "mode=by_hand"), "no launches of the kind 'by_hand'"),
        (row("null_kernel_us", 1.0, None, "mode=persistent_atomic"), "no launches of the kind 'persistent_atomic'"),
        (row("nccl_allreduce_busbw", 1.0, 1024, "nodes=4"), "several nodes"),
        (row("all_to_one_write_bw", 1.0, 1024), "one GPU is simulated"),
        (row("nvrtc_compile_ms", 1.0), "nothing of this kind"),
    ],
)
def test_what_the_engine_lacks_is_said(one: Row, why: str) -> None:
    found = program(one, ROUND)
    assert isinstance(found, Cannot)
    assert why in found.why


def test_each_held_out_series_counts_alike_and_others_not_at_all() -> None:
    """A series of 18 rows that are right and one row that is 25 % off: the median is right, the p90 is not."""
    right = [row("hbm_read_bw", 1000.0, 2048 * MIB, series=HELD) for _ in range(18)]
    wrong = row("hbm_copy_bw", 1000.0, 2048 * MIB, series=f"{HELD}/{_held_beside()}")
    seen = row("hbm_write_bw", 50.0, 2048 * MIB, series=SEEN)
    found = compare([*right, wrong, seen], ROUND, fitted={"memory.read", "memory.copy"}, seen={SEEN})
    score = found.score()
    assert score is not None
    assert score == (pytest.approx(0, abs=1e-5), pytest.approx(0.2, rel=1e-4), pytest.approx(0.2, rel=1e-4))
    assert found.score(FITTED) == (pytest.approx(9.0, rel=1e-4),) * 3
    assert "held out: 2 series, median 0.0%, p90 20.0%" in report.answer(found)


def _held_beside() -> str:
    from itertools import count

    from gpusim.calibrate.rows import held_out

    return next(str(n) for n in count() if held_out(f"{HELD}/{n}"))


def test_what_the_catalogue_may_have_read_off_the_series_is_apart() -> None:
    """The catalogue's own read rate is measured; after a fit it is the fit's."""
    rows = [row("hbm_read_bw", 1700.0, 2048 * MIB, series=HELD)] * 20
    base = load_file(UNFITTED)
    assert compare(rows, base).series[0].part == PARTS[1]
    fitted = fit([*rows, row("hbm_read_bw", 1700.0, 2048 * MIB)], base)
    assert compare(rows, fitted.profile).series[0].part == PARTS[0]


def test_a_point_that_a_fitted_series_repeats_is_not_scored() -> None:
    """The last point of a sweep is in the table as well; its earlier points are not points of a full device."""
    twin = [row("hbm_copy_bw", 800.0, 2048 * MIB, series=HELD), row("hbm_scale_bw", 800.0, 2048 * MIB, "occupancy_pct=100")]
    sweep = [row("hbm_scale_bw", 700.0, 2048 * MIB, "occupancy_pct=50"), row("hbm_copy_bw", 700.0, 2048 * MIB, series=HELD)]
    held = compare([*twin, *sweep, *[twin[1]] * 16], ROUND, seen={SEEN}).series[0]
    assert [p.row.value for p in held.points] == [700.0]
    assert held.cannot == {"the very same point is in a series that the fit saw": 1}


def test_weighted_quantiles() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 1.0])
    assert [quantile(values, weights, q) for q in (0.5, 0.75, 0.9)] == [1.0, 2.0, 3.0]


def test_few_rows_are_compared_with_a_caution() -> None:
    found = compare([row("hbm_read_bw", 1000.0, 2048 * MIB)], ROUND)
    assert found.series[0].points[0].error < 1e-4
    assert "caution: 1 row: fewer than 20 say little" in report.answer(found)
    assert not compare([row("hbm_read_bw", 1.0, MIB)] * 20, ROUND).cautions
    with pytest.raises(MeasurementError, match="no rows"):
        compare([], ROUND)


def test_fitted_is_what_the_profile_says_that_its_fit_saw(tmp_path: Path) -> None:
    """By name, whatever the hash of a name says: after --all all of these rows, and no other file's."""
    rows = [row("hbm_read_bw", 1700.0, 2048 * MIB, series=name) for name in (SEEN, HELD)]
    other = row("hbm_read_bw", 1700.0, 2048 * MIB, series="another file/hbm_read_bw", source="elsewhere")
    for everything, parts in ((False, [FITTED, "held out", "held out"]), (True, [FITTED, FITTED, "held out"])):
        (tmp_path / "mine.yaml").write_text(fit(rows, BASE, "mine", everything).text)
        again = load_file(tmp_path / "mine.yaml")
        assert [s.part for s in compare([*rows, other], again).series] == parts
    # A profile that was never fitted has seen nothing.
    estimated = machine({"memory.read": 1000e9}, base=str(UNFITTED))
    assert {s.part for s in compare([*rows, other], estimated).series} == {"not fitted"}


def test_the_catalogue_names_series_and_their_publishers() -> None:
    a10 = load("a10")
    named = row("h2d_pinned_bw", 25.0, 64 * MIB, series="a10-pinned-local/h2d_pinned_bw", gpu="A10", source="")
    mine = replace(named, series_id="mine/h2d_pinned_bw", source="gpusim calibrate measure on this machine")
    assert [s.part for s in compare([named, mine], a10).series] == [FITTED, "held out"]


def test_rows_of_another_gpu_are_refused(tmp_path: Path) -> None:
    rows = [row("hbm_read_bw", 600.0, 2048 * MIB, gpu="A40")]
    with pytest.raises(MeasurementError, match=r"rows are of 'A40', but .* 'l40' is of L40 .compare with --on a40"):
        compare(rows, load("l40"))
    (tmp_path / "mine.yaml").write_text(fit(rows, load("l40"), "mine").text)
    assert not [c for c in compare(rows, load_file(tmp_path / "mine.yaml")).cautions if "GPU" in c], "now it is an A40's"
    unnamed = compare(rows, replace(load("l40"), name="mine"))
    assert any("does not say which GPU it is of" in c for c in unnamed.cautions)


def test_a_miss_of_pageable_copies_is_the_hosts() -> None:
    found = compare([row("h2d_pageable_bw", 1.0, 20_000_000)], ROUND)
    (_, table), *_ = report.reasons(found)
    assert "stages pageable copies" in table[0]["effect"] and "loads in flight" not in table[0]["effect"]


@pytest.mark.parametrize(("fitted", "says"), [(("h2d_pinned_bw",), "only one was fitted"), ((), "hosts differ")])
def test_a_miss_of_pinned_copies_is_the_links(fitted: tuple[str, ...], says: str) -> None:
    rows = [row(metric, 10.0, 512 * MIB) for metric in fitted] or [row("hbm_read_bw", 1700.0, 2048 * MIB)]
    profile = fit(rows, load_file(UNFITTED)).profile
    (_, table), *_ = report.reasons(compare([row("d2h_pinned_bw", 3.0, 512 * MIB, series=HELD)], profile))
    assert says in table[0]["effect"]


def test_the_figure_has_a_panel_for_each_machine() -> None:
    from gpusim.show.calibration import draw

    found = compare([row("hbm_read_bw", 900.0, 2048 * MIB, series=HELD)] * 20, ROUND, fitted={"memory.read"}, machine="one")
    figure = draw([found, Comparison("none", ROUND, (Series("s", PARTS[0]),), 20)])
    assert [panel.get_title(loc="left") or panel.get_title() for panel in figure.axes] == ["one", "none"]

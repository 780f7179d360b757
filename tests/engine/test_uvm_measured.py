"""Do small programs count what was counted on real machines?

Measurements and their sources are in data/uvm_measurements.csv.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpusim.base.errors import ConfigError
from gpusim.base.yaml.find import find
from gpusim.calibrate.uvm import fit, read
from gpusim.engine.pages.simulate import simulate_uvm
from gpusim.machine import catalogue, platforms
from gpusim.machine.driver_parameters import PARAMETERS, UvmError, resolve
from gpusim.machine.platforms import load
from gpusim.programs.managed import patterns
from gpusim.programs.managed.steps import Access, Array, HostTouch, Kernel

pytestmark = pytest.mark.oracle

ROWS = read(Path(__file__).parents[1] / "data" / "uvm_measurements.csv")
MIB = 1 << 20
GTX_1080_TI, RTX_5070_TI = load("gtx-1080-ti"), load("rtx-5070-ti")


def measured(key: str, what: str) -> float:
    return next(r.value for r in ROWS if r.key == key and r.what == what)


def test_the_gtx_1080_ti_has_the_fitted_constants() -> None:
    f, link, work = fit(ROWS), GTX_1080_TI.link, GTX_1080_TI.work
    assert link.in_start == pytest.approx(f.in_start, rel=0.01)
    assert link.out_start == pytest.approx(f.out_start, rel=0.01)
    assert 1e9 / link.in_rate == pytest.approx(f.in_byte, rel=0.01)
    assert 1e9 / link.out_rate == pytest.approx(f.out_byte, rel=0.01)
    assert work.page + work.chunk == pytest.approx(f.page, rel=0.01)
    assert work.first_touch + work.setup == pytest.approx(f.first_touch, rel=0.01)
    assert work.interrupt + work.batch + work.fault + work.block + work.replay == pytest.approx(f.fault, rel=0.01)


@pytest.mark.slow
def test_a_number_that_a_profile_does_not_say_follows_from_the_nearest_machine() -> None:
    """By hand: the CPU's work as it is there, whatever the link; rates by the link, which is 4.58 times a T4's."""
    known = platforms.numbers(catalogue.load("rtx-5070-ti"))
    theirs = platforms.numbers(catalogue.load("rtx-5090"))["page"]
    assert (theirs.value, theirs.basis, theirs.source) == (known["page"].value, "estimated", "as rtx-5070-ti")
    t4 = platforms.numbers(catalogue.load("t4"))["page"].value
    assert known["page"].value == pytest.approx(0.85 * t4, rel=0.01)
    assert platforms.numbers(catalogue.load("h200-sxm"))["page"].value == t4
    rate = platforms.numbers(catalogue.load("t4"))["rate_h2d"].value
    assert known["rate_h2d"].value == pytest.approx(rate * 56.389 / 12.3)
    assert (known["warps"].value, known["thread_blocks"].value) == (48, 24)
    assert known["start_h2d"].value == 1404 and known["host_page"].value == 4096
    assert platforms.nearest(catalogue.load("gb200")) == "gh200-96gb"
    assert load("gb200").coherent and load("gb200").page == 65536 and not load("a100-pcie-80gb").coherent
    assert load("rtx-5090(context=0.6 GiB)").memory == pytest.approx((31.36 - 0.6) * 2**30, abs=1)
    assert load("v100-sxm2-power9").ats and load("jetson-agx-orin-64gb").unified
    assert {load(name).name for name in catalogue.names()} == set(catalogue.names())


def test_machines_that_others_follow_from_are_the_catalogues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = find("profile", "gtx-1080-ti").read_text()
    (tmp_path / "gtx-1080-ti.yaml").write_text(text[: text.index("\npaging:")])
    monkeypatch.chdir(tmp_path)
    platforms._profile.cache_clear()
    assert load("titan-v").work.setup == 24_740
    assert [path.stem for path in platforms.origins() if path.is_file()] == ["gh200-96gb", "rtx-5070-ti", "t4", "gtx-1080-ti"]


def test_a_profile_sets_numbers_and_module_parameters(tmp_path: Path) -> None:
    added = """  first_touch: {value: 1 ms, basis: estimated, source: recalled}
  ats: true
  parameters: {uvm_perf_prefetch_threshold: 0}
"""
    text = find("profile", "titan-v").read_text().rpartition("  parameters:")[0] + added
    mine = tmp_path / "mine.yaml"
    mine.write_text(text)
    machine = load(str(mine))
    assert (machine.work.first_touch, machine.ats, machine.coherent) == (1e6, True, False)
    assert machine.parameters == {"uvm_perf_prefetch_threshold": 0}
    mine.write_text(text.replace("_threshold: 0", "_treshold: 0"))
    with pytest.raises(ConfigError, match=r"(?s)no module parameter 'uvm_perf_prefetch_treshold'.*uvm_perf_prefetch_threshold"):
        load(str(mine))


def test_what_kernels_read_from_afar_takes_what_the_profile_says_for_lines_and_for_sectors() -> None:
    link = GTX_1080_TI.link
    for n_bytes, rate in ((128, 12.2), (32, 4.7)):
        assert n_bytes / (n_bytes / link.remote_rate * 1e9 + link.remote_request) == pytest.approx(rate)


def test_all_module_parameters_are_known_and_those_without_effect_are_told() -> None:
    assert len(PARAMETERS) == 53
    default, told = resolve({name: p.default for name, p in PARAMETERS.items()})
    assert told == [] and default["uvm_perf_fault_batch_count"] == 256
    values, told = resolve({
        "uvm_perf_fault_batch_count": 0, "uvm_peer_copy": "other", "uvm_leak_checker": "2", "uvm_perf_prefetch_threshold": "75",
    })  # fmt: skip
    assert values["uvm_perf_fault_batch_count"] == 1 and values["uvm_perf_prefetch_threshold"] == 75
    assert told == [
        "uvm_perf_fault_batch_count=0 is outside of 1..8192: the driver takes the limit, 1",
        "uvm_peer_copy=other is none of phys, virt: the driver takes its default, phys",
        "uvm_leak_checker is without effect here: watch the driver's own memory",
    ]
    with pytest.raises(UvmError, match="'much', not a whole number"):
        resolve({"uvm_perf_prefetch_threshold": "much"})


@pytest.mark.parametrize("kib", [64, 128, 256, 512, 1024])
def test_single_faults_take_what_was_measured(kib: int) -> None:
    row = next(r for r in ROWS if r.key == f"nvprof_fault_{kib}KB")
    units = {64: [0, 1], 128: [0, 1, 2], 256: [0, 1, 2, 4], 512: [0, 1, 2, 4, 8], 1024: [0, 1, 2, 4, 8, 16]}[kib]
    touches = [Kernel(f"{u}", [Access("a", index=np.array([u * 16 * 1024]))], (1, 1), (1, 1), ns=0.0) for u in units]
    last = simulate_uvm([Array("a", 2 * MIB)], [HostTouch("a"), *touches], GTX_1080_TI).steps[-1]
    assert last.counts[1]["came"].sum() * 4 == kib
    assert last.ns / 1e3 == pytest.approx(row.value, rel=0.03)


def test_stream_triad_faults_on_the_cpu_and_copies_back_as_measured() -> None:
    program = [*(HostTouch(x) for x in "abc"), patterns.triad("a", "b", "c", MIB), HostTouch("a", write=False)]
    result = simulate_uvm([Array(x, 4 * MIB) for x in "abc"], program, GTX_1080_TI)
    key = "uvmsmart_real_StreamTriad"
    assert result.counts[0]["faults"] == measured(key, "CPU page faults") == 48
    assert result.counts[0]["copies"].sum() == measured(key, "UVM DtoH number of copies") == 24
    assert result.counts[1]["came"].sum() * 4096 / MIB == measured(key, "UVM HtoD migrated bytes")


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 8])
def test_sparse_oversubscribed_kernels_move_every_block_twice_as_measured(k: int) -> None:
    rng = np.random.default_rng(7)
    pages = np.stack([rng.permutation(512)[:k] for _ in range(12288)]).astype(np.int64)
    kernel = patterns.sparse("a", rng.permutation(12288), pages)
    result = simulate_uvm([Array("a", 24 << 30)], [HostTouch("a"), kernel], RTX_5070_TI)
    key = f"sparse_ov_K{k}_t51"
    assert result.steps[1].counts[1]["came"].sum() / 2**18 == pytest.approx(measured(key, "HtoD bytes in pass 1"), rel=0.02)
    assert result.steps[1].counts[1]["left"] / 2**18 == pytest.approx(measured(key, "DtoH bytes in pass 1"), rel=0.03)


def test_patterns_touch_what_they_say() -> None:
    def touched(access: Access, threads: int, steps: int = 1) -> tuple[int, int]:
        kernel = Kernel("k", [access], (threads // 256, 1), (256, 1), (steps, 1))
        r = simulate_uvm([Array("a", 8 * MIB)], [HostTouch("a"), kernel], GTX_1080_TI, {"uvm_perf_prefetch_enable": 0})
        return int(r.counts[1]["faults"]), int(r.counts[1]["touches"])

    assert touched(patterns.streaming("a"), 4096) == (4, 128)  # 16 KiB, a touch a warp
    assert touched(patterns.streaming("a", threads=4096), 4096, 3) == (12, 384)
    assert touched(patterns.strided("a", 1024), 512) == (512, 512)
    assert touched(patterns.block_strided("a", 1024), 1024, 4) == (4, 128)  # four pages, eight warps, four steps
    faults, touches = touched(patterns.scattered("a", 5), 4096)
    assert touches == 4096
    assert 1700 < faults < 1800  # 2048 (1 - exp(-2)) = 1771 pages are met
    index = np.arange(256, dtype=np.int64)[::-1].copy() * 2048
    assert touched(patterns.gather("a", index), 256) == (256, 256)
    tile = Kernel("t", [patterns.transposed("a", 1024)], (2, 1), (32, 8))
    r = simulate_uvm([Array("a", 8 * MIB)], [HostTouch("a"), tile], GTX_1080_TI, {"uvm_perf_prefetch_enable": 0})
    assert (r.counts[1]["faults"], r.counts[1]["touches"]) == (64, 512)  # 64 columns of a page each, eight rows

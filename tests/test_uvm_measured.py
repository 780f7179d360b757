"""Do small programs count what was counted on real machines?

Measurements and their sources are in data/uvm_measurements.csv.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpusim.uvm import patterns
from gpusim.uvm.calibration import fit, read
from gpusim.uvm.platforms import GTX_1080_TI, RTX_5070_TI
from gpusim.uvm.program import Access, Array, HostTouch, Kernel
from gpusim.uvm.simulate import simulate_uvm

ROWS = read(Path(__file__).parent / "data" / "uvm_measurements.csv")
MIB = 1 << 20


def measured(key: str, what: str) -> float:
    return next(r.value for r in ROWS if r.key == key and r.what == what)


def test_the_gtx_1080_ti_has_the_fitted_constants() -> None:
    f, link, work = fit(ROWS), GTX_1080_TI.link, GTX_1080_TI.work
    assert link.in_start == pytest.approx(f.in_start, rel=0.01)
    assert link.out_start == pytest.approx(f.out_start, rel=0.01)
    assert 1e9 / link.in_rate == pytest.approx(f.in_byte, rel=0.01)
    assert 1e9 / link.out_rate == pytest.approx(f.out_byte, rel=0.01)
    assert work.page == pytest.approx(f.page, rel=0.01)
    assert work.first_touch == pytest.approx(f.first_touch, rel=0.01)
    assert work.interrupt + work.batch + work.fault + work.block + work.replay == pytest.approx(f.fault, rel=0.01)


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


@pytest.mark.parametrize("k", [1, 8])
def test_sparse_oversubscribed_kernels_move_every_block_twice_as_measured(k: int) -> None:
    rng = np.random.default_rng(7)
    pages = np.stack([rng.permutation(512)[:k] for _ in range(12288)]).astype(np.int64)
    kernel = patterns.sparse("a", rng.permutation(12288), pages)
    result = simulate_uvm([Array("a", 24 << 30)], [HostTouch("a"), kernel], RTX_5070_TI)
    key = f"sparse_ov_K{k}_t51"
    assert result.steps[1].counts[1]["came"].sum() / 2**18 == pytest.approx(measured(key, "HtoD bytes in pass 1"), rel=0.02)
    assert result.steps[1].counts[1]["left"] / 2**18 == pytest.approx(measured(key, "DtoH bytes in pass 1"), rel=0.02)


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

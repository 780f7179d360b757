"""The microbenchmarks, up to the driver's calls: on a fake driver with a made-up clock, which measures nothing."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import CALL, RATES, READ, START, STEP, Fake, FakeNvml, MiB

from gpusim.base.errors import MeasurementError
from gpusim.calibrate import rows
from gpusim.calibrate.measure import chosen_gpu as device
from gpusim.calibrate.measure import cuda, kernels, latency
from gpusim.calibrate.measure.bundle import bundle
from gpusim.calibrate.measure.cuda import Cuda
from gpusim.calibrate.measure.nvml import Nvml
from gpusim.calibrate.measure.recorder import Recorder, sizes
from gpusim.calibrate.measure.rehearsal import Driver, rehearse
from gpusim.calibrate.measure.session import GROUPS, QUICK, WITHOUT_GPU, groups_of, measure
from gpusim.calibrate.measure.stats import summary
from gpusim.calibrate.rows import Row

ON_GPU = [g for g in GROUPS if g not in WITHOUT_GPU]


def run(
    out: Path, fake: Fake, only: list[str], nvml: FakeNvml | None = None, **options: Any
) -> tuple[list[Row], dict[str, Any]]:
    library = Nvml(nvml or FakeNvml())
    said: list[str] = []
    load = lambda: (Cuda(fake, fake), library)  # noqa: E731
    conditions = measure(out, only, quick=True, clock=fake.clock, load=load, say=said.append, **options)
    return rows.read(out), {**conditions, "said": said}


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """A fake device of little memory, so that tests are quick."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "LEAST", 8 * MiB)
        patch.setattr(latency, "STEPS", 500)
        patch.setattr(latency, "STEPS_FAR", 200)
        yield


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], dict[str, Any], Fake]:
    """Everything that a machine with two GPUs is asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "LEAST", 8 * MiB)
        patch.setattr(latency, "STEPS", 500)
        patch.setattr(latency, "STEPS_FAR", 200)
        fake = Fake(devices=2, free=24 * MiB)
        found, conditions = run(tmp_path_factory.mktemp("m") / "m.json", fake, ON_GPU)
    return found, conditions, fake


def one(found: list[Row], metric: str, size: int | None = None, case: str = "", **param: str) -> Row:
    """The only row of its kind."""
    wanted = [r for r in found if r.metric == metric and (size is None or r.size_bytes == size) and f"{case}/" in r.series_id]
    wanted = [r for r in wanted if all(r.params.get(k) == v for k, v in param.items())]
    assert len(wanted) == 1, [(r.series_id, r.size_bytes, r.param) for r in wanted]
    return wanted[0]


@pytest.mark.slow
def test_every_kernel_runs_and_everything_is_given_back(measured: tuple[list[Row], dict[str, Any], Fake]) -> None:
    _, conditions, fake = measured
    assert set(fake.kernels) == set(kernels.KERNELS)
    assert not fake.blocks and fake.calls["release"] == 2
    assert set(conditions["seconds"]) == set(ON_GPU)
    assert list(conditions["left_out"]) == ["roofline: gemm by cuBLAS"]  # which tests have none of


@pytest.mark.slow
def test_every_row_can_be_read_and_names_its_machine(measured: tuple[list[Row], dict[str, Any], Fake]) -> None:
    found, conditions, _ = measured
    assert len(found) > 200
    assert {r.gpu for r in found} == {"H200-SXM"} and {r.confidence for r in found} == {"measured"}
    assert all(r.method and rows.unit_of(r.metric) and r.note.startswith("p10=") for r in found)
    assert conditions["gpu"]["driver"] == "580.1" and conditions["load"] == {"pcie_gen": 5}
    assert "power_w" not in conditions["load"]  # the device does not answer that


@pytest.mark.slow
def test_queued_copies_take_what_the_engine_takes(measured: tuple[list[Row], dict[str, Any], Fake]) -> None:
    """Bytes over START and bytes over the rate: neither the host's calls nor the spin kernel is in it."""
    found = measured[0]
    for direction in ("h2d", "d2h"):
        for size in (1024, 8192 * 64, 16 * MiB):
            row = one(found, f"{direction}_pinned_bw", size, "queued")
            assert row.value == pytest.approx(size / (START + size / RATES[direction]), rel=1e-4)
    alone, both = (one(found, "h2d_pinned_bw", MiB // 2, "queued"), one(found, "h2d_pinned_bidir_bw", MiB, "both"))
    assert both.value == pytest.approx(MiB / (START + MiB / RATES["h2d"]), rel=1e-4) and alone.value < both.value


@pytest.mark.slow
def test_what_the_host_waits_for_holds_its_calls(measured: tuple[list[Row], dict[str, Any], Fake]) -> None:
    found = measured[0]
    # A copy and a wait: the device begins after the first call, the host asks meanwhile and is told at the end.
    row = one(found, "h2d_pinned_time_us", 4, "sync")
    assert row.value == pytest.approx((CALL + START + 4 / RATES["h2d"] + READ) / 1e3, rel=1e-3)
    assert one(found, "binding_call_us").value == pytest.approx((100 * CALL + READ) / 100 / 1e3)
    assert one(found, "cumemmap_us", 2 * MiB).value == pytest.approx((2 * CALL + READ) / 1e3)
    assert one(found, "cudamalloc_us", MiB).value == pytest.approx((CALL + MiB // 1000 + READ) / 1e3)
    hit, miss = (one(found, "cudamallocasync_us", MiB, pool=pool) for pool in ("hit", "miss"))
    assert hit.stat == miss.stat == "median of 10"


@pytest.mark.slow
def test_kernels_chains_and_matrices(measured: tuple[list[Row], dict[str, Any], Fake]) -> None:
    found = measured[0]
    chase = one(found, "load_latency_ns", 2048, "chase")
    assert (chase.value, chase.params["cycles"], chase.params["clock_mhz"]) == (STEP, f"{2 * STEP:.1f}", "2000")
    assert one(found, "host_access_latency_ns").value == STEP and one(found, "peer_access_latency_ns").value == STEP
    assert one(found, "null_kernel_us", case="stream").value == START / 1e3
    gemm = one(found, "gemm_gflops", by="own")
    work = 2 * int(gemm.params["n"]) ** 3
    assert gemm.value == pytest.approx(work / (START + work / RATES["kernel"]), rel=1e-4)
    # Footprints from four times the L2 on count as memory.
    assert {r.size_bytes >= 4 * MiB for r in found if r.metric == "hbm_copy_bw"} == {True}
    assert {r.size_bytes < 4 * MiB for r in found if r.metric == "l2_or_dram_copy_bw"} == {True}
    assert [r.params["occupancy_pct"] for r in found if "occupancy" in r.series_id][-1] == "100.0"


@pytest.mark.slow
def test_several_gpus(measured: tuple[list[Row], dict[str, Any], Fake]) -> None:
    found = measured[0]
    assert {r.params["gpu"] for r in found if r.metric == "host_to_all_bw"} == {"0", "1"}
    row = one(found, "p2p_nvlink_bw", MiB, src="0", dst="1")
    assert row.value == pytest.approx(MiB / (START + MiB / RATES["peer"]), rel=1e-4)
    assert any(r.metric == "p2p_staged_bw" for r in found)


@pytest.mark.slow
def test_a_series_has_the_same_name_each_time(measured: tuple[list[Row], dict[str, Any], Fake], tmp_path: Path) -> None:
    again, _ = run(tmp_path / "m.csv", Fake(free=24 * MiB), ["launch"])
    before = {r.series_id for r in measured[0]}
    assert {r.series_id for r in again} <= before
    assert {rows.held_out(r.series_id) for r in measured[0]} == {True, False}


@pytest.mark.slow
def test_wrong_bytes_are_no_measurement(tmp_path: Path) -> None:
    found, conditions = run(tmp_path / "m.csv", Fake(free=24 * MiB, corrupt=True), ["copies", "launch"])
    assert "arrived wrong; nothing of this is trusted" in conditions["left_out"]["copies"]
    assert not [r for r in found if "copies" in r.method or r.metric.startswith("h2d")] and found


@pytest.mark.slow
def test_a_group_that_fails_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(free=24 * MiB)
    monkeypatch.setattr(fake, "cuMemAllocManaged", lambda size, flags: (2, 0), raising=False)
    found, conditions = run(tmp_path / "m.csv", fake, ["launch", "managed"])
    assert "cuMemAllocManaged failed: CUDA_ERROR_OUT_OF_MEMORY" in conditions["left_out"]["managed"]
    assert {r.metric for r in found} >= {"kernel_launch_us", "graph_launch_us"}
    _, conditions = run(tmp_path / "m.csv", Fake(free=24 * MiB, managed=0), ["launch", "managed"])
    assert "no concurrent access" in conditions["left_out"]["managed"]
    assert "there is no second GPU" in run(tmp_path / "m.csv", Fake(free=24 * MiB), ["launch", "peers"])[1]["left_out"]["peers"]


@pytest.mark.parametrize(
    "fake, nvml, ordinal, says",
    [
        (Fake(devices=0), FakeNvml(), 0, "no GPU for this process"),
        (Fake(), FakeNvml(), 1, "there is no GPU 1; there is 0"),
        (Fake(devices=3), FakeNvml(), 7, "there is no GPU 7; there is 0 to 2"),
        (Fake(), FakeNvml(pids=(41, 42)), 0, r"in use by another process \(41, 42\).*--force measures all the same"),
        (Fake(), FakeNvml(busy=63), 0, "is 63 % busy"),
        (Fake(), FakeNvml(mig=1), 0, "is divided by MIG"),
        (Fake(name=b"NVIDIA H100 80GB HBM3 MIG 1g.10gb"), FakeNvml(), 0, "is a MIG slice"),
        (Fake(free=MiB), FakeNvml(), 0, "has 1 MiB of free memory; 8 MiB are needed"),
    ],
)
def test_refusals(tmp_path: Path, fake: Fake, nvml: FakeNvml, ordinal: int, says: str) -> None:
    with pytest.raises(MeasurementError, match=says):
        run(tmp_path / "m.csv", fake, ["launch"], nvml, ordinal=ordinal)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_force_measures_a_busy_card_and_says_so(tmp_path: Path) -> None:
    _, conditions = run(tmp_path / "m.csv", Fake(free=24 * MiB), ["launch"], FakeNvml(pids=(7,)), force=True)
    assert "in use by another process (7)" in conditions["forced"]
    assert device.room(100 * MiB, shared=True) == 50 * MiB < device.room(100 * MiB, shared=False)


@pytest.mark.slow
def test_little_memory_makes_sizes_smaller_and_says_so(measured: tuple[list[Row], dict[str, Any], Fake]) -> None:
    found, conditions, _ = measured
    assert any("for lack of free memory" in line for line in conditions["shrunk"])
    assert max(r.size_bytes or 0 for r in found) <= 24 * MiB


@pytest.mark.slow
def test_without_a_gpu_nothing_begins_unless_the_host_alone_is_asked_for(tmp_path: Path) -> None:
    def load() -> Any:
        raise cuda.NoGpu("there is no driver")

    said: list[str] = []
    with pytest.raises(cuda.NoGpu, match=r"there is no driver \(--only host --only disk measure the host alone\)"):
        measure(tmp_path / "m.csv", [], quick=True, folder=tmp_path, load=load, say=said.append)
    assert not said and not list(tmp_path.iterdir())
    measure(tmp_path / "m.csv", ["host", "disk"], quick=True, folder=tmp_path, load=load, say=said.append)
    found = rows.read(tmp_path / "m.csv")
    assert {r.metric for r in found} == {"host_copy_bw", "nvme_read_bw", "nvme_write_bw", "nvme_read_latency_us"}
    assert {r.gpu for r in found} == {rows.HOST} and all(r.value > 0 for r in found)
    assert [p.name for p in tmp_path.iterdir()] == ["m.csv"]
    with pytest.raises(MeasurementError, match="there is no driver"):
        measure(tmp_path / "n.csv", ["copies", "host"], load=load)


def test_a_card_that_is_refused_is_not_passed_over(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="in use by another process"):
        run(tmp_path / "m.csv", Fake(), [], FakeNvml(pids=(3,)))


@pytest.mark.slow
def test_what_was_measured_outlives_a_driver_that_breaks_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(free=24 * MiB)

    def broken(size: int, flags: int) -> tuple[int, int]:
        monkeypatch.setattr(fake, "cuCtxSynchronize", lambda: (700,), raising=False)
        return 700, 0

    monkeypatch.setattr(fake, "cuMemAllocManaged", broken, raising=False)
    found, conditions = run(tmp_path / "m.csv", fake, ["launch", "managed"])
    assert found and "cuMemAllocManaged failed" in conditions["left_out"]["managed"]


def test_what_is_asked_wrongly(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match=r"'copys' is not a group of measurements \(did you mean 'copies'\?\)"):
        measure(tmp_path / "m.csv", ["copys"])
    with pytest.raises(MeasurementError, match="folder to write to does not exist"):
        measure(tmp_path / "no" / "m.csv", ["host"])
    with pytest.raises(MeasurementError, match="whose disk"):
        measure(tmp_path / "m.csv", ["disk"], folder=tmp_path / "no")


@pytest.mark.parametrize(
    "version, toolkit, says",
    [
        (None, 12, "there is no NVIDIA driver on this machine"),
        (11080, 12, "the driver is of CUDA 11.8, older than CUDA 12"),
        (12040, 13, "the driver is of CUDA 12.4, but the installed packages are of CUDA 13.*cuda-bindings>=12.8,<13"),
        (13000, 12, None),
        (12090, 12, None),
    ],
)
def test_packages_fit_the_driver(monkeypatch: pytest.MonkeyPatch, version: int | None, toolkit: int, says: str | None) -> None:
    api, nvrtc = types.ModuleType("cuda.bindings.driver"), types.ModuleType("cuda.bindings.nvrtc")
    nvrtc.nvrtcVersion = lambda: (0, toolkit, 0)  # type: ignore[attr-defined]
    for name, module in {"cuda": api, "cuda.bindings": api, api.__name__: api, nvrtc.__name__: nvrtc}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(cuda, "driver_version", lambda: version)
    if says is None:
        assert cuda.load().api is api
        return
    with pytest.raises(MeasurementError, match=says):
        cuda.load()


def test_packages_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(MeasurementError, match=r"CUDA 13\.0, but cuda-bindings is not installed \(pip install 'cuda-b.*>=13'"):
        cuda.load(13000)


@pytest.mark.hand_worked
def test_summary_by_hand() -> None:
    found = summary([10, 11, 9, 10, 50])
    # Deviations from 10 are 0 1 1 0 40, their median 1: beyond 5 * 1.4826 only the 40.
    assert (found.median, found.count, found.outliers, found.stat) == (10, 5, 1, "median of 5")
    assert found.p10 == pytest.approx(9.4) and found.p90 == pytest.approx(11 + 0.6 * 39)
    assert summary([5, 5, 5, 5.04, 5.06]).outliers == 1  # equal repeats: what is within 1 % is none
    with pytest.raises(ValueError):
        summary([])


def test_a_group_ends_when_its_time_is_used_up() -> None:
    now = [0]
    recorder = Recorder("A", "node", "here", clock=lambda: now[0])
    with recorder.group("copies", 1.0):
        assert recorder.time_for("first")
        now[0] = 10**9
        assert not recorder.time_for("second")
    assert recorder.left_out == {"copies: second": "the group's time was used up"} and recorder.seconds == {"copies": 1.0}
    assert recorder.time_for("outside of any group")


def test_repeats_fit_into_the_time() -> None:
    now = [0]

    def once() -> float:
        now[0] += 10_000_000
        return 1.0

    recorder = Recorder("A", "node", "here", clock=lambda: now[0])
    assert len(recorder.repeat(once, seconds=0.2)) == 20  # of 10 ms
    assert len(recorder.repeat(once, seconds=0.01)) == 5  # at least
    assert len(recorder.repeat(once, seconds=9)) == 50  # at most
    recorder.quick = True
    assert len(recorder.repeat(once, seconds=0.2)) == 4 and len(recorder.repeat(once, seconds=0.01)) == 3


def test_rates_and_outliers_of_rows() -> None:
    recorder = Recorder("A", "node", "here")
    recorder.add("h2d_pinned_bw", [100.0, 200.0, 400.0], method="m", size=4, work=400, param={"gpu": 0})
    assert (recorder.rows[0].value, recorder.rows[0].unit, recorder.rows[0].param) == (2.0, "GB/s", "gpu=0")
    recorder.add("cudafree_us", [1000.0] * 8 + [9000.0], method="m")
    assert list(recorder.outliers().values()) == ["1 of 9"]
    with pytest.raises(MeasurementError, match="took no time"):
        recorder.add("cudafree_us", [0.0, 1.0], method="m")


def test_sizes() -> None:
    assert sizes(4, 16) == [4, 8, 16] and sizes(4, 20) == [4, 8, 16, 20] and sizes(4, 4) == [4] and sizes(8, 4) == [4]


def test_a_chain_visits_every_line_once() -> None:
    chain = latency.Chain(1 << 20, 64 * 128)
    links = dict(zip(range(64), ((chain.memory[::16] - (1 << 20)) // 128).tolist(), strict=True))
    at, seen = (chain.at(0) - (1 << 20)) // 128, []
    for step in range(64):
        assert chain.at(step) == (1 << 20) + at * 128
        seen.append(at)
        at = links[at]
    assert sorted(seen) == list(range(64)) and at == seen[0]


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA GeForce RTX 4050 Laptop GPU", "RTX-4050-Laptop"),
        ("NVIDIA H200", "H200-SXM"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"),
        ("NVIDIA GH200 480GB", "GH200-96GB"),
    ],
)
def test_names_are_those_of_other_rows(name: str, wanted: str) -> None:
    assert device.row_name(name) == wanted


def test_the_groups_together_keep_the_promise() -> None:
    total = sum(seconds for seconds, _ in GROUPS.values())
    assert total < 480 and total / QUICK < 60


def test_what_kernel_times_need_is_a_set_of_groups_within_three_minutes() -> None:
    """Their limits together, cuBLAS within them; a name that is neither is refused."""
    names = groups_of(["kernel_times"])
    assert names == ["local", "launch", "roofline"] and groups_of(["roofline", "kernel_times"]) == names
    assert sum(GROUPS[name][0] for name in names) <= 180
    assert groups_of([]) == list(GROUPS)
    with pytest.raises(MeasurementError, match="'kernels' is not a group of measurements"):
        groups_of(["kernels"])
    assert [line["group"] for line in rehearse(quick=True, only=["kernel_times"])] == [*names, "beginning"]


@pytest.mark.slow
def test_a_rehearsal_of_the_quick_set_stays_within_a_minute() -> None:
    """A driver that only lets time pass: all groups come to an end, after the device's time and the host's work."""
    found = {row["group"]: row for row in rehearse(quick=True)}
    assert set(found) == {*GROUPS, "beginning"}
    assert all(found[name]["seconds"] > 0 for name in (*ON_GPU, "beginning") if name != "peers")
    assert found["peers"]["seconds"] == 0 and found["disk"]["seconds"] == found["disk"]["limit"] == 5.0
    assert sum(row["seconds"] for row in found.values()) < 60
    # 1,000 pinned copies of 55 MB at 55 bytes/ns would take a second: what waits moves the clock ahead by so much.
    driver = Driver()
    api, before = Cuda(driver, driver), driver.clock()
    stream = api.cuStreamCreate(1)
    for _ in range(1000):
        api.cuMemcpyHtoDAsync(0, 0, 55_000_000, stream)
    api.cuStreamSynchronize(stream)
    assert 1e9 < driver.clock() - before < 1.5e9


@pytest.mark.slow
def test_the_bundle_runs_without_gpusim(tmp_path: Path) -> None:
    """As one file, where the packages of gpusim are absent (they raise); numpy is all that it needs."""
    file, again = tmp_path / "gpusim-measure.pyz", tmp_path / "again.pyz"
    assert bundle(file) == bundle(again) and file.read_bytes() == again.read_bytes()
    absent = tmp_path / "absent"
    absent.mkdir()
    for name in ("simpy", "pydantic", "yaml", "numba", "typer", "matplotlib", "rich", "cuda", "pynvml"):
        (absent / f"{name}.py").write_text(f"raise ImportError('{name}')")

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command, env = [sys.executable, str(file), *arguments], {"PYTHONPATH": str(absent)}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)

    done = call("-o", "m.csv", "--quick", "--only", "host")
    assert done.returncode == 0, done.stderr
    assert {r.metric for r in rows.read(tmp_path / "m.csv")} == {"host_copy_bw"}
    done = call("-o", "n.csv", "--only", "copies")
    assert done.returncode == 2 and done.stderr.startswith("gpusim-measure: ") and done.stderr.count("\n") == 1
    assert call("-o", "n.csv", "--only", "nothing").returncode == 2 and not (tmp_path / "n.csv").exists()


@pytest.mark.parametrize("capability", [80, 90, 100])
def test_kernels_compile(capability: int) -> None:
    api = pytest.importorskip("cuda.bindings.nvrtc")
    compiler = Cuda(None, api)
    try:
        known = compiler.nvrtcGetSupportedArchs()
    except RuntimeError:
        pytest.skip("NVRTC is not installed")
    if capability not in known:
        pytest.skip(f"this NVRTC knows no sm_{capability}")
    image = kernels.compile_for(compiler, capability)
    assert image.startswith(b"\x7fELF") and all(name.encode() in image for name in kernels.KERNELS)


def test_patterns_differ_by_place_and_seed() -> None:
    from gpusim.calibrate.measure.gpu import pattern

    assert len(np.unique(pattern(4096))) == 1024 and (pattern(64, 1) != pattern(64, 2)).all()

"""Are other programs' outputs read as what they say?  The layouts are theirs, the numbers those of their published results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusim.base.errors import MeasurementError
from gpusim.calibrate import rows as ours
from gpusim.calibrate.readers import read
from gpusim.calibrate.rows import Row
from gpusim.cli.app import app

NVBANDWIDTH = """\
nvbandwidth Version: v0.5
Built from Git version: v0.5

CUDA Runtime Version: 12040
CUDA Driver Version: 12040
Driver Version: 550.54.15

Device 0: NVIDIA H100 80GB HBM3
Device 1: NVIDIA H100 80GB HBM3

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.37     55.36

SUM host_to_device_memcpy_ce 110.73

Running device_to_device_memcpy_write_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    397.44
 1    397.46       N/A

SUM device_to_device_memcpy_write_ce 794.90
"""
STREAM = """\
blockSize   threads       %occ  |                init       read       scale     triad       1pt        3pt
       32        1728    0.8 %  |  GB/s:          79         20         39        54         36         36
     1024      221184  100.0 %  |  GB/s:        1539       1500       1382      1358       1371       1368
"""
SMALL = "4096  64kB     71     81     77  \n89699  1401kB     358    896    842  \n"
L2 = """\
     data set   exec time     spread       Eff. bw
       512 kB      1536 kB         4ms       1.0%   13526.6 GB/s        0 GB/s      0 GB/s
"""
L2_STREAM = """\
 384    1    41472     383  18.8%     |  GB/s:  788  780  770  1454  1450  1440  2596  2596  2596  1101  1100  1099
1024    2   221184     383 100.0%     |  GB/s: 3076 3076 3070  2769  2769  2766  5000  4999  4998  1426  1426  1424
1024    2   221184     639 100.0%     |  GB/s: 3100 3097 3090  3103  3100  3098  5000  4999  4998  1536  1535  1534
 384    1    41472     895  18.8%     |  GB/s:  788  780  770  1454  1450  1440  2596  2596  2596  1101  1100  1099
"""
NEWER_STREAM = """\
block smBlocks   threads    occ%   |                init       read       scale     triad       3pt        5pt
  16      2272       1      1%     |  GB/s:          81         41         78        147         73         66
"""
NEWER_LATENCY = "clock: 2490\n  1000000  2490   2   13.7   34.0 33.9 34.0 35.0\n  1000000  2490   2.1   13.7   34.0 34.0\n"
MEMCPY = "         1kB     0.03ms    0.03GB/s   0.68%\n   1048576kB    86.91ms   12.35GB/s   0.00%\n"
LATENCY = "clock: 1755 1755\n  1000000  1755        1     19.5    34.2\n"
ROOFLINE = "0 1056 blocks     0 its      0.250 Fl/B       3759 GB/s       940 GF/s   1980 Mhz   572 W   57°C\n"


def file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def said(rows: list[Row]) -> list[tuple[str, int | None, str, float]]:
    return [(r.metric, r.size_bytes, r.param, r.value) for r in rows]


def test_the_columns_of_newer_versions(tmp_path: Path) -> None:
    """Blocks behind the threads, stencils named by their points; cycles of single repeats behind their median."""
    rows = read(file(tmp_path, "l40.txt", NEWER_STREAM), "L40")
    few = "threads=2272;occupancy_pct=1"
    assert said(rows)[:2] == [("hbm_write_bw", 2 << 30, few, 81), ("hbm_read_bw", 2 << 30, few, 41)]
    assert [r.metric for r in rows[4:]] == ["hbm_stencil3_bw", "hbm_stencil5_bw"]
    said_of = said(read(file(tmp_path, "lat.txt", NEWER_LATENCY), "L40"))
    assert said_of == [("load_latency_ns", size, "cycles=34;clock_mhz=2490", 13.65) for size in (2048, 2150)]


def test_streams_in_l2_count_where_the_device_is_full(tmp_path: Path) -> None:
    """Of 41,472 threads nothing is said, be it the only line of a size; reads and writes go over one array of two, and the
    middle of three values counts."""
    rows = read(file(tmp_path, "a100.txt", L2_STREAM), "A100-SXM4-80GB")
    half, whole = 383 * 512, 383 * 1024
    assert said(rows)[:3] == [
        ("l2_or_dram_read_bw", half, "threads=221184", 3076.0), ("l2_or_dram_scale_bw", whole, "threads=221184", 2769.0),
        ("l2_or_dram_write_bw", half, "threads=221184", 1426.0),
    ]  # fmt: skip
    assert [r.value for r in rows[3:]] == [3097, 3100, 1535]


def test_nvbandwidth_text(tmp_path: Path) -> None:
    rows = read(file(tmp_path, "node.txt", NVBANDWIDTH))
    size = 512 * 2**20
    assert said(rows) == [
        ("h2d_pinned_bw", size, "gpu=0", 55.37), ("h2d_pinned_bw", size, "gpu=1", 55.36),
        ("p2p_nvlink_bw", size, "src=0;dst=1", 397.44), ("p2p_nvlink_bw", size, "src=1;dst=0", 397.46),
    ]  # fmt: skip
    first = rows[0]
    assert (first.gpu, first.system) == ("H100-SXM-80GB", "2x H100-SXM-80GB, driver 550.54.15")
    assert (first.series_id, first.method) == ("node/h2d_pinned_bw", "nvbandwidth v0.5 host_to_device_memcpy_ce")
    assert read(file(tmp_path, "node.txt", NVBANDWIDTH), "H100-NVL")[0].gpu == "H100-NVL"


def test_nvbandwidth_json(tmp_path: Path) -> None:
    cases = [
        {"name": "device_local_copy", "status": "Passed", "bandwidth_matrix": [["760.777", "761.047"]]},
        {"name": "all_to_one_write_ce", "status": "Waived"},
    ]
    devices = [f"{n}: NVIDIA GeForce RTX 5090 (00000000:0{n}:00): (host)" for n in (0, 1)]
    data = {"GPU Device list": devices, "Driver Version": "570.86.16", "testcases": cases, "version": "v0.8"}
    rows = read(file(tmp_path, "r.json", json.dumps({"nvbandwidth": data}, indent=1)))
    assert said(rows) == [("hbm_copy_once_bw", 2**29, f"gpu={n}", v) for n, v in ((0, 760.777), (1, 761.047))]
    assert (rows[0].gpu, rows[0].unit) == ("RTX-5090", "GB/s")
    cases[0]["bandwidth_matrix"] = [["nan"]]
    with pytest.raises(MeasurementError, match="'nan' in the matrix of device_local_copy"):
        read(file(tmp_path, "r.json", json.dumps({"nvbandwidth": data})))
    devices[1] = "1: NVIDIA A40"
    with pytest.raises(MeasurementError, match="2 devices: NVIDIA GeForce RTX 5090, NVIDIA A40"):
        read(file(tmp_path, "r.json", json.dumps({"nvbandwidth": data})))


def test_gpu_benches(tmp_path: Path) -> None:
    stream = read(file(tmp_path, "a100.txt", STREAM), "A100-SXM4-40GB")
    assert said(stream)[1] == ("hbm_read_bw", 2**31, "threads=1728;occupancy_pct=0.8", 20.0)
    assert [r.value for r in stream if r.metric == "hbm_scale_bw"] == [39.0, 1382.0]
    assert len(stream) == 12
    best = read(file(tmp_path, "a40_pt.txt", SMALL), "A40")
    mode = "mode=persistent_atomic"
    assert said(best) == [("queued_kernel_scale_bw", 65536, mode, 81.0), ("queued_kernel_scale_bw", 1435184, mode, 896.0)]
    assert said(read(file(tmp_path, "h200.txt", L2), "x")) == [("l2_or_dram_read_bw", 1572864, "", 13526.6)]
    assert said(read(file(tmp_path, "v100.txt", MEMCPY), "x"))[1] == ("h2d_pinned_bw", 2**30, "", 12.35)
    assert said(read(file(tmp_path, "h100.txt", LATENCY), "x")) == [
        ("load_latency_ns", 1024, "cycles=34.2;clock_mhz=1755", 19.49)
    ]
    assert said(read(file(tmp_path, "roof.txt", ROOFLINE), "x")) == [
        ("fp32_fma_gflops", None, "flop_per_byte=0.250;gbps=3759;clock_mhz=1980", 940.0)
    ]


def test_they_must_say_whose_they_are(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="is gpu-stream of gpu-benches, which does not say its GPU"):
        read(file(tmp_path, "a100.txt", STREAM))


def test_our_own_rows_pass_through(tmp_path: Path) -> None:
    rows = read(file(tmp_path, "r.txt", STREAM), "A100-SXM4-40GB")
    ours.write(tmp_path / "rows.csv", rows)
    assert read(tmp_path / "rows.csv") == rows


def run(*words: object) -> int:
    """The exit code of the command line."""
    with pytest.raises(SystemExit) as end:
        app([str(word) for word in words])
    return int(end.value.code or 0)


@pytest.mark.slow
def test_the_verbs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A text becomes a profile, and the profile is compared with the text."""
    rows = file(tmp_path, "a100.txt", STREAM * 2)
    profile = tmp_path / "mine.yaml"
    assert run("calibrate", "fit", rows, "--gpu", "A100-SXM4-40GB", "-o", profile) == 0
    assert "memory.write" in capsys.readouterr().out
    assert run("validate", profile) == 0
    capsys.readouterr()
    assert run("calibrate", "compare", rows, "--gpu", "A100-SXM4-40GB", "--on", profile, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    write = next(s for s in found["series"] if s["series"] == "a100/hbm_write_bw")
    assert [round(p["simulated"]) for p in write["points"]] == [78, 1539, 78, 1539], "79 where few threads store"
    assert write["not_simulated"] == {}


def test_mistakes_are_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = read(file(tmp_path, "a100.txt", STREAM), "A100-SXM4-40GB")
    other = read(file(tmp_path, "b.txt", STREAM), "My-GPU")
    ours.write(tmp_path / "two.csv", [*rows, *other])
    ours.write(tmp_path / "mine.csv", other)
    for words, sentence in (
        (("fit", tmp_path / "two.csv"), "holds rows of 2 devices"),
        (("fit", tmp_path / "mine.csv"), "the catalogue has no 'My-GPU' (say with --base"),
        (("compare", tmp_path / "mine.csv", "--on", "t4"), "the rows are of 'My-GPU', but the profile 't4' is of T4"),
        (("compare", tmp_path / "none.csv", "--on", "t4"), "cannot be read"),
    ):
        assert run("calibrate", *words) == 2
        assert sentence in capsys.readouterr().err

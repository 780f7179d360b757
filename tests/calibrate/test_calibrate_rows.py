"""Measurement rows: what is read is what was written, bad rows are named, and the split is fixed."""

import hashlib
import json
from pathlib import Path

import pytest

from gpusim.base.errors import MeasurementError
from gpusim.calibrate import rows
from gpusim.calibrate.rows import Row

HEADER = ",".join(rows.COLUMNS)
GOOD = 's/h2d_pinned_bw,H200-SXM,node,h2d_pinned_bw,1024,gpu=0;full,1.5,GB/s,median of 3,"a, b",here,seen,'


def row(**changes: object) -> Row:
    values = {"series_id": "s", "gpu": "A", "system": "node", "metric": "h2d_pinned_bw", "size_bytes": None, "param": ""}
    return Row(**{**values, "value": 2.5, "unit": "GB/s", "stat": "", "method": "", "source": "", **changes})  # type: ignore


def write(folder: Path, *lines: str) -> Path:
    path = folder / "m.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_row_of_csv(tmp_path: Path) -> None:
    (got,) = rows.read(write(tmp_path, HEADER, GOOD))
    assert (got.size_bytes, got.value, got.method) == (1024, 1.5, "a, b")
    assert got.params == {"gpu": "0", "full": "yes"}
    assert got.where.endswith("m.csv:2")


@pytest.mark.parametrize("name", ["m.csv", "m.json"])
def test_what_is_read_is_what_was_written(tmp_path: Path, name: str) -> None:
    wanted = [row(), row(size_bytes=2**40, note='"two"\nlines\u2028x', value=0.1 + 0.2), row(gpu=rows.HOST, param="a=1;b=2")]
    conditions = {"driver": "580.1", "clocks": [1, 2], "note": "x: y"}
    rows.write(tmp_path / name, wanted, conditions)
    assert rows.load(tmp_path / name) == (wanted, conditions)
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("1.5", "nan", "m.csv:4: value 'nan' of h2d_pinned_bw cannot be measured"),
        ("1.5", "fast", "m.csv:4: value 'fast' is not a number"),
        ("1.5", "-1", "cannot be measured"),
        ("1.5", "", "'value' is empty"),
        ("GB/s", "MB/s", "m.csv:4: h2d_pinned_bw is in GB/s, but the unit here is 'MB/s'"),
        ("1024", "1e3", "size_bytes '1e3' is not a whole number"),
        ("H200-SXM", "", "'gpu' is empty"),
        ("here", "here,there", "has 14 cells under 13 columns"),
        ("h2d_pinned_bw,1024", "speed,1024", None),
    ],
)
def test_a_bad_row_is_named_with_its_line(tmp_path: Path, old: str, new: str, says: str | None) -> None:
    path = write(tmp_path, HEADER, GOOD, GOOD, GOOD.replace(old, new))
    if says is None:  # an ending that says no unit: any known unit will do
        assert rows.read(path)[2].metric == "speed"
        return
    with pytest.raises(MeasurementError) as error:
        rows.read(path)
    assert says in str(error.value)


def test_lines_count_comments_and_cells_of_several_lines(tmp_path: Path) -> None:
    long = GOOD.replace("a, b", "a\nb")
    path = write(tmp_path, "# driver: 580", HEADER, long, GOOD, GOOD.replace("1.5", "inf"))
    with pytest.raises(MeasurementError, match=r"m\.csv:6: value 'inf'"):
        rows.read(path)


def test_what_is_no_table_of_measurements(tmp_path: Path) -> None:
    texts = [("", "is empty"), ("{", "is not JSON"), ('{"rows": 1}', "lacks the list"), ("a,b", "'series_id'")]
    for text, says in texts:
        path = tmp_path / "x"
        path.write_text(text)
        with pytest.raises(MeasurementError, match=says):
            rows.read(path)
    (tmp_path / "x").write_bytes(b"\x80\x81")
    with pytest.raises(MeasurementError, match="not text"):
        rows.read(tmp_path / "x")
    with pytest.raises(MeasurementError, match="cannot be read"):
        rows.read(tmp_path / "y")
    (tmp_path / "x").write_text(json.dumps({"rows": [{"gpu": "A"}]}))
    with pytest.raises(MeasurementError, match="row 1: lacks the column 'series_id'"):
        rows.read(tmp_path / "x")


def test_one_device_of_several() -> None:
    mixed = [row(), row(gpu="B"), row(gpu=rows.HOST)]
    with pytest.raises(MeasurementError, match="2 devices: A, B"):
        rows.of_gpu(mixed)
    assert rows.of_gpu(mixed, "B") == mixed[1:]
    assert rows.of_gpu([mixed[0], mixed[2]]) == [mixed[0], mixed[2]]
    with pytest.raises(MeasurementError, match="no rows of 'C'"):
        rows.of_gpu(mixed, "C")


def test_the_split_is_the_hash_of_the_name() -> None:
    names = [f"series-{i}" for i in range(3000)]
    held = [n for n in names if rows.held_out(n)]
    assert 900 < len(held) < 1100
    assert all(int.from_bytes(hashlib.sha256(n.encode()).digest(), "big") % 3 == 0 for n in held)

"""Are launch configurations kept with a trace, refused where they are none, and dropped where they are true no more?"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim.base.errors import TraceError
from gpusim.trace.build import TraceBuilder
from gpusim.trace.edit import Edit
from gpusim.trace.files import load_trace, save_trace
from gpusim.trace.launches import LaunchConfiguration, launch_text, parse_launch
from gpusim.trace.trace import Trace, recorded_columns, recorded_tables


def program(*launches: str | None) -> Trace:
    build = TraceBuilder("launched")
    for launch in launches:
        build.op("aten.add.Tensor", [], [], read_bytes=8, launch=launch)
    return build.finish()


def test_a_launch_is_a_text_of_numbers() -> None:
    assert launch_text([108, 2, 1], [256, 1, 1], 40, 49152) == "grid=108x2x1 block=256x1x1 registers=40 shared=49152"
    assert parse_launch("grid=108x2x1 block=256x1x1 registers=40 shared=49152") == LaunchConfiguration(216, 256, 40, 49152)
    assert launch_text([7], [32]) == "grid=7 block=32"
    assert parse_launch("grid=7 resident=2") == LaunchConfiguration(7, 0, resident=2)


@pytest.mark.parametrize(
    "text", ["grid=7", "grid=0 block=32", "grid=1x1x1x1 block=1", "grid=7 block=32 block=32", "grid=7 block=32 warps=3", "7 32"]
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(TraceError, match="launch configuration"):
        program(text)


def test_a_file_keeps_launches_and_a_trace_without_them_is_as_before(tmp_path: Path) -> None:
    trace = program("grid=7 block=32", None, "grid=7 block=32")
    save_trace(trace, tmp_path / "t.npz")
    read = load_trace(tmp_path / "t.npz")
    assert read == trace and read.launch.tolist() == [0, -1, 0] and read.launches == ("grid=7 block=32",)
    plain = program(None)
    assert "launch" not in dict(recorded_columns(plain)) and "launches" not in dict(recorded_tables(plain))
    save_trace(plain, tmp_path / "p.npz")
    assert load_trace(tmp_path / "p.npz").launch.tolist() == [-1]


def test_other_work_is_launched_otherwise() -> None:
    edit = Edit(program("grid=7 block=32", "grid=8 block=32"))
    edit["read_bytes"][0] *= 2
    changed = edit.finish()
    assert [changed.launches[i] if i >= 0 else "" for i in changed.launch] == ["", "grid=8 block=32"]

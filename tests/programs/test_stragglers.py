"""Are slow ranks read as they were written, in words and in files of clock rates, and is what is none told at its line?"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim.base.errors import GpusimError, TraceError
from gpusim.programs.ranks.stragglers import by_rank, parse_stragglers, read_clocks, stragglers_text

MS = 10**6


@pytest.mark.parametrize(
    ("text", "paces", "shortest"),
    [
        ("3=1.1", {3: ((0, 1.1),)}, "3=1.1"),
        ("3=1.1@2ms..5ms", {3: ((0, 1.0), (2 * MS, 1.1), (5 * MS, 1.0))}, "3=1.1@2ms..5ms"),
        ("3=1.1@2ms.., 0=2", {3: ((0, 1.0), (2 * MS, 1.1)), 0: ((0, 2.0),)}, "0=2 3=1.1@2ms.."),
        ("3=2@..1ms 3=1.5@1ms..2000us", {3: ((0, 2.0), (MS, 1.5), (2 * MS, 1.0))}, "3=2@..1ms 3=1.5@1ms..2ms"),
        ("none", {}, "none"),
    ],
)
def test_stragglers_are_read_and_written(text: str, paces: object, shortest: str) -> None:
    assert parse_stragglers(text) == paces and stragglers_text(parse_stragglers(text)) == shortest
    assert parse_stragglers(shortest) == paces


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3=1.1 3=1.2", "rank 3 stands there twice"), ("3=1.1@2ms..5ms 3=1.2@4ms..6ms", "rank 3 stands there twice"),
        ("3=1.1@2ms.. 3=2@9ms..10ms", "rank 3 stands there twice"), ("3=2@5ms..2ms", "'3=2@5ms..2ms' ends before it begins"),
        ("3=1.1@2..5", "'3=1.1@2..5' is no straggler"), ("3=0", "kernels of rank 3 cannot take 0 times as long"),
        ("", "no straggler is named"),
    ],
)  # fmt: skip
def test_what_is_no_straggler_is_refused(text: str, said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        parse_stragglers(text)


def clocks(folder: Path, text: str) -> Path:
    path = folder / "clocks.csv"
    path.write_text(text)
    return path


def test_clock_rates_are_read_by_rank_and_by_gpu(tmp_path: Path) -> None:
    """At half the rate kernels take twice as long; what does not change is left out."""
    read = read_clocks(clocks(tmp_path, "time_ms,1,gpu5\n1,0.5,1\n2,0.5,1\n\n3.5,1,0.8\n"))
    assert read == {"1": ((0, 1.0), (MS, 2.0), (3_500_000, 1.0)), "gpu5": ((0, 1.0), (3_500_000, 1.25))}
    known = [f"gpu{i}" for i in range(6)]
    assert by_rank(read, ["gpu4", "gpu3", "gpu5"], known) == {1: read["1"], 2: read["gpu5"]}
    assert by_rank(read, ["gpu4", "gpu3"], known) == {1: read["1"]}
    for gpus, said in ((["gpu5"], "there is no rank 1: 1 are counted from 0"),
                       (["gpu0", "gpu5"], "rank 1 stands there twice: as 1 and as gpu5")):  # fmt: skip
        with pytest.raises(GpusimError, match=said):
            by_rank(read, gpus, known)
    with pytest.raises(GpusimError, match="the machine has no GPU 'gpu5'"):
        by_rank(read, ["gpu0", "gpu1"], known[:5])


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", "", "is empty"), ("time_ms,1\n", "", "has no rows"),
        ("time,1\n0,1\n", ":1", "the header of clock rates is a time"),
        ("time_ms,1,1\n0,1,1\n", ":1", "each rank or GPU once"), ("time_ms,1\n0,1,1\n", ":2", "3 numbers for 2 columns"),
        ("time_ms,1\n0,fast\n", ":2", "'0,fast' are no numbers"), ("time_ms,1\n0,nan\n", ":2", "the rate nan of 1 is no share"),
        ("time_ms,1\n1,1\n\n1,0.9\n", ":4", "time 1 is not after the one before"),
        ("time_ms,1\n0,1410\n", ":2", "the rate 1410 of 1 is no share of the usual one"),
    ],
)  # fmt: skip
def test_what_is_no_clock_rate_is_told_at_its_line(text: str, line: str, said: str, tmp_path: Path) -> None:
    path = clocks(tmp_path, text)
    with pytest.raises(TraceError, match=said) as error:
        read_clocks(path)
    assert error.value.where == f"{path}{line}"

"""Loads of models by hand: chunks that are read, and copied on while others are read; a file that is mapped."""

from __future__ import annotations

import pytest

from gpusim.base.errors import GpusimError
from gpusim.machine.serving.loading import Loader, LoadTimes, LoadWays, load_times, loader_of

pytestmark = [pytest.mark.fast, pytest.mark.hand_worked]


def pipelined(size: int, threads: int = 1, chunk: int = 100, **ways: float) -> LoadTimes:
    given = {"disk": 1.0, "latency": 0.0, "link": 2.0, "call": 0.0, "gpus": 1} | ways
    return load_times(Loader("pipelined", chunk, threads), LoadWays(**given), size)  # type: ignore[arg-type]


def test_one_chunk_is_read_and_then_copied() -> None:
    assert pipelined(100) == LoadTimes(100, 150, 50)


def test_copies_hide_behind_reads_but_for_the_last() -> None:
    """Reads end at 100, 200, 300, 350; the last chunk has 50 bytes."""
    assert pipelined(350) == LoadTimes(350, 375, 175)


def test_reads_hide_behind_copies_where_the_link_is_slower() -> None:
    """A link of 1/2 byte/ns: copies begin at 100 and take 200 each."""
    assert pipelined(300, link=0.5) == LoadTimes(300, 700, 600)


def test_one_thread_waits_for_each_read() -> None:
    """20 ns of latency before each 100 bytes: 120, 240, 360; the last copy until 410."""
    assert pipelined(300, latency=20) == LoadTimes(360, 410, 150)


def test_latencies_of_threads_overlap() -> None:
    """Two threads: reads end at 120 and 220; the first thread asks again at 120, and its latency is over before 220."""
    assert pipelined(300, threads=2, latency=20) == LoadTimes(320, 370, 150)
    assert pipelined(300, threads=2, latency=150).read == 250 + 100 + 150, "250, 350; then the first thread's: 250 + 150 + 100"


def test_each_copy_is_a_call() -> None:
    """Chunks are there at 100 and 200; a copy takes 10 + 50."""
    assert pipelined(200, call=10) == LoadTimes(200, 260, 120)


def test_gpus_take_chunks_in_turn() -> None:
    """A link of 1/2: chunks come at 100, 200, 300, 400; each GPU has two, from 100 and 300, from 200 and 400."""
    assert pipelined(400, link=0.5, gpus=2) == LoadTimes(400, 600, 400)


def test_a_mapped_file_is_read_window_by_window_and_copied_afterwards() -> None:
    """A window of 10 bytes takes 5 + 10: 1,500 for 1,000 bytes; then 2 bytes/ns.  Without latency the disk's rate decides."""
    ways = LoadWays(1.0, 5.0, 2.0, 99.0)
    assert load_times(Loader("safetensors", readahead=10), ways, 1000) == LoadTimes(1500, 2000, 500)
    assert load_times(Loader("safetensors", readahead=10), LoadWays(1.0, 0.0, 2.0, 0.0), 1000) == LoadTimes(1000, 1500, 500)
    two = load_times(Loader("safetensors", readahead=10), LoadWays(1.0, 5.0, 2.0, 0.0, gpus=2), 1000)
    assert two == LoadTimes(1250, 1500, 250), "each reads 500 bytes at half the disk's rate: 5 + 20 a window"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("mapped", "there is no loader 'mapped'"), ("pipelined(chunks=4)", "has no 'chunks'"),
        ("pipelined(threads=0)", "cannot have threads=0"), ("pipelined(chunk=0 B)", "cannot have chunk=0 B"),
        ("safetensors(threads=2)", "has no 'threads'"), ("pipelined(chunk=16)", "has no unit"),
    ],
)  # fmt: skip
def test_words_that_are_no_loader(word: str, said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        loader_of(word)


def test_chunks_too_small_to_follow() -> None:
    with pytest.raises(GpusimError, match="more than 1,000,000 chunks"):
        pipelined(10**9, chunk=1)

"""Is a log of RMM's logging adaptor replayed as it was recorded, whatever is allowed in it?"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import simpy

from gpusim.base.errors import TraceError
from gpusim.engine.run.simulate import Simulation, simulate
from gpusim.machine import catalogue
from gpusim.policies.trials import allocator_requests as requests
from gpusim.programs.recordings import import_trace
from gpusim.trace.trace import ALLOC, FREE, OOM, Trace

pytestmark = pytest.mark.oracle

HEAD = "Thread,Time,Action,Pointer,Size,Stream\n"


def log(tmp_path: Path, *lines: str, head: str = HEAD) -> Trace:
    """Lines without thread and time: action, pointer, size, stream."""
    path = tmp_path / "rmm.dev0.csv"
    rows = [line if line.count(",") > 3 else f"7,00:00:01.000000,{line}" for line in lines]
    path.write_text(head + "\n".join(rows))
    return import_trace(path)


def events(trace: Trace) -> list[tuple[int, int, int]]:
    return list(zip(trace.kind.tolist(), trace.arg.tolist(), trace.stream.tolist(), strict=True))


def test_a_recycled_pointer_is_freed_with_its_latest_allocation(tmp_path: Path) -> None:
    trace = log(tmp_path, "allocate,0x1,5,0", "free,0x1,5,0", "allocate,0x1,5,0", "allocate,0x2,6,0", "free,0x1,5,0")
    assert events(trace) == [(ALLOC, 0, 0), (FREE, 0, 0), (ALLOC, 1, 0), (ALLOC, 2, 0), (FREE, 1, 0)]
    assert trace.size.tolist() == [5, 5, 6]  # the last one leaks


def test_a_pointer_given_again_before_the_line_of_its_free(tmp_path: Path) -> None:
    """Threads race for the log's next line."""
    trace = log(tmp_path, "allocate,0x1,5,0", "allocate,0x1,9,0", "free,0x1,5,0", "free,0x1,9,0")
    assert events(trace) == [(ALLOC, 0, 0), (ALLOC, 1, 0), (FREE, 0, 0), (FREE, 1, 0)]


def test_several_empty_allocations_live_at_once(tmp_path: Path) -> None:
    trace = log(tmp_path, "allocate,(nil),0,0", "allocate,0x0,0,0", "free,(nil),0,0", "free,(nil),0,0")
    assert sorted(trace.arg.tolist()[2:]) == [0, 1] and trace.size.tolist() == [0, 0]


def test_what_was_allocated_before_the_log_lives_from_its_start(tmp_path: Path) -> None:
    trace = log(tmp_path, "allocate,0x1,5,0", "free,0x9,70,0x55", "free,0x8,80,0")
    assert events(trace) == [(ALLOC, 0, 0), (ALLOC, 1, 0), (ALLOC, 2, 0), (FREE, 0, 1), (FREE, 1, 0)]
    assert trace.size.tolist() == [70, 80, 5]
    assert trace.meta["start"] == {"tensors": 2, "bytes": 150}


def test_a_request_that_failed_goes_on_without_it(tmp_path: Path) -> None:
    trace = log(tmp_path, "allocate failure,(nil),1099511627776,0x55", "allocate,0x1,5,0")
    assert events(trace) == [(OOM, -1, 1), (ALLOC, 0, 0)] and trace.bytes[0] == 1 << 40


def test_streams_are_told_apart_however_they_are_written(tmp_path: Path) -> None:
    written = ["0", "0x0", "(nil)", "0x1", "1", "0x55d0c0de0040", "55d0c0de0040", "94044"]
    trace = log(tmp_path, *(f"allocate,{k + 1:#x},5,{stream}" for k, stream in enumerate(written)))
    assert trace.stream.tolist() == [0, 0, 0, 1, 1, 2, 2, 3]


def test_each_thread_has_a_per_thread_default_stream(tmp_path: Path) -> None:
    trace = log(
        tmp_path, "1,00:00:01.000000,allocate,0x1,5,0x2", "2,00:00:01.000000,allocate,0x2,5,0x2",
        "1,00:00:01.000000,allocate,0x3,5,2", "2,00:00:01.000000,free,0x1,5,0x2",
    )  # fmt: skip
    assert trace.stream.tolist() == [1, 2, 1, 2] and trace.meta["threads"] == 2


def test_times_wrap_at_midnight_and_have_a_dot_or_a_colon(tmp_path: Path) -> None:
    trace = log(
        tmp_path, "1,23:59:59.999999,allocate,0x1,5,0", "1,00:00:00:000001,free,0x1,5,0", "1,00:00:00.000000,allocate,0x1,5,0",
        "1,23:59:59.000000,free,0x1,5,0", "1,00:00:00.000001,allocate,0x1,5,0",
    )  # fmt: skip
    day = 86_400 * 10**9
    assert trace.time.tolist() == [0, 2000, 2000, day - 999_999_000, day + 2000]


def test_columns_are_found_by_name_and_strange_ones_passed_over(tmp_path: Path) -> None:
    trace = log(tmp_path, "0,5,why,allocate,0x1", head="Stream,Size,Note,Action,Pointer\n")
    assert trace.size.tolist() == [5] and "times" in trace.meta["lacks"]


def test_a_free_of_another_size_is_told(tmp_path: Path) -> None:
    assert log(tmp_path, "allocate,0x1,5,0", "free,0x1,6,0").meta["warnings"] == [
        "1 frees name another size than their allocation"
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("7,24:00:00.000000,allocate,0x1,5,0", "'24:00:00.000000' is not a time"),
        ("7,00:00:60.000000,allocate,0x1,5,0", "'00:00:60.000000' is not a time"),
        ("allocate,0x1,5,left", "'left' is not a stream"),
        ("allocate,0x1,5,", "'' is not a stream"),
        ("allocate,0x1,5,0x1ffffffffffffffff", "the stream 0x1ffffffffffffffff overflows"),
        ("allocate,nil,5,0", "'nil' is not a pointer"),
        ("allocate,0x1,-5,0", "-5 is negative"),
        ("allocate failed,0x1,5,0", "did you mean 'allocate failure'"),
    ],
)
def test_a_bad_line_is_one_sentence_with_its_place(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(TraceError) as error:
        log(tmp_path, "allocate,0x7,5,0", line)
    assert f"{tmp_path / 'rmm.dev0.csv'}:3: " in str(error.value) and said in str(error.value)
    assert "\n" not in str(error.value)


def test_the_log_of_the_first_device_is_named_when_only_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "rmm.dev0.csv").write_text(HEAD)
    with pytest.raises(TraceError, match=r"no such file \(did you mean 'rmm.dev0.csv'\?\)"):
        import_trace(tmp_path / "rmm.csv")


def cross_stream(tmp_path: Path) -> Trace:
    """Stream 0x55 frees what stream 0 allocated, and gets it again at once."""
    return log(tmp_path, "allocate,0x1,1024,0", "free,0x1,1024,0x55", "allocate,0x2,1024,0x55")


def test_the_freeing_stream_reaches_the_allocator(tmp_path: Path) -> None:
    rows = requests.of_trace(cross_stream(tmp_path)).rows()
    assert rows["stream"].tolist() == [0, 1, 1]


def test_the_freeing_stream_reaches_the_allocator_in_a_timed_run(tmp_path: Path) -> None:
    """Were the block given back to stream 0, stream 0x55 would have to wait for it."""
    seen: list[Simulation] = []

    def look(env: simpy.Environment, simulation: Simulation) -> Generator[Any, Any, Any]:
        seen.append(simulation)
        yield env.timeout(0)

    trace = cross_stream(tmp_path)
    policies = {"place": "rmm_pool(initial=0)", "evict": "none", "prefetch": "none"}
    result = simulate(trace, catalogue.load("a100-pcie-40gb"), **policies, control=[look])
    assert result.finished
    counts = seen[0].place.module.statistics(seen[0].policies.place)
    assert (counts["event_records"], counts["cross_stream_waits"], counts["upstream_calls"]) == (1, 0, 1)

"""Which traces are refused, and does the sentence say where and what to do?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import TraceError
from gpusim.trace.build import TraceBuilder, make_trace
from gpusim.trace.trace import ALLOC, FREE, OP, PHASE, Trace

# Two tensors, one operator that reads 0 and writes 1, both freed.
GOOD: dict[str, Any] = {
    "size": [100, 200],
    "kind": [ALLOC, ALLOC, OP, FREE, FREE],
    "arg": [0, 1, 0, 0, 1],
    "op": [0],
    "read_start": [0, 1],
    "read_id": [0],
    "write_start": [0, 1],
    "write_id": [1],
}
TABLES = {"op_names": ("copy",), "categories": ("unknown",)}


def trace(**changes: Any) -> Trace:
    return make_trace("t", {**GOOD, **changes}, TABLES)


def test_a_good_trace_is_read_only_and_filled_with_what_is_not_recorded() -> None:
    made = trace()
    assert (made.tensors, made.events, made.ops) == (2, 5, 1)
    assert made.bytes.tolist() == [100, 200, 0, 0, 0]
    assert made.time.tolist() == [-1] * 5 and made.duration.tolist() == [-1] and made.phase.tolist() == [-1]
    with pytest.raises(ValueError, match="read-only"):
        made.size[0] = 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"size": [100, -1]}, ["tensor 1", "'size' is -1", "negative"]),
        ({"size": [100, 2**57]}, ["tensor 1", "64 PiB"]),
        ({"size": [100, 2**64]}, ["'size'", "do not fit int64"]),
        ({"size": [100, 0.5]}, ["'size'", "do not fit int64"]),
        ({"kind": [ALLOC, ALLOC, OP, FREE, 11]}, ["event 4", "unknown kind 11"]),
        ({"arg": [0, 1, 0, 0, 0]}, ["event 4 frees tensor 0 again", "after event 3"]),
        ({"arg": [0, 1, 0, 0, 7]}, ["event 4 frees tensor 7", "there are 2 tensors"]),
        ({"arg": [0, 0, 0, 0, 1]}, ["event 1 allocates tensor 0 again", "after event 0", "ids are never reused"]),
        ({"kind": [ALLOC, FREE, OP, ALLOC, FREE], "arg": [0, 1, 0, 1, 0]}, ["event 1 frees tensor 1 before event 3"]),
        ({"kind": [ALLOC, OP, ALLOC, FREE, FREE], "arg": [0, 0, 1, 0, 1]}, ["event 1 writes tensor 1 before event 2"]),
        (
            {"kind": [ALLOC, ALLOC, FREE, OP, FREE], "arg": [0, 1, 0, 0, 1]},
            ["event 3 reads tensor 0 after event 2 freed"],
        ),
        ({"read_id": [-1]}, ["event 2 reads tensor -1"]),
        ({"write_id": [2]}, ["event 2 writes tensor 2", "there are 2 tensors"]),
        ({"arg": [0, 1, 1, 0, 1]}, ["event 2 issues operator 1, but operator 0 is due"]),
        ({"kind": [ALLOC, ALLOC, PHASE, FREE, FREE]}, ["1 operators but 0 op events"]),
        ({"op": [3]}, ["operator 0: 'op' is 3", "'op_names' has 1"]),
        ({"read_start": [0, 2]}, ["'read_start' does not partition"]),
        ({"time": [0, 5, 4, 6, 7]}, ["event 2 is earlier"]),
        ({"stream": [0, 0, -1, 0, 0]}, ["event 2", "'stream' is -1"]),
        ({"flops": [float("nan")]}, ["operator 0", "'flops' is nan"]),
        ({"addr": [0, 1]}, ["'addr' has 2 rows", "5 events"]),
        ({"phase": [0]}, ["operator 0: 'phase' is 0", "'phases' has 0"]),
    ],
)
def test_what_breaks_the_rules_is_named(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(TraceError) as error:
        trace(**changes)
    for word in words:
        assert word in str(error.value)


def test_a_tensor_that_is_never_allocated_is_refused() -> None:
    with pytest.raises(TraceError, match="tensor 2 is never allocated"):
        trace(size=[100, 200, 300])


def test_the_first_of_many_faults_is_reported() -> None:
    events = 1000
    columns = {"size": [1] * events, "kind": [ALLOC] * events + [FREE] * 3, "arg": [*range(events), 5, 5, 5]}
    with pytest.raises(TraceError, match="event 1001 frees tensor 5 again, after event 1000"):
        make_trace("t", columns)


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(TraceError, match="no column 'sizes'"):
        make_trace("t", {"sizes": [1]})


def test_the_builder_names_the_line_it_read() -> None:
    build = TraceBuilder("t", "file.csv")
    build.line = 7
    tensor = build.alloc(10)
    build.line = 8
    build.free(tensor)
    build.line = 9
    build.free(tensor)
    with pytest.raises(TraceError, match=r"^file\.csv:9: event 2 frees tensor 0 again"):
        build.finish()
    with pytest.raises(TraceError, match=r"^file\.csv:9: event 3: the size -1 is negative"):
        build.alloc(-1)


def test_operators_carry_the_phase_they_ran_in() -> None:
    build = TraceBuilder("t")
    build.op("a", [], [])
    build.begin_phase("fwd")
    build.op("a", [], [], flops=3.0)
    build.begin_phase("bwd")
    build.begin_phase("fwd")
    build.op("b", [], [])
    made = build.finish()
    assert made.phases == ("fwd", "bwd") and made.phase.tolist() == [-1, 0, 0]
    assert made.flops.tolist() == [0.0, 3.0, 0.0] and made.op.tolist() == [0, 0, 1]


def test_equal_content_means_equal_hash_and_any_change_shows() -> None:
    assert trace() == trace() and hash(trace()) == hash(trace())
    assert trace().content_hash != trace(size=[100, 201]).content_hash
    assert trace() != make_trace("other", GOOD, TABLES)
    assert trace() != make_trace("t", GOOD, TABLES, {"tf32": True})


def test_empty_traces_are_traces() -> None:
    assert make_trace("nothing", {"size": [], "kind": [], "arg": []}).events == 0


def test_columns_that_are_already_right_are_not_copied() -> None:
    size = np.array([100, 200], np.int64)
    size.flags.writeable = False
    assert trace(size=size).size is size

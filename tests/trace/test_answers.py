"""What a trace can answer: from its columns, and from what its importer says it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpusim.base.errors import TraceError
from gpusim.programs.recordings import import_trace
from gpusim.trace.answers import NEEDS, answers, require
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace
from gpusim.trace.trace import Trace

DATA = Path(__file__).parents[1] / "data" / "traces"
TRACES = Path(__file__).parents[2] / "traces"


def program(**op: Any) -> Trace:
    build = TraceBuilder("program")
    t = build.alloc(1 << 20)
    build.op("k", [], [t], **op)
    return build.finish()


@pytest.mark.parametrize(
    ("file", "given"),
    [
        ("kineto_v100_resnet50.json.gz", "allocator accesses times"),
        ("kineto_mi250.json.gz", "times"),  # without [memory] events
        ("memory_timeline.raw.json.gz", "allocator"),
        ("simple_add_et.json.gz", "allocator accesses"),
        ("chakra_et.json.gz", "allocator accesses"),
    ],
)
def test_imports_answer_what_their_format_records(file: str, given: str) -> None:
    assert answers(import_trace(DATA / file)).given == tuple(given.split())


def test_a_recording_answers_all_and_a_snapshot_of_the_same_program_its_allocations_only() -> None:
    assert answers(load_trace(TRACES / "gpt-medium-train.npz")).missing == ()
    assert answers(load_trace(TRACES / "gpt-medium-train-snapshot.npz")).given == ("allocator",)


def test_requests_of_a_cache_are_accesses_and_no_allocations(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("time,obj_id,obj_size\n0,1,100\n1,2,100\n2,1,100\n")
    assert answers(import_trace(tmp_path / "r.csv", "libcachesim")).given == ("accesses",)


def test_requests_of_a_service_are_answered_by_the_model_that_filled_them(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
    assert answers(import_trace(tmp_path / "r.csv")).given == NEEDS


def test_times_are_recorded_or_follow_from_flops() -> None:
    assert answers(program(flops=1e9)).given == NEEDS
    unknown = program()
    unknown.meta["lacks"] = ["flops"]
    assert answers(unknown).given == ("allocator", "accesses")
    timed = program(duration=1000)
    timed.meta["lacks"] = ["flops"]
    assert answers(timed).missing == ("flops",)


def test_what_is_missing_is_refused_with_the_reason_and_a_way() -> None:
    snapshot = load_trace(TRACES / "gpt-medium-train-snapshot.npz")
    require(snapshot, "allocator", "gpusim oom")
    with pytest.raises(TraceError) as told:
        require(snapshot, ("allocator", "accesses"), "gpusim plan")
    assert told.value.message == (
        "gpusim plan needs which tensors each operator reads and writes, which gpt-medium-train-snapshot does not say"
    )
    assert "gpusim record" in told.value.hint and "gpusim oom" in told.value.hint

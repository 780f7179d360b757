"""Do recordings of many ranks become one program whose collectives are those that ran, or one sentence?"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from damaged import damaged_tree, outcome, text
from rank_recordings import RankRecorder, steps

from gpusim.base.errors import TraceError
from gpusim.programs.ranks.described import describe, recorded_waits
from gpusim.programs.ranks.files import load_ranks, save_ranks
from gpusim.programs.ranks.folder import import_ranks
from gpusim.programs.ranks.matching import matched
from gpusim.programs.ranks.order import check_order
from gpusim.programs.ranks.recorded import RankPrograms
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace
from gpusim.trace.trace import COLLECTIVE, RECORD, SYNC, WAIT, Trace

BOTH = [0, 1]


def refused(folder: Path, *words: str, **options: Any) -> None:
    with pytest.raises(TraceError) as error:
        import_ranks(folder, **options)
    said = str(error.value)
    assert "\n" not in said and len(said) < 600
    for word in words:
        assert word in said, said


def pair(folder: Path, *calls: list[dict[str, Any]]) -> Path:
    """Ranks that call collectives one after the other, each 10 us long."""
    for rank, of in enumerate(calls):
        made = RankRecorder(rank, len(calls))
        for i, call in enumerate(of):
            made.collective(100.0 * i, 100.0 * i + 10, 10, **{"ranks": [*range(len(calls))], **call})
        made.write(folder)
    return folder


# --- what was recorded ---


def test_collectives_are_matched_and_streams_wait_for_each_other(tmp_path: Path) -> None:
    made = import_ranks(steps(tmp_path / "run"))
    assert made.name == "run" and not made.absent and made.meta == {"filled": {}, "warnings": []}
    assert [(one.kind, one.size, one.ranks, one.operators) for one in made.check()] == [
        ("all_reduce", 4096, (0, 1), (1, 1)), ("all_reduce", 4096, (0, 1), (4, 4)),
    ]  # fmt: skip
    trace = made.programs[0]
    assert trace.name == "rank 0" and list(trace.duration) == [100_000, 220_000, 50_000] * 2
    assert list(trace.activity == COLLECTIVE) == [False, True, False] * 2
    assert list(trace.read_bytes) == [0, 4096, 0] * 2, "a ring of two sends 2 (2 - 1) / 2 of it"
    order = [(int(kind), int(stream)) for kind, stream in zip(trace.kind, trace.stream, strict=True) if kind in (RECORD, WAIT)]
    compute, nccl = 0, 1
    once = [(RECORD, compute), (WAIT, nccl), (RECORD, nccl), (WAIT, compute)]
    assert order == [*once, *once], "the collective waits for the kernel before it, the next kernel for the collective"


def test_times_of_all_ranks_stand_on_one_clock(tmp_path: Path) -> None:
    alike, apart = import_ranks(steps(tmp_path / "a")), import_ranks(steps(tmp_path / "b", clocks=(0, 7_000)))
    for one, other in zip(alike.programs, apart.programs, strict=True):
        assert np.array_equal(one.time, other.time) and np.array_equal(one.device_time, other.device_time)
    assert "up to 3500000 ns apart" in apart.meta["filled"]["clocks"], "each from the middle of both"


def test_waits_of_the_recording_are_told(tmp_path: Path) -> None:
    rows = describe(import_ranks(steps(tmp_path / "run")))
    assert [row["waited"] for row in rows] == ["400 us", "0 ns"], "the first is 200 us early in each of two steps"
    assert [row["exchanges"] for row in rows] == [2, 2]


def test_a_profile_of_old_has_names_and_tensors_only(tmp_path: Path) -> None:
    for rank in BOTH:
        made = RankRecorder(rank, 2)
        made.collective(0, 10, 10, ranks=BOTH)
        for event in made.events:
            for word in [*event["args"]]:
                if word not in ("device", "stream", "correlation"):
                    del event["args"][word]
            if event["name"] == "record_param_comms":
                event |= {"name": "nccl:all_reduce", "args": {"Input Dims": [[256]], "Input type": ["float"]}}
        made.write(tmp_path)
    assert [(one.kind, one.size, one.ranks) for one in import_ranks(tmp_path).check()] == [("all_reduce", 1024, (0, 1))]


def test_an_uneven_all_to_all_takes_its_largest_part(tmp_path: Path) -> None:
    calls = [[{"name": "all_to_allv", "elements": n, "out": 40 - n}] for n in (10, 30)]
    made = import_ranks(pair(tmp_path, *calls))
    assert [(one.kind, one.size) for one in made.check()] == [("all_to_all", 120)]
    assert made.meta["filled"]["sizes"] == "an uneven all-to-all takes the time of its largest part: 1 of them"


def test_an_all_gather_is_as_large_as_what_it_makes(tmp_path: Path) -> None:
    call = {"name": "_allgather_base", "elements": 8, "out": 16}
    assert [(one.kind, one.size) for one in import_ranks(pair(tmp_path, [call], [call])).check()] == [("all_gather", 64)]


def test_communicators_of_the_same_ranks_are_apart(tmp_path: Path) -> None:
    a, b = {"group": "0", "elements": 8}, {"group": "5", "elements": 4, "stream": 25}
    made = import_ranks(pair(tmp_path, [a, b, b], [b, a, b]))
    assert sorted((one.size, one.operators) for one in made.check() if one.size == 32) == [(32, (0, 1))]
    assert sorted(made.programs[0].exchanges) == ["all_reduce 0,1@0 32", "all_reduce 0,1@5 16"]


def test_sends_find_their_receives(tmp_path: Path) -> None:
    send, receive = {"name": "send", "Dst Rank": 1, "elements": 5}, {"name": "recv", "Src Rank": 0, "elements": 5}
    made = import_ranks(pair(tmp_path, [send], [receive]))
    assert [(one.kind, one.size, one.ranks) for one in made.check()] == [("send", 20, (0, 1))]


def test_a_send_to_or_from_an_absent_rank_is_a_send(tmp_path: Path) -> None:
    for kind, at in (("send", "Dst Rank"), ("recv", "Src Rank")):
        folder = tmp_path / kind
        made = RankRecorder(1, 2)
        made.collective(0, 10, 10, name=kind, elements=5, ranks=BOTH, **{at: 0})
        made.write(folder)
        (one,) = import_ranks(folder).check()
        assert (one.kind, one.size) == ("send", 20) and sorted(one.operators) == [-1, 0]


def test_recordings_that_begin_and_end_elsewhere_are_matched_by_number(tmp_path: Path) -> None:
    numbers = ([4, 5, 6], [5, 6, 7])
    made = import_ranks(pair(tmp_path, *([{"seq": n, "elements": n} for n in of] for of in numbers)))
    assert [(one.size, one.operators) for one in made.check()] == [(20, (1, 0)), (24, (2, 1))]
    assert made.meta["filled"]["ends"].startswith("2 calls before all recordings have begun or after one has ended")
    assert list(made.programs[0].activity == COLLECTIVE) == [False, True, True]


def test_absent_ranks_are_told_and_come_in_time(tmp_path: Path) -> None:
    for rank in (0, 2):
        made = RankRecorder(rank, 4, {"0": range(4)})
        made.collective(0, 10, 10 + rank, ranks=range(4))
        made.write(tmp_path)
    made = import_ranks(tmp_path)
    assert made.absent == {1, 3} and [one.operators for one in made.check()] == [(0, -1, 0, -1)]
    assert made.meta["warnings"] == [
        "2 of 4 ranks were not recorded (1, 3): such ranks are taken to come in time to 1 collectives, so that no other waits "
        "for them, and else to do nothing"
    ]
    rows = describe(made)
    assert [row["tensors"] for row in rows] == ["0", "not recorded", "0", "not recorded"]
    assert recorded_waits(made, made.check()) == [0, 0, 2000, 0]
    (tmp_path / "rank2.pt.trace.json").unlink()
    alone = import_ranks(tmp_path)
    assert recorded_waits(alone, alone.check())[0] == -1, "no other rank's time is known"


def test_kernels_that_do_not_say_what_they_exchange_keep_their_times(tmp_path: Path) -> None:
    made = import_ranks(pair(tmp_path, *[[{"name": "gather"}, {}]] * 2))
    assert [one.operators for one in made.check()] == [(1, 1)]
    assert made.meta["warnings"] == [
        "2 kernels of NCCL do not say what they exchange with which ranks: they keep their recorded times"
    ]


def tensor(storage: int, elements: int, rank: int) -> list[Any]:
    return [storage + 100, storage, 0, elements, 4, f"cuda:{rank}"]


def executed(rank: int) -> dict[str, Any]:
    """The execution trace of a product and an all-reduce of it, by schema 1.1.1: children stand before their parents."""

    def node(number: int, parent: int, name: str, values: list[Any], types: list[str], made: Any, schema: str = "") -> Any:
        attrs = {"rf_id": number, "op_schema": schema, "tid": 1, **({"pg_size": 2} if name == "record_param_comms" else {})}
        return {
            "id": number, "name": name, "ctrl_deps": parent, "attrs": [{"name": n, "value": v} for n, v in attrs.items()],
            "inputs": {"values": values, "shapes": [[] for _ in values], "types": types},
            "outputs": {"values": made, "shapes": [[] for _ in made], "types": ["Tensor(float)"] * len(made)},
        }  # fmt: skip

    a, b, c = (tensor(storage, 64, rank) for storage in (1, 2, 3))
    groups = json.dumps([{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 2}])
    said = [[c], [41, False], ["0", "default_pg"], rank, "allreduce", [], [], 0, 1, 2]
    return {"schema": "1.1.1-chakra.0.0.4", "nodes": [
        node(2, 1, "## process_group:init ##", [groups], ["String"], []),
        node(3, 1, "aten::mm", [a, b], ["Tensor(float)"] * 2, [c], "mm(Tensor a, Tensor b) -> Tensor"),
        node(6, 5, "nccl:all_reduce", [c], ["Tensor(float)"], []),
        node(5, 1, "record_param_comms", said, [*["GenericList[Tensor(float)]"], *["Int"] * 9], [[c]]),
        node(1, 1, "[pytorch|profiler|execution_trace|process]", [], [], []),
    ]}  # fmt: skip


def profiled(rank: int) -> RankRecorder:
    """The profile of the same run, whose ids are its own."""
    made = RankRecorder(rank, 2)
    made.kernel(0, 10, 20, "mm")
    made.collective(30, 40, 50, ranks=BOTH, elements=64)
    for event in made.events:
        if event["name"] == "c10d::allreduce_":
            event |= {"name": "nccl:all_reduce", "ts": 31.5, "dur": 1}
    made.events.sort(key=lambda event: (event["ts"], -event["dur"]))
    for number, event in enumerate(made.events, 700):
        event["args"] |= {"External id": number}
    return made


@pytest.mark.parametrize("timed", [False, True])
def test_execution_traces_name_tensors_and_groups_and_profiles_add_times(timed: bool, tmp_path: Path) -> None:
    for rank in BOTH:
        (tmp_path / f"et_{rank}.json").write_text(json.dumps(executed(rank)))
        if timed:
            profiled(rank).write(tmp_path / "kineto")
    made = import_ranks(tmp_path, kineto=tmp_path / "kineto") if timed else import_ranks(tmp_path)
    assert [(one.kind, one.size, one.ranks, one.operators) for one in made.check()] == [("all_reduce", 256, (0, 1), (1, 1))]
    trace = made.programs[1]
    assert trace.tensors == 3 and made.answers.accesses and made.answers.times is timed
    assert list(trace.duration) == ([20_000, 50_000] if timed else [-1, -1])


# --- the file ---


def test_the_file_holds_equal_programs_once_and_gives_them_back(tmp_path: Path) -> None:
    made = import_ranks(steps(tmp_path / "run", (100, 100)))
    save_ranks(made, tmp_path / "a.ranks")
    save_ranks(made, tmp_path / "b.ranks")
    assert load_ranks(tmp_path / "a.ranks") == made and load_ranks(tmp_path / "a.ranks").meta == made.meta
    assert (tmp_path / "a.ranks").read_bytes() == (tmp_path / "b.ranks").read_bytes()
    with pytest.raises(TraceError, match="it has the programs of many ranks, which `gpusim run` takes"):
        load_trace(tmp_path / "a.ranks")
    for damage in (b"", b"PK\x03\x04", (tmp_path / "a.ranks").read_bytes()[:500]):
        (tmp_path / "c.ranks").write_bytes(damage)
        with pytest.raises(TraceError, match="or it is damaged"):
            load_ranks(tmp_path / "c.ranks")


# --- what cannot be ---


def test_ranks_of_different_collectives_in_one_call_are_refused(tmp_path: Path) -> None:
    refused(
        pair(tmp_path / "kind", [{}], [{"name": "_allgather_base", "elements": 512, "out": 1024}]),
        "rank 0 is in all_reduce of 4096 bytes (its operator 0) with rank 1, which is in all_gather of 4096 bytes",
    )  # fmt: skip
    refused(pair(tmp_path / "size", [{}], [{"elements": 7}]), "all_reduce of 4096 bytes", "all_reduce of 28 bytes")


def test_a_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    said = "rank 0 waits in all_reduce of 4096 bytes (its operator 1) for rank 1, which never comes there"
    refused(pair(tmp_path / "order", [{}, {}], [{}]), said)
    numbers = ([4, 5, 6], [4, 6])
    said = "rank 0 waits in all_reduce of 4096 bytes (call 5 of group '0') for rank 1, which never comes there"
    refused(pair(tmp_path / "number", *([{"seq": n} for n in of] for of in numbers)), said, "rank1.pt.trace.json")


def test_ranks_that_wait_for_each_other_are_named(tmp_path: Path) -> None:
    a, b = {"group": "0", "elements": 8}, {"group": "5", "elements": 4}
    refused(
        pair(tmp_path, [a, b], [b, a]),
        "ranks wait for each other for ever: rank 0 waits in all_reduce of 32 bytes (its operator 0) for rank 1, "
        "rank 1 waits in all_reduce of 16 bytes (its operator 0) for rank 0",
    )  # fmt: skip


def test_what_is_no_run_of_many_ranks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    refused(tmp_path / "none", "this folder has no recordings of ranks")
    twice = steps(tmp_path / "twice")
    (twice / "more.json").write_bytes((twice / "rank1.pt.trace.json").read_bytes())
    refused(twice, "rank 1 has two recordings")
    unsaid = tmp_path / "unsaid"
    made = RankRecorder(0, 2)
    made.kernel(0, 5, 5)
    del made.header["distributedInfo"]
    made.write(unsaid, "profile.json")
    refused(unsaid, "neither the recording nor its name says which rank it is of", "name the files by rank")
    worlds = steps(tmp_path / "worlds")
    RankRecorder(1, 4).write(worlds)
    (worlds / "rank1.pt.trace.json").write_text((worlds / "rank0.pt.trace.json").read_text().replace(
        '"rank": 0, "world_size": 2', '"rank": 1, "world_size": 4'))  # fmt: skip
    refused(worlds, "rank 0 was recorded in a run of 2 ranks, and rank 1 in one of 4")
    refused(steps(tmp_path / "option"), "the importer 'kineto' has no option 'devise' (did you mean 'device'?)", devise=1)
    refused(tmp_path / "option", "--with is for execution traces", kineto=tmp_path)


def test_a_group_of_unknown_ranks_is_refused(tmp_path: Path) -> None:
    for rank in BOTH:
        made = RankRecorder(rank, 4)
        made.collective(0, 10, 10, ranks=BOTH, group="7")
        for event in made.events:
            event["args"].pop("Process Group Ranks", None)
        made.write(tmp_path)
    assert [one.ranks for one in import_ranks(tmp_path).check()] == [(0, 1)], "those that call it, if they are as many"
    (tmp_path / "rank1.pt.trace.json").unlink()
    refused(tmp_path, "rank 0 calls all_reduce in group '7' (default_pg) of 2 ranks, and no recording says which ranks it has")


def test_a_damaged_header_is_a_sentence(tmp_path: Path) -> None:
    path = steps(tmp_path) / "rank1.pt.trace.json"
    for wrong in ({"rank": "x"}, {"rank": -7}, {"rank": 1, "world_size": 10**9}, {"rank": 1, "pg_config": [7]}):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"distributedInfo": wrong}))
        refused(tmp_path, "its 'distributedInfo' is not one that PyTorch writes", "rank1.pt.trace.json")


@pytest.mark.slow
def test_a_damaged_recording_of_a_rank_is_a_program_or_a_sentence(tmp_path: Path) -> None:
    path = steps(tmp_path) / "rank1.pt.trace.json"
    whole = json.loads(path.read_text())
    for seed in range(150):
        path.write_text(text(damaged_tree(whole, Random(seed))))
        error = outcome(lambda: import_ranks(tmp_path), TraceError)
        assert error is None or ("\n" not in str(error) and len(str(error)) < 600), seed


# --- the order of calls ---


def program(*events: tuple[Any, ...]) -> Trace:
    """(stream, exchange), or (RECORD or WAIT, event, stream), or (SYNC,)."""
    build = TraceBuilder("p")
    for event in events:
        if isinstance(event[-1], str):
            build.op("nccl", (), (), stream=event[0], activity=COLLECTIVE, exchange=event[1])
        elif event[0] == SYNC:
            build.event(SYNC)
        else:
            build.event(event[0], event[1], stream=event[2])
    return build.finish()


A, B = "all_reduce 0,1@a 8", "all_reduce 0,1@b 8"


@pytest.mark.parametrize(
    ("first", "second", "ends"),
    [
        ([(0, A), (0, B)], [(0, A), (0, B)], True),
        ([(0, A), (0, B)], [(0, B), (0, A)], False),
        ([(0, A), (1, B)], [(1, B), (0, A)], True),  # streams of their own
        ([(0, A), (RECORD, 1, 0), (WAIT, 1, 1), (1, B)], [(1, B), (0, A)], True),
        ([(0, A), (RECORD, 1, 0), (WAIT, 1, 1), (1, B)], [(1, B), (RECORD, 1, 1), (WAIT, 1, 0), (0, A)], False),
        ([(0, A), (SYNC,), (1, B)], [(1, B), (SYNC,), (0, A)], False),
        ([(WAIT, 1, 0), (0, A), (0, B)], [(0, A), (0, B)], True),  # an event that nothing has recorded holds no stream up
    ],
)
def test_streams_events_and_the_host_decide_which_rank_waits_for_ever(first: list[Any], second: list[Any], ends: bool) -> None:
    programs = RankPrograms("p", (program(*first), program(*second)))
    found = matched(programs.programs, programs.members)
    if ends:
        check_order(programs.programs, found)
        return
    with pytest.raises(TraceError, match="ranks wait for each other for ever: rank 0 waits in all_reduce of 8 bytes"):
        check_order(programs.programs, found)

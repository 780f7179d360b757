"""Are PyTorch's settings read as PyTorch reads them, and is what it refuses told in one sentence?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from place_programs import Watched

from gpusim.base.errors import ConfigError, PolicyError
from gpusim.experiment import load
from gpusim.experiment.tasks import plan
from gpusim.policies import registry
from gpusim.policies.contract import BLOCK
from gpusim.policies.place.parts import driver_memory as device
from gpusim.policies.place.parts.pytorch import events, layout, rules
from gpusim.policies.place.parts.pytorch.counting import statistics

MIB = 1 << 20


def heap(spec: str = "pytorch", capacity: int = 1 << 34, units: int = 40) -> Watched:
    return Watched(registry.get("place", spec), capacity, units)


def with_conf(conf: str, **params: str) -> Any:
    return registry.get("place", {"name": "pytorch", "params": {"conf": conf, **params}})


def test_settings_may_have_commas_and_brackets() -> None:
    spec = "pytorch(conf=max_split_size_mb:64, roundup_power2_divisions:[256:1,>:4], release=2.12, device=bump)"
    chosen = registry.get("place", spec)
    assert chosen.values == {
        "conf": "max_split_size_mb:64, roundup_power2_divisions:[256:1,>:4]", "release": "2.12", "device": "bump",
    }  # fmt: skip
    assert registry.get("place", chosen.spec).values == chosen.values
    S = chosen.state(1 << 34, 1, 1, chosen.params)
    assert S[layout.MAX_SPLIT] == 64 * MIB and S[layout.RULE] == layout.OBJECT_NUMBERS
    assert S[layout.DIVISIONS : layout.DIVISIONS + 16].tolist() == [1] * 9 + [4] * 7


@pytest.mark.parametrize(
    ("conf", "says"),
    [
        ("max_splt_size_mb:64", r"'max_splt_size_mb' .* is not an option \(did you mean 'max_split_size_mb'\?\)"),
        ("max_split_size_mb=64", "is not an option"),
        ("max_split_size_mb", "'max_split_size_mb' .* has no value"),
        ("max_split_size_mb:19", r"'max_split_size_mb' .* is 19 \(PyTorch takes 20 or more, its large_segment_size_mb\)"),
        ("max_split_size_mb:32,large_segment_size_mb:64", "takes 64 or more"),
        ("max_split_size_mb:many", "whole number of MiB"),
        ("large_segment_size_mb:10", "takes 11 or more"),
        ("garbage_collection_threshold:1", "a number between 0 and 1"),
        ("per_process_memory_fraction:1.1", "a number from 0 to 1"),
        ("roundup_power2_divisions:3", "a power of two"),
        ("roundup_power2_divisions:0", "a power of two"),
        ("roundup_power2_divisions:[300:4]", "sizes are powers of two"),
        ("roundup_power2_divisions:[256:3]", r"\[size in MiB:divisions"),
        ("expandable_segments:true", "write True or False"),
        ("backend:cudaMallocAsync", "see the policy cuda_async"),
        ("max_split_size_mb:19,max_split_size_mb:64", "'max_split_size_mb' .* is 19"),
        ("large_segment_size_mb:10,large_segment_size_mb:64", "takes 11 or more"),
        ("expandable_segments:1,expandable_segments:True", "write True or False"),
        (",", "'' .* is not an option"),
        ("expandable_segments_reserve:0.5", "came with PyTorch 2.15"),
        ("expandable_segments_reserve_by_class:[a:1]", "classes of streams are not modelled"),
    ],
)
def test_what_pytorch_refuses_is_refused_by_name(conf: str, says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        registry.bind(registry.find("place", "pytorch"), {"conf": conf})


@pytest.mark.parametrize(("name", "value"), [("release", "new"), ("device", "lowst"), ("conf", 3), ("release", None)])
def test_other_parameters_are_refused_too(name: str, value: object) -> None:
    with pytest.raises(PolicyError, match=f"'{name}'|'3'"):
        registry.bind(registry.find("place", "pytorch"), {name: value})


def test_a_list_of_divisions_that_names_no_size_changes_nothing() -> None:
    """As the libraries of 2.11.0, 2.13.0 and 2.15.0 read it."""
    assert rules.commands("roundup_power2_divisions:[]") == rules.commands("") == rules.commands(" ")
    eight = "roundup_power2_divisions:8"
    assert rules.commands(f"{eight},roundup_power2_divisions:[]") == rules.commands(eight)


def test_fractions_are_the_very_same_doubles() -> None:
    for text in ("0.8", "0.123456789", "0.3", "0.07"):
        ((_, share, _),) = [c for c in rules.commands(f"garbage_collection_threshold:{text}") if c[0] == rules.SET_THRESHOLD]
        assert share / rules.SCALE == float(text)


def test_a_new_string_resets_what_pytorch_resets() -> None:
    p = with_conf("max_split_size_mb:64,expandable_segments:True,large_segment_size_mb:32")
    S = p.state(1 << 34, 1, 1, p.params)
    for command in rules.commands("garbage_collection_threshold:0.5"):
        p.command(S, *command)
    assert S[layout.MAX_SPLIT] == layout.NEVER and S[layout.MAX_ROUNDING] == S[layout.LARGE_SEGMENT] == 32 * MIB
    assert S[layout.EXPANDABLE] == 1


def test_an_experiment_takes_settings_from_the_file_and_from_the_command_line(tmp_path: Path) -> None:
    text = "question: Q?\ntrace: gpt-medium-infer\nprofile: l4\nmemory: 100 %\npolicies:\n  place: [{}]\n"
    file = tmp_path / "e.yaml"
    file.write_text(text.format("pytorch, {pytorch: {conf: 'expandable_segments:True,roundup_power2_divisions:4'}}"))
    keys = {str(task.spec.place): task.key for task in plan(load.experiment(str(file)), tmp_path / "out").grid}
    assert list(keys) == ["pytorch", "pytorch(conf=expandable_segments:True,roundup_power2_divisions:4)"]
    assert len(set(keys.values())) == 2
    sets = ["policies.place=pytorch(conf=expandable_segments:True,roundup_power2_divisions:4),best_fit"]
    again = {str(task.spec.place): task.key for task in plan(load.experiment(str(file), sets), tmp_path / "out").grid}
    assert again.keys() == {*list(keys)[1:], "best_fit"} and keys.items() & again.items() == {*list(keys.items())[1:]}
    file.write_text(text.format("'pytorch(conf=max_splitsize_mb:64)'"))
    with pytest.raises(ConfigError, match="did you mean 'max_split_size_mb'"):
        load.experiment(str(file))


# --- the device -------------------------------------------------------------------------------------------------------


def test_addresses_of_a_device() -> None:
    for choice, addresses in [("lowest", [0, 20, 20]), ("bump", [0, 20, 40])]:
        h = heap(f"pytorch(device={choice})")
        found = [h.alloc(0, 20 * MIB), h.alloc(1, 20 * MIB)]
        h.free(1)
        h.release()
        assert [*found, h.alloc(2, 20 * MIB)] == [a * MIB for a in addresses]


def test_a_segment_that_is_never_given_again_is_no_range() -> None:
    """862 bytes of a segment of 2 MiB, while a range is there: the rest is an inactive split."""
    p = registry.get("place", "pytorch(device=bump, conf=expandable_segments:True)")
    S = p.state(1 << 34, 9, 9, p.params)
    p.alloc(S, 0, 3 * MIB + 1, 0)
    for code, a, b in rules.commands("expandable_segments:False"):
        p.command(S, code, a, b)
    assert p.alloc(S, 1, 862, 0) == 0
    assert statistics(S)["inactive_split_bytes.all.current"] == 2 * MIB - 1024


@pytest.mark.parametrize("release", ["2.11", "2.14", "2.15"])
def test_a_request_too_large_for_a_range(release: str) -> None:
    """A device of 2 GiB has ranges of 2,304 MiB, 2,320 in pages of 20.  Up to 2.14 the request reserves two and fills none."""
    p = registry.get("place", f"pytorch(release={release}, conf=expandable_segments:True)")
    S = p.state(2048 * MIB, 2000, 2000, p.params)
    start = device.VIRTUAL + (0 if release == "2.15" else 2 * 2320 * MIB)
    assert p.alloc(S, 0, 4096 * MIB, 0) == -1
    assert p.alloc(S, 1, 512, 0) == start
    for unit in range(2, 1002):  # however many are tried, the table holds them
        assert p.alloc(S, unit, 4096 * MIB, 0) == -1
    assert p.alloc(S, 1002, 512, 0) == start + 512
    assert S[layout.RANGES] == (1 if release == "2.15" else layout.IDLE_RANGES)


def test_recorded_addresses_are_used_while_they_fit() -> None:
    p = registry.get("place", "pytorch(device=recorded)")
    S = device.follow(p.state(1 << 34, 9, 9, p.params), [(64 * MIB, 20 * MIB), (10 * MIB, 2 * MIB), (70 * MIB, 20 * MIB)])
    assert p.alloc(S, 0, 20 * MIB, 0) == 64 * MIB
    assert p.alloc(S, 1, 512, 0) == 10 * MIB
    assert p.alloc(S, 2, 20 * MIB, 0) == 12 * MIB  # 70 MiB is taken: the lowest that is free
    assert p.alloc(S, 3, 8 * MIB, 1) == 32 * MIB   # the recording is at its end
    with pytest.raises(ValueError, match="multiples of 2 MiB"):
        device.follow(S, [(5, 2 * MIB)])


# --- what is read from the table --------------------------------------------------------------------------------------


@pytest.mark.hand_worked
def test_statistics_by_hand() -> None:
    h = heap()
    h.alloc(0, 3 * MIB)
    h.alloc(1, 5000)
    h.free(0)
    s = statistics(h.S)
    assert s["allocated_bytes.all.current"] == 5120 and s["allocated_bytes.all.peak"] == 3 * MIB + 5120
    assert s["allocated_bytes.large_pool.freed"] == 3 * MIB and s["requested_bytes.small_pool.current"] == 5000
    assert s["reserved_bytes.all.current"] == 22 * MIB and s["segment.all.allocated"] == s["num_device_alloc"] == 2
    assert s["inactive_split_bytes.all.current"] == 2 * MIB - 5120 and s["inactive_split_bytes.large_pool.peak"] == 17 * MIB
    h.policy.command(h.S, rules.RESET_PEAKS, 0, 0)
    h.policy.command(h.S, rules.RESET_ACCUMULATED, 0, 0)
    s = statistics(h.S)
    assert s["allocated_bytes.all.peak"] == 5120 and s["allocated_bytes.all.allocated"] == 0 == s["num_device_alloc"]
    h.free(1)
    assert statistics(h.S)["allocated_bytes.all.freed"] == 5120


def test_a_held_stream_keeps_a_freed_block_from_its_pool() -> None:
    p = registry.get("place", "pytorch")
    S = events.listen(p.state(1 << 34, 9, 9, p.params))
    p.alloc(S, 0, 20 * MIB, 0)
    p.use(S, 0, 7)
    p.command(S, rules.HOLD, 7, 0)
    p.free(S, 0, 0)
    assert events.heard(S) == [("free_requested", 0, 20 * MIB, 0)]
    assert p.alloc(S, 1, 20 * MIB, 0) == 20 * MIB
    assert statistics(S)["active_bytes.all.current"] == 40 * MIB
    p.command(S, rules.UNHOLD, 7, 0)
    assert p.alloc(S, 2, 20 * MIB, 0) == 0  # noticed at the next request, and used by it
    assert events.heard(S) == [("free_completed", 0, 20 * MIB, 0), ("alloc", 0, 20 * MIB, 0)]


def test_more_waiting_frees_than_the_table_has_room_for_are_waited_for() -> None:
    p = registry.get("place", "pytorch")
    S = p.state(1 << 34, 1, 1, p.params)
    p.command(S, rules.HOLD, 7, 0)
    for _ in range(5000):
        assert p.alloc(S, 0, 512, 0) >= 0
        p.use(S, 0, 7)
        p.free(S, 0, 0)
    assert S[layout.WAITING] <= S[layout.MAX_WAITING] and statistics(S)["num_sync_all_streams"] > 0


def test_a_private_pool_begun_after_its_release_is_an_error() -> None:
    p = registry.get("place", "pytorch")
    S = p.state(1 << 34, 1, 1, p.params)
    assert p.command(S, rules.POOL_END, 3, 0) == -1
    for code in (rules.POOL_BEGIN, rules.POOL_END, rules.POOL_RELEASE):
        assert p.command(S, code, 3, 0) == 0
    assert p.command(S, rules.POOL_BEGIN, 3, 0) == -1


@pytest.mark.parametrize(("release", "block"), [("2.11", 20 * MIB), ("2.13", 20 * MIB), ("2.14", 9 * MIB + 512),
                                                ("2.15", 9 * MIB + 512)])  # fmt: skip
def test_a_pool_that_is_let_go_while_requests_come_to_it(release: str, block: int) -> None:
    """As the libraries of 2.11.0, 2.12.1, 2.13.0, 2.14.1 and 2.15.0 answer: whole blocks up to 2.13, pieces since."""
    p = with_conf("expandable_segments:True", release=release)
    S = p.state(1 << 31, 2, 2, p.params)
    for code in (rules.POOL_BEGIN, rules.POOL_NO_SPLIT, rules.POOL_RELEASE):
        assert p.command(S, code, 5, 0) == 0
    p.alloc(S, 0, 9 * MIB + 512, 0)
    assert int(S[BLOCK]) == block

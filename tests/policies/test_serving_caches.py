"""Prefix caches and tiers of serving engines against the real classes: their recorded answers, and the classes themselves."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import chunk_cases
import numpy as np
import offload_cases
import pytest
import radix_cases
import real_classes
import v0_cases

from gpusim.base.errors import PolicyError
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts import chunk_policies, offload_tables, radix, radix_tables
from gpusim.policies.schedule.parts.running import EngineLimits, request_table

pytestmark = pytest.mark.oracle
DATA = Path(__file__).parents[1] / "data" / "serving"
SUPPORT = Path(__file__).parents[1] / "support"


def recorded(name: str) -> Any:
    return json.loads((DATA / name).read_text())


def named(case: dict[str, Any]) -> str:
    return " ".join(str(v) for k, v in case.items() if k != "answers")


RADIX = recorded("sglang-0.5.23-radix.json")
CHUNKS = recorded("lmcache-0.5.6.json")
V0 = recorded("vllm-0.9.2-v0.json")
OFFLOAD = [(of["operations"], case) for of in map(recorded, ("vllm-0.11.0-offload.json", "vllm-0.33.0-offload.json"))
           for case in of["cases"]]  # fmt: skip


def test_every_policy_is_recorded() -> None:
    assert {(c["policy"], c["unified"]) for c in RADIX["cases"]} == {
        (p, u) for p in radix_tables.POLICIES for u in (True, False) if u or p != "tlru"
    }
    assert {c["policy"] for c in CHUNKS["cases"]} == set(chunk_policies.CHUNK_POLICIES)
    assert {c["name"] for _, c in OFFLOAD} == set(offload_tables.MANAGERS)


@pytest.mark.parametrize("case", RADIX["cases"], ids=named)
def test_radix_tree_answers_as_sglang(case: dict[str, Any]) -> None:
    told = radix_cases.answers(
        case["seed"], case["policy"], case["page"], case["unified"], RADIX["operations"], radix_cases.Simulated
    )
    assert [[op, *a] for op, a in told] == case["answers"]


@pytest.mark.parametrize(("operations", "case"), OFFLOAD, ids=lambda c: named(c) if isinstance(c, dict) else "")
def test_offload_manager_answers_as_vllm(operations: int, case: dict[str, Any]) -> None:
    told = offload_cases.answers(case["seed"], case["name"], operations, offload_cases.SimulatedManager)
    assert [[op, *a] for op, a in told] == case["answers"]


@pytest.mark.parametrize("case", CHUNKS["cases"], ids=named)
def test_tier_answers_as_lmcache(case: dict[str, Any]) -> None:
    told = chunk_cases.answers(case["seed"], case["policy"], CHUNKS["operations"], chunk_cases.SimulatedTier)
    assert [[op, *a] for op, a in told] == case["answers"]


@pytest.mark.parametrize("case", V0["cases"], ids=lambda c: c["family"])
def test_v0_scheduler_does_as_vllm(case: dict[str, Any]) -> None:
    played = v0_cases.play(v0_cases.case(case["seed"], case["family"]), v0_cases.SimulatedV0)
    assert [json.loads(json.dumps(told)) for told in itertools.islice(played, len(case["steps"]))] == case["steps"]


def test_v0_stops_where_swapped_blocks_find_no_room() -> None:
    requests = request_table([0, 0], [8, 8], [8, 8])
    limits = EngineLimits(blocks=20, block_size=1, max_seqs=4, max_tokens=32, max_len=32)
    run = get("schedule", "vllm@0.9(preemption_mode=swap,num_cpu_blocks=4)").start(requests, limits)
    run.arrive(0)
    run.arrive(1)
    with pytest.raises(PolicyError, match="finds no room in the host's memory"):
        while run.compose():
            run.over()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "command"),
    [
        ("sglang-0.5.23", ["real_sglang", "3", "2", "150"]),
        ("vllm-0.11.0", ["real_offload", "0.11.0", "3", "5", "200"]),
        ("vllm-0.33.0", ["real_offload", "0.33.0", "3", "5", "200"]),
        ("lmcache-0.5.6", ["real_lmcache", "3", "5", "200"]),
        ("vllm-0.9.2", ["real_vllm_v0", "3", "5"]),
    ],
)
def test_no_difference_to_the_real_classes(release: str, command: list[str]) -> None:
    if real_classes.folder(release) is None:
        pytest.skip(real_classes.absent(release))
    path = os.pathsep.join([str(SUPPORT.parents[1]), str(SUPPORT)])
    done = subprocess.run(
        [sys.executable, "-m", *command], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if "No module named" in done.stderr:
        pytest.skip(f"the real classes of {release} need a package: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    assert "differ" not in done.stdout
    assert "operations" in done.stdout or " steps" in done.stdout


def test_a_split_prefix_is_shared_and_the_older_leaf_leaves_first() -> None:
    tree = radix_tables.radix_tree(8)
    key, other = np.array([1, 2, 3, 4]), np.array([1, 2, 7, 8])
    radix.radix_insert(tree, key, np.array([0, 1, 2, 3]), 0, 0, 0)
    _, there = radix.radix_insert(tree, other, np.array([4, 5, 6, 7]), 0, 0, 0)
    assert there == 2  # pages 4 and 5 are the caller's to free
    out = np.zeros(8, np.int64)
    node, _ = radix.radix_match(tree, other, 0)
    assert out[: radix.radix_path(tree, node, out)].tolist() == [0, 1, 6, 7]
    assert out[: radix.radix_evict(tree, 1, out)].tolist() == [2, 3]  # the whole leaf


def test_a_locked_path_is_not_evicted() -> None:
    tree = radix_tables.radix_tree(4)
    node, _ = radix.radix_insert(tree, np.array([1, 2]), np.array([0, 1]), 0, 0, 0)
    radix.radix_lock(tree, node, 1)
    out = np.zeros(4, np.int64)
    assert radix.radix_evict(tree, 2, out) == 0
    radix.radix_lock(tree, node, 0)
    assert radix.radix_evict(tree, 2, out) == 2


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: radix_tables.radix_tree(4, policy="lur"), "no radix eviction policy 'lur'"),
        (lambda: radix_tables.radix_tree(4, policy="tlru", unified=False), "keeps no lengths of branches"),
        (lambda: offload_tables.offload_manager(4, "arc"), "no offload manager 'arc'"),
        (lambda: chunk_policies.chunk_cache(4, "arc"), "no policy 'arc' of LMCache"),
        (lambda: get("schedule", "vllm@0.9(preemption_mode=swap)"), "needs blocks in the host's memory"),
        (lambda: get("schedule", "vllm@0.9(preemption_mode=swap,num_cpu_blocks=4,policy=priority)"), "higher priority"),
        (lambda: get("schedule", "vllm@0.9(preemption_mode=none)"), "is 'none'"),
    ],
)
def test_what_is_not_known_is_refused(make: Any, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        make()

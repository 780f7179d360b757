"""S-LoRA's router: recorded steps of its own classes, steps worked out by hand, and a service with adapters in its pool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import slora_cases

import gpusim
from gpusim.base.errors import GpusimError, PolicyError
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts import slora_tables as s
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts.running import EngineLimits, Running, request_table

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "tests" / "data" / "serving" / "slora-c1ddf48.json"


def start(requests: Any, cells: int, *, seqs: int = 8, options: str = "adapter_cells=8") -> Running:
    """A scheduler to which all requests have come."""
    running: Running = get("schedule", f"slora({options})").start(requests, EngineLimits(cells, 1, seqs, 64, 64))
    for r in range(requests.arrival.size):
        running.arrive(r)
    return running


def step(running: Running) -> list[tuple[int, int, int]]:
    """(request, tokens, tokens before) of the next step, which is over then."""
    rows = running.compose()
    made = running.step
    found = zip(made.request[:rows].tolist(), made.tokens[:rows].tolist(), made.before[:rows].tolist(), strict=True)
    told = list(found)
    if rows:
        running.over()
    return told


def free_cells(running: Running) -> int:
    return int(running.tables[0].tables.word[s.FREE_CELLS])


@pytest.mark.oracle
@pytest.mark.slow
def test_each_step_is_that_of_the_real_router() -> None:
    kept = json.loads(SAMPLE.read_text())["cases"]
    assert len(kept) == 3 * len(slora_cases.FAMILIES)
    for case in kept:
        told, _ = slora_cases.play(slora_cases.case(case["seed"], case["family"]), (slora_cases.SimulatedSlora,))
        assert json.loads(json.dumps(told))[: len(case["steps"])] == case["steps"], (case["family"], case["seed"])


@pytest.mark.oracle
@pytest.mark.slow
def test_no_difference_to_the_real_classes() -> None:
    pytest.importorskip("torch")
    if not os.environ.get("GPUSIM_SLORA"):
        pytest.skip("GPUSIM_SLORA names no checkout of S-LoRA")
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    done = subprocess.run(
        [sys.executable, "-m", "real_slora", "800", "5"], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert "differ" not in done.stdout and " steps" in done.stdout


@pytest.mark.hand_worked
def test_a_batch_is_joined_when_it_is_empty_and_after_ten_tokens() -> None:
    """Two places: the third request waits for ten tokens after the second has ended, and its prompt is computed alone."""
    running = start(request_table([0, 0, 0], [4, 5, 6], [30, 3, 2]), 200, seqs=2)
    assert step(running) == [(0, 4, 0), (1, 5, 0)]
    assert step(running) == [(0, 1, 4), (1, 1, 5)]
    assert step(running) == [(0, 1, 5), (1, 1, 6)]
    assert [step(running) for _ in range(8)] == [[(0, 1, before)] for before in range(6, 14)]
    assert step(running) == [(2, 6, 0)]
    assert step(running) == [(0, 1, 14), (2, 1, 6)]
    assert running.step.status.tolist() == [t.RUNNING, t.FINISHED, t.FINISHED]


@pytest.mark.hand_worked
def test_adapters_take_room_of_tokens() -> None:
    """16 and 16 tokens at most, and 8 cells for each of two adapters: 48 have to be less than the pool."""
    for cells, both in ((48, False), (49, True)):
        running = start(request_table([0, 0], [12, 12], 4, adapter=[1, 2]), cells)
        assert len(step(running)) == (2 if both else 1)
        assert free_cells(running) == cells - (2 if both else 1) * (8 + 12)
    running = start(request_table([0, 0], [12, 12], 4, adapter=[1, 1]), 41)
    assert len(step(running)) == 2 and free_cells(running) == 41 - 8 - 24


@pytest.mark.hand_worked
def test_the_step_that_needs_an_adapter_copies_it_and_it_leaves_with_the_last_request() -> None:
    running = start(request_table([0, 0], [4, 4], [1, 3], adapter=[1, 2]), 100)
    running.compose()
    assert running.step.swap[: running.step.word[t.N_SWAPS]].tolist() == [[0, 8, t.IN], [1, 8, t.IN]]
    running.over()  # request 0 has ended with its prompt; adapters are looked through when a token has been made
    assert free_cells(running) == 100 - 16 - 4
    assert step(running) == [(1, 1, 4)] and running.step.word[t.N_SWAPS] == 0
    assert step(running) == [(1, 1, 5)] and free_cells(running) == 100


@pytest.mark.hand_worked
def test_adapters_of_waiting_requests_are_prefetched() -> None:
    """One place. After five tokens the adapter of the next comes, without a step that waits for it."""
    running = start(request_table([0, 0], [4, 4], [20, 2], adapter=[1, 2]), 100, seqs=1, options="adapter_cells=8, prefetch=1")
    own = running.tables[0].tables
    waits = []
    for _ in range(22):
        rows = running.compose()
        waits.append((own.loaded.tolist(), int(running.step.word[t.N_SWAPS])))
        if rows:
            running.over()
    assert waits[0] == ([0, 1, 0], 1) and waits[5] == ([0, 1, 0], 0) and waits[6] == ([0, 1, 1], 0)
    assert waits[20] == ([0, 0, 1], 1)  # the batch was empty, which drops what was prefetched, too


def test_a_pool_that_prefetched_adapters_fill_stops_the_engine() -> None:
    requests = request_table([0, 0, 0], [4, 4, 4], [30, 10, 10], adapter=[1, 2, 3])
    running = start(requests, 60, seqs=1, options="adapter_cells=22, prefetch=1")
    with pytest.raises(PolicyError, match="no room in the pool for the next tokens"):
        for _ in range(40):
            step(running)


@pytest.mark.parametrize(
    ("limits", "told"),
    [({"max_tokens": 32, "max_len": 64}, "less than the longest sequence of 64"), ({"blocks": 1}, "below 2")],
)
def test_an_engine_that_does_not_start_is_told(limits: dict[str, int], told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        get("schedule", "slora").start(request_table([0], [4], [4]), EngineLimits(**{"blocks": 100} | limits))


def test_what_never_fits_beside_its_adapter_is_refused() -> None:
    running = start(request_table([0] * 4, [20, 20, 0, 64], [11, 12, 1, 1], adapter=[1, 1, 1, 1]), 40)
    assert running.step.status.tolist() == [t.WAITING, t.REJECTED, t.REJECTED, t.REJECTED]


@pytest.mark.slow
def test_a_service_keeps_adapters_in_its_pool() -> None:
    words = {"requests": "drawn(prompt=256, output=64, requests=100, adapters=20)", "rate": 2.0}
    found = gpusim.serve("llama2-7b", "a100-pcie-40gb", engine="slora", lora="rank=16", **words)
    assert found.metrics()["finished"] == 100
    with pytest.raises(GpusimError, match="S-LoRA has no slots"):
        gpusim.serve("llama2-7b", "a100-pcie-40gb", engine="slora", lora="rank=16, max_loras=8", **words)

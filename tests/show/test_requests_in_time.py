"""Requests on a timeline: states that follow each other, lines of their own, memory by owner, the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from browser import opened, started
from command_line import gpusim

from gpusim.api.serving import serve
from gpusim.results.activities import KINDS
from gpusim.show.values.requests_in_time import LANES, requests_in_time
from gpusim.studies.serving.answer import ServingAnswer

FULL = {"requests": "drawn(prompt=1024, output=512, requests=150)", "rate": 8.0, "memory": 0.45}


@pytest.fixture(scope="module")
def found() -> ServingAnswer:
    return serve("llama-8b", "l40s", log=True, **FULL)  # type: ignore[arg-type]


def test_states_of_a_request_follow_each_other_from_its_arrival_to_its_end(found: ServingAnswer) -> None:
    shown, said = requests_in_time(found)
    rows, served = shown.rows, found.served
    own = rows[rows["request"] >= 0]
    numbers = np.unique(own["request"])
    assert said.startswith(f"{len(served.arrival) - len(numbers):,} requests found none of {LANES} lines free")
    for number in numbers:
        mine = own[own["request"] == number]
        assert (mine["start"][1:] == mine["end"][:-1]).all() and len(set(mine["lane"])) == 1
        assert (mine["start"][0], mine["end"][-1]) == (served.arrival[number], served.ended[number])
        words = [KINDS[kind] for kind in mine["kind"]]
        assert words.count("preempted") == served.preemptions[number] and words[-1] == "decode"
        assert mine["end"][words.index("prefill")] == served.first[number]
    assert served.preemptions[numbers].sum() > 0
    for lane in np.unique(own["lane"]):
        there = own[own["lane"] == lane]
        assert (there["start"][1:] >= there["end"][:-1]).all()


def test_steps_fill_the_time_that_engines_are_busy(found: ServingAnswer) -> None:
    shown, _ = requests_in_time(found)
    steps = shown.of_kind("step")
    assert len(steps) == found.served.engines[0].steps
    assert (steps["end"] - steps["start"]).sum() == found.served.engines[0].busy_ns


def test_memory_by_owner_stays_within_what_the_engine_takes(found: ServingAnswer) -> None:
    shown, _ = requests_in_time(found)
    profile = found.service.topology.profile("gpu0")
    assert int(shown.owners["weights"][1][0]) == found.service.model.weight_bytes(1)
    room = found.service.blocks * found.service.spec.block * found.service.model.token_bytes(1)
    assert 0.9 * room < shown.owners["keys and values"][1].max() <= room
    assert shown.counters["allocated"][1].max() < shown.counters["reserved"][1][0] == int(0.45 * profile.memory.capacity.value)


@pytest.mark.slow
def test_the_page_shows_them(tmp_path: Path) -> None:
    words = ("--model", "llama-8b", "--machine", "l40s", "--requests", FULL["requests"], "--rate", "8", "--memory", "0.45")
    done = gpusim("serve", *words, "--log", "-o", tmp_path)
    assert "report.html" in done.stdout
    with started() as chromium, opened(chromium, tmp_path / "report.html") as page:
        page.scroll_through()
        page.wait("!!gpusimPage.shown.timeline")
        assert page.ask("gpusimPage.shown.timeline.tracks.length") == 1 + LANES
        assert page.complaints == [] and page.requests == []


def test_a_page_needs_a_folder() -> None:
    done = gpusim("serve", "--model", "llama-8b", "--machine", "l40s", "--requests", "drawn(prompt=10)", "--log", code=2)
    assert "--log makes a page, and nothing says where (-o FOLDER)" in done.stderr

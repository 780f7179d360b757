"""Do flows share links as an independent simulator says, to 1 ns?

tests/data/maxmin_flows.json: completion times computed with SimGrid 3.32 (its header says how), checked there by exact
rational arithmetic and by hand.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.base.tables import filled, table
from gpusim.engine import state
from gpusim.engine.host.island import run_until
from gpusim.engine.run.side_by_side import enter
from gpusim.engine.state import ENDED, NEVER, SWAP, Instructions, Island, PolicyTables, PolicyVerbs, Processes
from gpusim.policies import contract

pytestmark = pytest.mark.oracle

SCENARIOS = json.loads((Path(__file__).parents[1] / "data" / "maxmin_flows.json").read_text())["scenarios"]


def play(scenario: dict[str, Any]) -> dict[str, int]:
    """Completion time in ns of every flow: one copy queue per flow, no host, the loop that runs every simulation."""
    names = [link["name"] for link in scenario["links"]]
    flows = scenario["flows"]
    n = len(flows)
    queues, ways, at = table(n, state.QUEUE), table(n + 1, state.WAY), 0
    activities = table(n, state.ACTIVITY)
    link = table(len(names), state.LINK)
    link["rate"] = [x["bandwidth"] / 1e9 for x in scenario["links"]]
    lengths = {"Q": n, "A": n, "flows": n + 1, "events": 2 * n + 8}
    route = np.array([names.index(name) for flow in flows for name in flow["route"]], np.int64)
    island = filled(Island, lengths, queues=queues, activities=activities, ways=ways, link=link, route=route)
    island.hosts["state"] = ENDED
    island.clock["queues"], island.fluid["tick"], island.clock["events"] = n, NEVER, n
    moves = []
    for f, flow in enumerate(flows):
        latency = sum(scenario["links"][names.index(name)]["latency"] for name in flow["route"])
        queues["base"][f], queues["pair"][f], queues["slots"][f] = f, -1, 1
        ways["curve"][f + 1], ways["rate"][f + 1] = -1, math.inf
        ways["route"][f + 1], ways["route_end"][f + 1] = at, at + len(flow["route"])
        queues["submitted"][f] = queues["started"][f] = queues["running"][f] = 1
        at += len(flow["route"])
        activities["kind"][f], activities["way"][f] = SWAP, f + 1
        activities["queue"][f], activities["bytes"][f] = f, flow["size"]
        moves.append((round((flow["start"] + latency) * 1e9), f, state.E_MOVE, f))
    for i, event in enumerate(sorted(moves)):  # in order, which is a heap
        island.heap[i] = event
    program = filled(Instructions, {})
    policies = filled(PolicyTables, {"place": contract.HEADER, "verbs": len(PolicyVerbs._fields)})
    processes = filled(Processes, {})
    placed = enter(processes.rows[0], island, program, policies)
    assert placed and run_until(processes, NEVER) == state.FINISHED
    return {flow["name"]: int(activities["end"][f]) for f, flow in enumerate(flows)}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[s["name"] for s in SCENARIOS])
def test_completion_times_agree_with_simgrid(scenario: dict[str, Any]) -> None:
    ends = play(scenario)
    for flow in scenario["flows"]:
        exact = flow["finish"] * 1e9
        assert exact - 1e-3 <= ends[flow["name"]] < exact + 1.0 + 1e-3, flow["name"]


@pytest.mark.parametrize("scenario", [s for s in SCENARIOS if "by_hand" in s], ids=lambda s: s["name"])
def test_completion_times_agree_with_the_hand(scenario: dict[str, Any]) -> None:
    ends = play(scenario)
    for name, seconds in scenario["by_hand"].items():
        assert ends[name] == math.ceil(seconds * 1e9 - 1e-3)


def test_an_end_is_seen_at_the_first_tick_at_which_it_is_true() -> None:
    """1000 bytes at 3 bytes/ns take 333.33 ns: not done at 333, done at 334."""
    scenario = {
        "links": [{"name": "l", "bandwidth": 3e9, "latency": 0.0}],
        "flows": [{"name": "f", "start": 0.0, "size": 1000, "route": ["l"]}],
    }
    assert play(scenario) == {"f": 334}


def test_a_chain_of_ends_does_not_gather_rounding() -> None:
    """A hundred flows of 100 bytes that end one after the other on a link: the last ends when all bytes are through."""
    flows = [{"name": str(i), "start": 0.0, "size": 100 * (i + 1), "route": ["l"]} for i in range(100)]
    ends = play({"links": [{"name": "l", "bandwidth": 3e9, "latency": 0.0}], "flows": flows})
    assert ends["99"] == math.ceil(100 * 5050 / 3)

"""Do copies between the GPUs of a DGX-1 take the time that they took there?

Measured: github.com/uuudown/Tartan @e3166abc3b (MIT), p2pBandwidthLatencyTest and copies by size on a DGX-1 with P100.  The
machine's numbers were read from the copies by size; the matrices are another program's.  GPUSIM_MANY names a folder in which
`p2p_tartan_dgx1.csv` has all rows.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from statistics import median

import pytest
from hand_worked import Steps, machine

from gpusim.engine import state
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.simulate import prepared
from gpusim.machine.topology import build, routes, sharing, transfers
from gpusim.machine.topology.connections import Connections, Meeting
from gpusim.machine.topology.topology import Topology
from gpusim.trace.trace import COLLECTIVE

pytestmark = [pytest.mark.fast, pytest.mark.oracle]
ROWS = Path(os.environ.get("GPUSIM_MANY", ""), "p2p_tartan_dgx1.csv")
PAIRS = {  # an example of each class of pairs
    "nvlink": (0, 1), "same_switch_pair": (2, 3), "same_socket_other_switch": (0, 2),
    "other_socket": (0, 4), "no_nvlink_other_socket": (0, 5),
}  # fmt: skip
SAMPLE = [  # source, destination, direct access, bytes, GB/s
    (0, 3, True, 40_000_000, 18.41), (0, 4, True, 40_000_000, 18.41), (5, 7, True, 40_000_000, 18.41),
    (2, 3, False, 40_000_000, 9.17), (4, 5, False, 40_000_000, 9.19), (7, 6, False, 40_000_000, 9.19),
    (0, 2, False, 40_000_000, 10.76), (2, 4, False, 40_000_000, 10.05), (4, 6, False, 40_000_000, 9.77),
    (4, 0, False, 40_000_000, 10.06), (3, 6, False, 40_000_000, 10.09),
    (0, 1, True, 262_144, 10.926), (0, 1, True, 1_048_576, 15.78), (0, 5, True, 2_097_152, 6.986),
    (2, 3, False, 1_048_576, 5.26), (2, 3, False, 8_388_608, 8.713), (0, 2, False, 33_554_432, 10.022),
    (0, 4, False, 8_388_608, 9.324), (0, 4, False, 67_108_864, 10.327), (2, 3, False, 134_217_728, 9.533),
]  # fmt: skip


@pytest.fixture(scope="module")
def dgx1() -> Topology:
    return build.load("dgx-1-p100")


def time(made: Topology, a: int, b: int, direct: bool, size: int) -> float:
    """ns of a copy alone."""
    return transfers.time_alone(made, routes.between(made, f"gpu{a}", f"gpu{b}", direct=direct), size)


@pytest.mark.parametrize("a, b, direct, size, rate", SAMPLE)
def test_do_copies_reach_the_rate_that_was_measured(dgx1, a, b, direct, size, rate):
    assert size / time(dgx1, a, b, direct, size) == pytest.approx(rate, rel=0.06)


def test_are_pairs_without_links_never_between_the_two_ways(dgx1):
    """18.4 GB/s over one link, 9.2 to 10.9 without: nothing is forwarded over a third GPU."""
    for a in range(8):
        for b in range(8):
            if a != b:
                rate = 40e6 / time(dgx1, a, b, True, 40_000_000)
                assert rate > 18 if (f"gpu{a}", f"gpu{b}") in dgx1.links else 9 < rate < 10.9


def test_staged_copies_below_one_switch_are_slower_than_across(dgx1):
    """Both halves of the copy pass one uplink; where each direction has its own rate alone, the sign is gone."""
    same, across = time(dgx1, 2, 3, False, 1 << 26), time(dgx1, 2, 4, False, 1 << 26)
    assert same > 1.05 * across  # 7047 against 6511 us
    assert time(dgx1, 2, 3, False, 1 << 18) == pytest.approx(time(dgx1, 2, 4, False, 1 << 18))  # one chunk: in turn
    text = (Path(__file__).parents[2] / "hardware_profiles/machines/dgx-1-p100.yaml").read_text()
    wide = "\n".join(line for line in text.splitlines() if "both:" not in line and "uplink: " not in line)
    assert time(build.loads(wide), 2, 3, False, 1 << 26) == pytest.approx(time(build.loads(wide), 2, 4, False, 1 << 26))


@pytest.mark.skipif(not ROWS.is_file(), reason="GPUSIM_MANY names no folder with p2p_tartan_dgx1.csv")
def test_how_far_off_are_all_rows(dgx1):
    errors: dict[str, list[float]] = {"on": [], "off": []}
    with ROWS.open(newline="") as file:
        for row in csv.DictReader(file):
            said = dict(pair.split("=", 1) for pair in row["parameters"].split(";"))
            if said.get("link") == "self":
                continue
            a, b = (int(said["src"]), int(said["dst"])) if "src" in said else PAIRS[said["class"]]
            ns = time(dgx1, a, b, said["p2p"] == "on", int(said["bytes"]))
            found = int(said["bytes"]) / ns if row["unit"] == "GB/s" else ns / 1e3
            errors[said["p2p"]].append(abs(found / float(row["value"]) - 1))
    assert sum(map(len, errors.values())) == 273
    for each in (*errors.values(), errors["on"] + errors["off"]):
        each.sort()
        assert median(each) <= 0.05 and each[int(0.9 * len(each))] <= 0.15


def both_ways(made: Topology, a: str, b: str, size: int) -> float:
    """ns until two staged copies between two GPUs in opposite directions have ended, on the engine's clock."""
    links = sharing.shared(made, [a, b])
    meetings, steps = [], [Steps(), Steps()]
    for stream, (x, y) in enumerate(((a, b), (b, a))):
        for k, flow in enumerate(transfers.flows(made, routes.between(made, x, y, direct=False), size)):
            for each in steps:
                each.carry(COLLECTIVE, stream, 1)
            route = links.route(flow.links)
            number = 3 * stream + k
            meetings.append(Meeting(((0, number), (1, number)), round(flow.latency), flow.size, flow.rate, route))
    profile = machine({"link.h2d": 12.35e9, "link.d2h": 13.2e9, "link.both": 24.3e9}, "p100-sxm2-16gb")
    runs = [prepared(each.trace(), profile, place="device", log=True) for each in steps]
    Coupled([run.simulation for run in runs], Connections(links.rates, links.beyond, meetings)).advance(state.NEVER)
    return max(run.result().metrics["makespan_ns"] for run in runs)


@pytest.mark.slow
def test_copies_in_both_directions_share_the_uplink(dgx1):
    """GB/s of both together: 9.3 to 10.6 below one switch, 17 to 18 elsewhere (measured with p2pBandwidthLatencyTest)."""
    size = 40_000_000
    below, across = (2 * size / both_ways(dgx1, "gpu2", other, size) for other in ("gpu3", "gpu4"))
    assert 9.3 < below < 10.6 and 16 < across < 19.4

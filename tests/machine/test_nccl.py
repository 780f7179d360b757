"""Is the estimate of a collective that of NCCL itself, and so the choice that follows from it?

The sample's answers are printed by NCCL's own text (src/graph/tuning.cc, github.com/NVIDIA/nccl @5067397c), compiled with
stubs for the communicator; GPUSIM_MANY names a folder in which `nccl_model_cases.csv` has all of them.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from gpusim.base.errors import GpusimError
from gpusim.machine.collectives.nccl import Channels, Communicator, choice, time, ways

pytestmark = [pytest.mark.fast, pytest.mark.oracle]
CASES = Path(os.environ.get("GPUSIM_MANY", ""), "nccl_model_cases.csv")

DGX_A100 = Communicator(80, 1, 8, Channels(12, 20), Channels(12, 20), cpu="amd")
TWO_DGX_A100 = Communicator(80, 2, 8, Channels(12, 20), Channels(12, 20), cpu="amd", nic_latency=0.5)
DGX_1 = Communicator(70, 1, 8, Channels(12, 20), Channels(12, 20))
HGX_H100 = Communicator(90, 1, 8, Channels(16, 20), Channels(16, 20), Channels(16, 20))
TWO_HGX_H100 = Communicator(90, 2, 8, Channels(16, 20), Channels(16, 20), Channels(16, 20), nic_latency=0.5)
FOUR_HGX_H100 = Communicator(90, 4, 8, Channels(8, 40), Channels(8, 40), Channels(8, 40), nic_latency=0.5)
SOCKETS = Communicator(89, 2, 1, Channels(2, 1.2), Channels(2, 1.2), ll128=False)

SAMPLE = [  # latency in us and rate in GB/s as printed; then bytes and the time in us
    (SOCKETS, "AllGather", "Ring", "LL", "11.6", "2.4", 1024, 12.02667),
    (SOCKETS, "AllGather", "PAT", "Simple", "17.6", "1.8", 1 << 30, 596540.8),
    (SOCKETS, "Broadcast", "Ring", "Simple", "22.4", "2.4", 1 << 20, 459.3067),
    (SOCKETS, "AllReduce", "Tree", "LL", "16.8", "0.290526", 1 << 15, 177.9263),
    (SOCKETS, "AllReduce", "Ring", "Simple", "36.4", "2.4", 1024, 51.38667),
    (DGX_A100, "Reduce", "Ring", "LL", "7.2", "87.7", 1 << 30, 12250.55),
    (DGX_A100, "AllReduce", "Tree", "LL128", "31.5", "85.8667", 1 << 20, 51.85279),
    (DGX_A100, "AllReduce", "Ring", "Simple", "56", "137.143", 1 << 25, 300.6677),
    (TWO_DGX_A100, "AllGather", "Ring", "LL", "37.8", "24", 1 << 15, 39.16533),
    (TWO_DGX_A100, "AllReduce", "Ring", "Simple", "206.4", "128", 1024, 206.408),
    (TWO_DGX_A100, "AllReduce", "Ring", "Simple", "206.4", "128", 1 << 15, 289.216),
    (DGX_1, "AllReduce", "Ring", "LL", "15", "22.2857", None, None),
    (HGX_H100, "AllGather", "NVLS", "Simple", "25", "223.125", None, None),
    (HGX_H100, "AllReduce", "NVLS", "Simple", "25", "182.857", None, None),
    (TWO_HGX_H100, "AllReduce", "NVLSTree", "Simple", "68.8", "272", None, None),
    (FOUR_HGX_H100, "AllReduce", "Tree", "LL128", "67.5", "116", None, None),
    (FOUR_HGX_H100, "AllReduce", "NVLSTree", "Simple", "112.6", "165.161", None, None),
]  # fmt: skip


def estimate(comm, collective, algorithm, protocol):
    return next(w for w in ways(comm, collective) if (w.algorithm, w.protocol) == (algorithm, protocol))


@pytest.mark.parametrize("comm, collective, algorithm, protocol, latency, rate, size, us", SAMPLE)
def test_are_latency_rate_and_time_those_of_nccl(comm, collective, algorithm, protocol, latency, rate, size, us):
    found = estimate(comm, collective, algorithm, protocol)
    assert (f"{found.latency:.6g}", f"{found.rate:.6g}") == (latency, rate)
    if size:
        assert time(comm, collective, found, size) == pytest.approx(us, rel=1e-6)


@pytest.mark.skipif(not CASES.is_file(), reason="GPUSIM_MANY names no folder with nccl_model_cases.csv")
def test_is_every_answer_of_nccl_met():
    with CASES.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 920
    for row in rows:
        numbers = {key.split("(")[0]: value for key, value in row.items()}
        graphs = [Channels(int(numbers[f"{g}_channels"]), float(numbers[f"{g}_bw"])) for g in ("ring", "tree", "nvls")]
        comm = Communicator(
            int(row["cc"]), int(row["nodes"]), int(row["ranks_per_node"]), graphs[0], graphs[1],
            graphs[2] if graphs[2].count else None, cpu={"1": "intel", "2": "amd"}[numbers["cpu_vendor"]],
            nvlink=numbers["type_intra"] == "1", nic_latency=float(numbers["latency_inter_us"]),
        )  # fmt: skip
        found = estimate(comm, row["collective"], row["algorithm"], row["protocol"])
        printed = f"{float(row['latency_us']):.6g}", f"{float(row['algbw_GBps']):.6g}"
        assert (f"{found.latency:.6g}", f"{found.rate:.6g}") == printed, row
        assert time(comm, row["collective"], found, int(row["bytes"])) == pytest.approx(float(row["time_us"]), rel=1e-6), row


@pytest.mark.parametrize(
    "comm, size, wanted",
    [  # the least of the times printed for that size
        (DGX_A100, 1024, ("Ring", "LL")),
        (DGX_A100, 1 << 25, ("Ring", "Simple")),
        (TWO_DGX_A100, 1 << 15, ("Tree", "LL")),
        (TWO_DGX_A100, 1 << 20, ("Tree", "LL128")),
        (TWO_DGX_A100, 1 << 30, ("Ring", "Simple")),
        (SOCKETS, 1 << 15, ("Ring", "LL")),
    ],
)
def test_is_the_fastest_way_chosen(comm, size, wanted):
    chosen = choice(comm, "AllReduce", size)
    assert (chosen.algorithm, chosen.protocol) == wanted
    assert time(comm, "AllReduce", chosen, size) == min(time(comm, "AllReduce", w, size) for w in ways(comm, "AllReduce"))


def test_which_ways_does_a_communicator_have():
    assert {w.algorithm for w in ways(HGX_H100, "AllReduce")} == {"Ring", "Tree", "NVLS"}
    assert {w.algorithm for w in ways(TWO_HGX_H100, "AllReduce")} == {"Ring", "Tree", "NVLSTree"}
    assert {w.algorithm for w in ways(TWO_HGX_H100, "AllGather")} == {"Ring"}
    assert {w.protocol for w in ways(SOCKETS, "AllReduce")} == {"LL", "Simple"}


def test_is_a_collective_of_one_rank_refused():
    with pytest.raises(GpusimError, match="at least two ranks, not 1"):
        list(ways(Communicator(80, 1, 1, Channels(1, 1), Channels(1, 1)), "AllReduce"))

"""Numbers of NCCL's estimate of a collective's time: src/graph/tuning.cc of github.com/NVIDIA/nccl @5067397c (Apache-2.0).

Times in us, rates in GB/s.  Of three numbers of a generation the first is for one node, the second for two, the third for more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

Collective = Literal["AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce"]
Algorithm = Literal["Ring", "Tree", "NVLS", "NVLSTree", "PAT"]
Protocol = Literal["LL", "LL128", "Simple"]
Generation = Literal["Volta", "Ampere", "Hopper", "Blackwell"]
Medium = Literal["nvlink", "pci", "net"]
Entry = TypeVar("Entry")
OfNodes = dict[Generation, tuple[float, float, float]]

PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")

BASE_LATENCY: dict[Algorithm, tuple[float, float, float]] = {  # by protocol, as in PROTOCOLS
    "Tree": (6.8, 14.0, 8.4), "Ring": (6.6, 14.0, 8.4), "PAT": (8.0, 8.0, 8.0),
    "NVLS": (0.0, 0.0, 0.0), "NVLSTree": (0.0, 0.0, 0.0),
}  # fmt: skip
STEP_LATENCY: dict[tuple[Medium, Algorithm], tuple[float, float, float]] = {
    ("nvlink", "Tree"): (0.6, 1.25, 4.0), ("nvlink", "Ring"): (0.6, 1.9, 3.4), ("nvlink", "PAT"): (0.0, 0.0, 4.0),
    ("nvlink", "NVLS"): (0.0, 0.0, 25.0), ("nvlink", "NVLSTree"): (0.0, 0.0, 25.0),
    ("pci", "Tree"): (1.0, 1.9, 4.0), ("pci", "Ring"): (1.0, 2.5, 5.7), ("pci", "PAT"): (0.0, 0.0, 4.0),
    ("pci", "NVLS"): (0.0, 0.0, 0.0), ("pci", "NVLSTree"): (0.0, 0.0, 0.0),
    ("net", "Tree"): (5.0, 8.5, 14.0), ("net", "Ring"): (2.7, 4.0, 14.0), ("net", "PAT"): (0.0, 0.0, 14.0),
    ("net", "NVLS"): (0.0, 0.0, 18.0), ("net", "NVLSTree"): (0.0, 0.0, 20.9),
}  # fmt: skip

LL_MOST: OfNodes = {
    "Volta": (39.0, 39.0, 20.4), "Ampere": (87.7, 22.5, 19.0), "Hopper": (141.0, 45.0, 35.0), "Blackwell": (282.0, 90.0, 70.0),
}  # fmt: skip
RING_LL128_PER_CHANNEL: OfNodes = {
    "Volta": (20.0, 20.0, 20.0), "Ampere": (20.0, 20.0, 20.0), "Hopper": (36.7, 36.7, 36.7), "Blackwell": (40.0, 40.0, 40.0),
}  # fmt: skip
TREE_LL128_PER_CHANNEL: OfNodes = {
    "Volta": (20.0, 20.0, 20.0), "Ampere": (20.0, 20.0, 20.0), "Hopper": (36.7, 36.7, 29.0), "Blackwell": (55.6, 31.67, 20.0),
}  # fmt: skip
TREE_PER_CHANNEL: OfNodes = {
    "Volta": (26.5, 18.5, 10.0), "Ampere": (24.0, 23.6, 17.8), "Hopper": (38.7, 41.4, 36.0), "Blackwell": (70.0, 42.8, 24.0),
}  # fmt: skip
NVLS_TREE_PER_CHANNEL: OfNodes = {
    "Volta": (26.5, 18.5, 10.0), "Ampere": (24.0, 23.6, 17.8), "Hopper": (0.0, 57.7, 45.5), "Blackwell": (0.0, 96.0, 80.0),
}  # fmt: skip
NVLS_EFFICIENCY: dict[Generation, float] = {"Volta": 0.85, "Ampere": 0.85, "Hopper": 0.85, "Blackwell": 0.74}

# What is left of a tree's rate for messages of 64 bytes, 128 bytes and so on.
TREE_LEFT: dict[Protocol, tuple[float, ...]] = {
    "LL": (1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1),
    "LL128": (1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1),
    "Simple": (.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9),
}  # fmt: skip


def generation(capability: int) -> Generation:
    """Of a compute capability, written 80 for 8.0."""
    return "Blackwell" if capability >= 100 else "Hopper" if capability >= 90 else "Ampere" if capability >= 80 else "Volta"


# The rest is of the search for graphs: src/graph/topo.h, search.cc and connect.cc, src/enqueue.cc and src/transport/nvls.cc.
NVLINK_SHARE: dict[int, float] = {60: 18 / 20, 70: 20 / 25, 80: 20 / 25, 86: 12 / 14.0625, 90: 20.6 / 25, 100: 40.1 / 50}
"""Of nominal, by the lowest compute capability from which it holds."""
PCIE_SHARE = 12 / 15.75
SPEEDS_WITHIN: dict[int, tuple[float, ...]] = {  # tried per channel on one node, by compute capability
    0: (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    90: (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    100: (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
}  # fmt: skip
SPEEDS_BETWEEN: dict[int, tuple[float, ...]] = {
    0: (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, .24, .12),
    90: (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, .24, .12),
    100: (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, .24, .12),
}  # fmt: skip
MOST_CHANNELS = 64
MOST_HEADS = 32
"""GPUs from which NVSwitches reduce."""
SWITCH_BLOCKS: dict[Generation, tuple[int, int]] = {"Hopper": (16, 16), "Blackwell": (24, 32)}
"""Thread blocks of NVLS on one node and on several."""
THREADS: dict[Protocol, int] = {"LL": 512, "LL128": 640, "Simple": 512}
THREAD_BYTES: dict[Protocol, int] = {"LL": 8, "LL128": 8, "Simple": 64}
"""Bytes of the message for each thread below which there are fewer channels; of LL in rings for each rank."""


def newest(table: Mapping[int, Entry], capability: int) -> Entry:
    """The entry for a compute capability: that of the last one that is not above it, or the first."""
    return table[max((key for key in table if key <= capability), default=min(table))]

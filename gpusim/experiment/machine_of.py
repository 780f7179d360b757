"""What the program of one run has of the machine that the experiment names: the GPU, and where that is one of several, all."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from gpusim.base.yaml import document
from gpusim.experiment.layouts import load_whole
from gpusim.machine import variant
from gpusim.machine.profile import Profile
from gpusim.machine.topology.topology import Topology


def whole(file: Path, word: str) -> Topology | None:
    """The machine of several GPUs that a word means whose file has been found; None where it is a profile."""
    return load_whole(file, word) if _has_nodes(file, file.stat().st_mtime_ns) else None


def gpu(file: Path, word: str) -> Profile:
    """The profile, or that of the first GPU of the machine."""
    machine = whole(file, word)
    return variant.load(file, word) if machine is None else machine.profile(next(iter(machine.gpus)))


@lru_cache(maxsize=64)
def _has_nodes(file: Path, stamp: int) -> bool:
    data = document.read(file).data
    return isinstance(data, dict) and "nodes" in data

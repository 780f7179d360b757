"""What people could run instead: other settings of PyTorch's allocator, and other allocators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpusim.errors import PolicyError
from gpusim.policies import registry

CONF = "PYTORCH_CUDA_ALLOC_CONF"


@dataclass(frozen=True)
class Candidate:
    """An allocator with its parameters, and what a user does to get it ("" when it cannot simply be had)."""

    place: str
    params: tuple[tuple[str, Any], ...] = ()
    how: str = ""

    @property
    def spec(self) -> dict[str, Any]:
        return {"name": self.place, "params": dict(self.params)}


def pytorch(conf: str) -> Candidate:
    """PyTorch's allocator with these settings, written as in the environment variable."""
    return Candidate("pytorch", (("conf", conf),) if conf else (), f"{CONF}={conf}" if conf else "the default")


# Settings that change where blocks go, each alone; values are those that PyTorch's own notes and users try first.
SETTINGS = (
    "", "expandable_segments:True", "max_split_size_mb:128", "max_split_size_mb:512", "roundup_power2_divisions:8",
    "large_segment_size_mb:64",
)  # fmt: skip
RMM = "rmm.reinitialize({}); torch.cuda.memory.change_current_allocator(rmm_torch_allocator)"
OTHERS = (
    Candidate("cuda_async", (), f"{CONF}=backend:cudaMallocAsync"),
    Candidate("rmm_pool", (), RMM.format("pool_allocator=True")),
    Candidate("rmm_arena", (), RMM.format("ArenaMemoryResource")),
    Candidate("bfc", (), "the allocator of TensorFlow and JAX"),
    Candidate("gmlake", (), "GMLake's build of PyTorch"),
    Candidate("best_fit"),
    Candidate("tlsf"),
    Candidate("buddy"),
)


def default(current: str) -> list[Candidate]:
    """The settings worth trying and the other allocators; `current` are the settings that the recording was made with."""
    settings = dict.fromkeys((current, *SETTINGS))
    return [*map(pytorch, settings), *OTHERS]


def named(names: Iterable[str]) -> list[Candidate]:
    """Candidates from the command line: "bfc", "tlsf(min_rest=1)", or settings of PyTorch such as "max_split_size_mb:64"."""
    found = []
    for name in names:
        if ":" in name and "(" not in name:
            found.append(pytorch(name))
            continue
        place, given = registry.parse(name)
        known = next((c for c in OTHERS if c.place == place), Candidate(place))
        found.append(Candidate(place, tuple(given.items()), known.how))
    for candidate in found:
        registry.bind(registry.find("place", candidate.place), candidate.spec["params"])
    if not found:
        raise PolicyError("there is no allocator to try", hint="gpusim policies lists them")
    return found

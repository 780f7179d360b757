"""What people could run instead: other settings of PyTorch's allocator, and other allocators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from gpusim.errors import PolicyError
from gpusim.policies import registry
from gpusim.trace.trace import Trace

CONF = "PYTORCH_CUDA_ALLOC_CONF"


@dataclass(frozen=True)
class Candidate:
    """An allocator with its parameters.

    how     what a user does to get it
    family  the programs that can switch to it in that way: "pytorch", "rmm"; "" when none simply can
    """

    place: str
    params: tuple[tuple[str, Any], ...] = ()
    how: str = ""
    family: str = ""

    @property
    def spec(self) -> dict[str, Any]:
        return {"name": self.place, "params": dict(self.params)}


def pytorch(conf: str) -> Candidate:
    """PyTorch's allocator with these settings, written as in the environment variable."""
    return Candidate("pytorch", (("conf", conf),) if conf else (), f"{CONF}={conf}" if conf else "the default", "pytorch")


# Settings that change where blocks go, each alone; values are those that PyTorch's own notes and users try first.
SETTINGS = (
    "", "expandable_segments:True", "max_split_size_mb:128", "max_split_size_mb:512", "roundup_power2_divisions:8",
    "large_segment_size_mb:64",
)  # fmt: skip
ASYNC = "cuda_async", ()
OTHERS = (
    Candidate("best_fit"),
    Candidate("tlsf"),
    Candidate("buddy"),
    Candidate("bfc", (), "the allocator of TensorFlow and JAX"),
    Candidate("gmlake", (), "GMLake's build of PyTorch"),
)
RMM = (
    Candidate("rmm_pool", (), "rmm.mr.PoolMemoryResource", "rmm"),
    Candidate("rmm_arena", (), "rmm.mr.ArenaMemoryResource", "rmm"),
    Candidate("rmm_binning", (), "rmm.mr.BinningMemoryResource", "rmm"),
)


def default(trace: Trace) -> list[Candidate]:
    """What a program of this kind could run with, first what it did; then other allocators, for comparison."""
    if trace.meta.get("format") == "rmm":
        streams = list(trace.meta.get("streams") or [])
        # The null stream and the legacy stream are one to RMM; the trace numbers them apart.
        legacy = (("legacy", streams.index("0x1")),) if "0x1" in streams else ()
        own = [replace(c, params=legacy) if c.place != "rmm_arena" else c for c in RMM]
        return [*own, Candidate(*ASYNC, "rmm.mr.CudaAsyncMemoryResource", "rmm"), pytorch(""), *OTHERS]
    settings = dict.fromkeys((str(trace.meta.get("alloc_conf") or ""), *SETTINGS))
    return [
        *map(pytorch, settings), Candidate(*ASYNC, f"{CONF}=backend:cudaMallocAsync", "pytorch"), *RMM[:2], *OTHERS,
    ]  # fmt: skip


def lasting() -> list[Candidate]:
    """For a program that was never recorded."""
    return [*map(pytorch, SETTINGS[:2]), Candidate(*ASYNC), *RMM[:2], *OTHERS]


def named(names: Iterable[str]) -> list[Candidate]:
    """Candidates from the command line: "bfc", "tlsf(min_rest=1)", or settings of PyTorch such as "max_split_size_mb:64"."""
    found = []
    for name in names:
        if ":" in name and "(" not in name:
            found.append(pytorch(name))
            continue
        place, given = registry.parse(name)
        known = next((c for c in (*RMM, *OTHERS) if c.place == place), Candidate(place))
        found.append(replace(known, params=tuple(given.items())))
    for candidate in found:
        registry.bind(registry.find("place", candidate.place), candidate.spec["params"])
    if not found:
        raise PolicyError("there is no allocator to try", hint="gpusim policies lists them")
    return found

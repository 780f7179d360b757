"""What people could run instead: other settings of PyTorch's allocator, and other allocators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from gpusim.base import calls
from gpusim.base.errors import PolicyError
from gpusim.policies.registry import SHIPPED, Registry, bind
from gpusim.trace.trace import Trace

CONF = "PYTORCH_CUDA_ALLOC_CONF"
DRIVER = "backend:cudaMallocAsync"


@dataclass(frozen=True)
class Candidate:
    """An allocator with its parameters.

    how       what a user does to get it
    family    the programs that can switch to it in that way: "pytorch", "rmm"; "" when none simply can
    policies  where `place` is looked up: the built-in policies, or those with a user's own
    """

    place: str
    params: tuple[tuple[str, Any], ...] = ()
    how: str = ""
    family: str = ""
    policies: Registry = field(default=SHIPPED, compare=False, repr=False)

    @property
    def label(self) -> str:
        """A name for tables: PyTorch's settings, or an allocator with what is not its default."""
        if self.place == "pytorch":
            return str(dict(self.params).get("conf", "")) or "default settings"
        if self == pytorch(DRIVER):
            return DRIVER
        given = ", ".join(f"{name}={value}" for name, value in self.params)
        return f"{self.place}({given})" if given else self.place

    @property
    def spec(self) -> dict[str, Any]:
        return {"name": self.place, "params": dict(self.params)}

    def policy(self, **others: Any) -> Any:
        """The allocator, ready to run; `others` are parameters that the candidate leaves open.  Raises PolicyError."""
        return self.policies.get("place", {"name": self.place, "params": {**others, **dict(self.params)}})


def pytorch(conf: str) -> Candidate:
    """The allocator of PyTorch with these settings, written as in the environment variable, its name before them or not."""
    conf = conf.strip().removeprefix(f"{CONF}=").removeprefix("PYTORCH_ALLOC_CONF=")
    if conf.replace(" ", "") == DRIVER:  # the only setting of another allocator
        return Candidate("cuda_async", (), f"{CONF}={DRIVER}", "pytorch")
    return Candidate("pytorch", (("conf", conf),) if conf else (), f"{CONF}={conf}" if conf else "the default", "pytorch")


# Settings that change where blocks go, each alone; values are those that PyTorch's own notes and users try first.
SETTINGS = (
    "", "expandable_segments:True", "max_split_size_mb:128", "max_split_size_mb:512", "roundup_power2_divisions:8",
    "large_segment_size_mb:64",
)  # fmt: skip
OTHERS = (
    Candidate("best_fit"),
    Candidate("tlsf"),
    Candidate("buddy"),
    Candidate("bfc", (), "the allocator of TensorFlow and JAX"),
    Candidate("gmlake", (), "GMLake's build of PyTorch"),
)
RMM = (
    # Beginning with nothing: what a pool takes at once is a size that its user chooses, and says nothing of the program.
    Candidate("rmm_pool", (("initial", 0),), "rmm.mr.PoolMemoryResource(initial_pool_size=0)", "rmm"),
    Candidate("rmm_arena", (), "rmm.mr.ArenaMemoryResource (takes half of the device at once)", "rmm"),
    Candidate("rmm_binning", (), "rmm.mr.BinningMemoryResource", "rmm"),
)


def default(trace: Trace) -> list[Candidate]:
    """What a program of this kind could run with, first what it did."""
    if trace.meta.get("format") == "rmm":
        streams = list(trace.meta.get("streams") or [])
        # The null stream and the legacy stream are one to RMM; the trace numbers them apart.
        legacy = (("legacy", streams.index("0x1")),) if "0x1" in streams else ()
        own = [replace(c, params=c.params + legacy) if c.place != "rmm_arena" else c for c in RMM]
        return [*own, Candidate("cuda_async", (), "rmm.mr.CudaAsyncMemoryResource", "rmm")]
    return [pytorch(conf) for conf in dict.fromkeys((str(trace.meta.get("alloc_conf") or ""), *SETTINGS))]


def advisable(trace: Trace) -> list[Candidate]:
    """What the program ran with, then what could be advised instead: settings of the same allocator."""
    return [c for c in default(trace) if c.place == "pytorch"]


def others(trace: Trace) -> list[Candidate]:
    """Allocators that a program of this kind cannot simply run with, or whose model is not checked against a real one."""
    return [*([pytorch("")] if trace.meta.get("format") == "rmm" else [pytorch(DRIVER), *RMM[:1]]), *OTHERS]


def lasting(names: Iterable[str] = (), own: Registry = SHIPPED) -> list[Candidate]:
    """For a program that was never recorded: PyTorch's default, then the candidates of these names, else what it could use."""
    names = tuple(names)
    found = named(names, own) if names else [pytorch(SETTINGS[1]), pytorch(DRIVER), *RMM[:1], *OTHERS]
    return list(dict.fromkeys((pytorch(SETTINGS[0]), *found)))


def beside(trace: Trace, names: Iterable[str], own: Registry = SHIPPED) -> list[Candidate]:
    """What the program ran with, to compare with, then the candidates of these names."""
    return list(dict.fromkeys((default(trace)[0], *named(names, own))))


def named(names: Iterable[str], own: Registry = SHIPPED) -> list[Candidate]:
    """Candidates from the command line: "bfc", "tlsf(min_rest=1)", or settings of PyTorch such as "max_split_size_mb:64".

    own  the policies that can be named
    """
    found = []
    for name in names:
        if ":" in name and "(" not in name:
            found.append(pytorch(name))
            continue
        place, given = calls.parse(name)
        if place == "pytorch" and given.keys() <= {"conf"}:
            found.append(pytorch(str(given.get("conf", ""))))
            continue
        known = next((c for c in (*RMM, pytorch(DRIVER), *OTHERS) if c.place == place), Candidate(place, policies=own))
        found.append(replace(known, params=tuple(given.items()) or known.params))
    for candidate in found:
        bind(candidate.policies.find("place", candidate.place), candidate.spec["params"])
    if not found:
        raise PolicyError("there is no allocator to try", hint="gpusim policies lists them")
    return found

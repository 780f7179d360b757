"""Several programs on one GPU: how its multiprocessors pass among them.

Time slices.  The driver keeps a list of turns, the runlist; a program with nothing to run is passed over at once.  A turn ends
with its slice, or when the program has nothing to run and another has.  What a switch costs is `fixed` and the state of the
kernels that leave and come back, `state` bytes of each multiprocessor that they have, through the memory.
Source of the rules: NVIDIA/open-gpu-kernel-modules @df1c9a3de, ctrla06c.h (levels), kernel_fifo_gv100.c (slice: 128 << 3 us).
The runlist itself is written by the firmware of the GPU since Turing (`kfifoChannelGroupSetTimesliceSched` does nothing), whose
source is not public: turns lasted twice as long on both GPUs that were measured.

MPS.  Kernels of all programs run at once.  A cap bounds how many multiprocessors a program has.  Where caps are 100 % at most
in all, each program has its own, as on an H100 (`caps=apart`); else, or `caps=first`, all begin with the same ones, a cap
reserves none, and programs of small caps have theirs together with those of large ones.  The kernels of a program lie evenly
over its multiprocessors.  Blocks begin where others end: those of better priorities first, then those of the kernel that came
first (`yields=blocks`).  So a kernel in one wave keeps what it has to its end.  One in W waves keeps all until its last blocks
have begun, when those that run are half done and half a wave of its work is left; then it shares max-min with the first of
those that wait.  The two bounds of this: kernels in waves give way at once, as if their blocks were short (`waves`), or at
their ends, as if they were long (`kernels`).  No vendor states this; docs/tenants.md has what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpusim.base.errors import GpusimError, suggest
from gpusim.base.units import BYTES, TIME, parse
from gpusim.base.yaml.values import PolicySpec, policy
from gpusim.machine.profile import Profile
from gpusim.machine.sharing import percentage

SLICES, MPS = WAYS = ("time_slices", "mps")
LOW, MEDIUM, HIGH = LEVELS = ("low", "medium", "high")
WAVES, KERNELS, BLOCKS = YIELDS = ("waves", "kernels", "blocks")
FIRST, APART = PLACES = ("first", "apart")
DRIVER_SLICE_NS = 1_024_000  # TIMEOUT_128 << SCALE_3, in us, where the driver writes the runlist: before Turing, and on Tegra
SLICE_NS = 2 * DRIVER_SLICE_NS  # of others, as measured
TURING, TEGRA = 7.5, (8.7, 11.0)  # compute capabilities
OWN_SLICE = 0  # of a seat: what a turn lasts on its GPU
_USUAL = "that of most GPUs is 2048 us"
MOST_CLIENTS = 48  # of an MPS server since Volta

# What a switch costs: inferred from 12,000 kernels of six processes on an RTX 5090 (eunomia-bpf/gpu_ext @3f4cc2d, MIT), as
# `calibrate.sharing.time_slices` does it; 95 % of the medians over 60 processes lie between the two numbers behind each.
MEASURED_SLICE_NS = 2_042_000  # 2.035, 2.054 ms: that of SLICE_NS on that GPU
SWITCH_NS = 219_000  # 0.208, 0.226 ms from one process to the next, both with a kernel on all 170 multiprocessors
STATE_NS = 116_000  # 0.092, 0.152 ms of it to save the one's state and to restore the other's, at 1792 bytes/ns
FIXED_NS = SWITCH_NS - STATE_NS
STATE = round(STATE_NS / 2 * 1792 / 170)  # bytes of a multiprocessor, if all go at the memory's full rate: 611 KB
# The same of an H100, whose kernels noted when they did not run (calibrate/data/h100_sxm/time_slices.csv): 0.236 ms with both
# on all 132 multiprocessors, 0.152 with one block each.
HBM_SWITCH_NS, HBM_FIXED_NS = 236_000, 152_000
HBM_STATE = round((HBM_SWITCH_NS - HBM_FIXED_NS) / 2 * 3352 / 132)  # 1.07 MB


@dataclass(frozen=True)
class Tenant:
    """What a program has of the GPU.

    slice     ns that it runs in a turn, of time slices
    level     how often it has a turn: low, medium, high
    priority  of an MPS client: 0 normal, 1 below normal; the lower goes first
    """

    slice: int = SLICE_NS
    level: str = LOW
    priority: int = 0


@dataclass(frozen=True)
class Switch:
    """What a change of turns costs.

    fixed      ns
    state      bytes of each multiprocessor that a kernel has when it leaves, and again when it comes back
    bandwidth  of the GPU's memory, bytes/ns
    slice  ns: how long a turn lasts of which nothing is said
    """

    fixed: float = FIXED_NS
    state: int = STATE
    bandwidth: float = float("inf")
    slice: int = SLICE_NS

    @property
    def of_a_processor(self) -> float:
        """ns to save or to restore what one multiprocessor holds."""
        return self.state / self.bandwidth


def switch_of(gpu: Profile) -> Switch:
    """What a change of turns costs on this GPU: as on an H100 where its memory is HBM, else as on an RTX 5090, with this one's
    bandwidth; and how long a turn is there."""
    bandwidth, capability = float(gpu.memory.bandwidth.value) / 1e9, float(gpu.gpu.compute_capability)
    length = DRIVER_SLICE_NS if capability < TURING or capability in TEGRA else SLICE_NS
    if gpu.memory.kind.startswith("HBM"):
        return Switch(HBM_FIXED_NS, HBM_STATE, bandwidth, length)
    return Switch(bandwidth=bandwidth, slice=length)


@dataclass(frozen=True)
class Tenancy:
    """How several programs have one GPU, a tenant each in order.  Raises GpusimError for what the driver does not offer.

    yields  kernels that run in waves keep what they have until their last blocks have begun (blocks), to their ends (kernels),
            or give way to better priorities at once and share evenly with equal ones (waves); else all come in order of arrival
    apart   MPS clients have multiprocessors of their own, as many as their caps say
    """

    way: str
    tenants: tuple[Tenant, ...]
    switch: Switch = Switch()
    yields: str = BLOCKS
    apart: bool = False

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise GpusimError(f"'{self.way}' is no way to share a GPU", hint=suggest(self.way, WAYS))
        if self.way == MPS and len(self.tenants) > MOST_CLIENTS:
            raise GpusimError(f"{len(self.tenants)} programs are more than the {MOST_CLIENTS} clients of an MPS server")
        if self.yields not in YIELDS:
            hint = "blocks: kernels in waves give way when their last blocks have begun; waves: at once; kernels: at their ends"
            raise GpusimError(f"yields is '{self.yields}'", hint=hint)
        for number, tenant in enumerate(self.tenants):
            if tenant.slice <= 0:
                raise GpusimError(f"tenant {number} has a time slice of {tenant.slice} ns", hint=_USUAL)
            if tenant.level not in LEVELS:
                raise GpusimError(f"tenant {number} has the level '{tenant.level}'", hint=suggest(tenant.level, LEVELS))
            if tenant.priority not in (0, 1):
                raise GpusimError(f"tenant {number} has the client priority {tenant.priority}", hint="0 normal, 1 below normal")


def runlist(levels: Sequence[str]) -> tuple[int, ...]:
    """The turns of one round, as numbers of tenants by their levels.

    With L tenants of level low and M of level medium each low one has one turn, each medium one L (one without L), each high
    one (M + 1) * L (M without L, one without both).
    """
    low, medium, high = ([i for i, level in enumerate(levels) if level == one] for one in LEVELS)

    def behind_high(tenants: Sequence[int]) -> list[int]:
        return [turn for tenant in tenants for turn in (*high, tenant)]

    if not low:
        return tuple(behind_high(medium) or high)
    return tuple(turn for tenant in low for turn in (*behind_high(medium), *behind_high([tenant])))


# ---------------------------------------------------------------- in the words of an experiment

EXCLUSIVE, MIG, OVER_COMMIT = "exclusive", "mig", "over_commit"
KNOWN: dict[str, tuple[str, ...]] = {
    EXCLUSIVE: (), SLICES: ("slice", "level", "memory"), MPS: ("cap", "priority", "memory"), MIG: ("slice",),
    OVER_COMMIT: ("policy",),
}  # fmt: skip
FAULT = "fault"  # when the first of the programs beside has a fatal fault: of each way in which they share something
YIELD, CAPS = "yields", "caps"  # of MPS: when kernels give way to others; where the multiprocessors of caps are
OTHERS = "others_"  # before a parameter: that of the programs beside


@dataclass(frozen=True)
class Terms:
    """What one program has of a shared GPU.

    seat  among time slices, or of an MPS client
    cap   percentage of the multiprocessors under MPS (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE)
    mig   its MIG slice, "" for none
    memory  bytes that it may have, its context among them (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT); 0: an equal part
    """

    seat: Tenant = Tenant(OWN_SLICE)
    cap: int = 100
    mig: str = ""
    memory: int = 0


@dataclass(frozen=True)
class SharingWay:
    """A way to share a GPU: `name`, the terms of the program, and those of the ones beside.

    memory  the policy of kind tenants where programs need more memory than there is
    yields  as of `Tenancy`
    fault   ns: when the first of the programs beside has a fatal fault, 0: it has none
    caps    first: all begin with the same multiprocessors; apart: each has its own, where caps are 100 % at most in all
    """

    name: str
    mine: Terms
    others: Terms
    memory: PolicySpec | None = None
    fault: int = 0
    yields: str = BLOCKS
    caps: str = APART

    def terms(self, beside: int) -> tuple[Terms, ...]:
        """Of the program and of so many beside it."""
        return (self.mine, *(self.others for _ in range(beside)))

    def tenancy(self, beside: int, switch: Switch) -> Tenancy | None:
        """None where each has a device of its own."""
        name = SLICES if self.name == OVER_COMMIT else self.name
        if name not in WAYS:
            return None
        apart = self.caps == APART and sum(each.cap for each in self.terms(beside)) <= 100
        seats = (replace(each.seat, slice=each.seat.slice or switch.slice) for each in self.terms(beside))
        return Tenancy(name, tuple(seats), switch, self.yields, apart)


def way(spec: PolicySpec) -> SharingWay:
    """From `exclusive`, `time_slices(slice=2 ms, others_slice=200 us)`, `mps(cap=30)`, `mig(slice=3g.40gb)` or
    `over_commit(policy=nvshare)`.

    What is not said of the others is the default, but for a MIG slice: then they have such ones too.  Raises GpusimError.
    """
    if spec.name not in KNOWN:
        raise GpusimError(f"'{spec.name}' is no way to share a GPU", hint=suggest(spec.name, KNOWN))
    if spec.name == OVER_COMMIT:
        return _over_committed(dict(spec.params))
    offered = [before + name for name in KNOWN[spec.name] for before in ("", OTHERS)]
    given = dict(spec.params)
    if spec.name in (SLICES, MPS, MIG) and FAULT in given:
        return replace(way(_without(spec, FAULT)), fault=_fault(given[FAULT]))
    if spec.name == MPS and YIELD in given:
        found = replace(way(_without(spec, YIELD)), yields=str(given[YIELD]))
        found.tenancy(1, Switch())
        return found
    if spec.name == MPS and CAPS in given:
        if given[CAPS] not in PLACES:
            said = "first: all begin with the same multiprocessors; apart: each has its own"
            raise GpusimError(f"caps is '{given[CAPS]}'", hint=said)
        return replace(way(_without(spec, CAPS)), caps=str(given[CAPS]))
    for name in given:
        if name not in offered:
            raise GpusimError(f"{spec.name} has no parameter '{name}'", hint=suggest(name, offered))
    if spec.name == MIG and "slice" not in given:
        raise GpusimError("mig needs the slice of the program", hint="write mig(slice=3g.40gb, others_slice=4g.40gb)")
    mine = _terms(spec.name, {name: value for name, value in given.items() if not name.startswith(OTHERS)})
    theirs = {name.removeprefix(OTHERS): value for name, value in given.items() if name.startswith(OTHERS)}
    found = SharingWay(spec.name, mine, mine if spec.name == MIG and not theirs else _terms(spec.name, theirs))
    found.tenancy(1, Switch())  # refuses what the driver does not offer
    return found


def caution(text: str) -> str:
    """What is known to be wrong by much with a way to share, as a sentence; "" where nothing is."""
    shared = way(policy(text))
    if shared.name != MPS:
        return ""
    if shared.mine.cap + shared.others.cap <= 100:
        said = "on an H100 each client had its own, and none lost anything to kernels of others: caps=apart"
        return f"with {text} all caps begin with the same multiprocessors; {said}" if shared.caps == FIRST else ""
    if shared.yields == KERNELS:
        return (
            f"with {text} a short kernel waits for all of a long one that came before: in one of 31 published pairs it was 1.7 "
            "times as fast; yields=waves is the other bound"
        )
    if shared.yields == BLOCKS:
        return (
            f"with {text} a program of short kernels beside long ones that fill the GPU is up to 37 % too fast in 31 published "
            "pairs, 13 % in the median; yields=waves and yields=kernels are the bounds"
        )
    if shared.mine.seat.priority == shared.others.seat.priority:
        return (
            f"with {text} a program of short kernels beside long ones that fill the GPU is too fast (by half in 4 of 31 "
            "published pairs, and on an H100); yields=kernels is the other bound"
        )
    return (
        f"with {text} the program that goes first is too fast: kernels that run in waves, or of which no launch is recorded, "
        "give way at once, on a GPU when their blocks end (42 % too fast in the median of 12 published pairs); yields=kernels "
        "is the other bound"
    )


def _without(spec: PolicySpec, parameter: str) -> PolicySpec:
    return PolicySpec(spec.name, tuple((name, value) for name, value in spec.params if name != parameter))


def _fault(value: object) -> int:
    found = round(float(parse(str(value), TIME)))
    if found <= 0:
        raise GpusimError(f"a fault at {value} is before the programs begin", hint="fault=500 ms")
    return found


def _over_committed(given: dict[str, Any]) -> SharingWay:
    """`over_commit(policy=nvshare, quantum=2)`: a policy of kind tenants with its parameters."""
    if "policy" not in given:
        raise GpusimError("over_commit needs a policy", hint="over_commit(policy=nvshare); gpusim policies tenants lists all")
    name = str(given.pop("policy"))
    return SharingWay(OVER_COMMIT, Terms(), Terms(), PolicySpec(name, tuple(sorted(given.items()))))


def _terms(name: str, given: Mapping[str, object]) -> Terms:
    if name == MIG:
        return Terms(mig=str(given.get("slice", "")))
    if name == MPS:
        priority = given.get("priority", 0)
        if not isinstance(priority, int):
            raise GpusimError(f"priority is {priority!r}", hint="0 normal, 1 below normal")
        return Terms(Tenant(OWN_SLICE, priority=priority), percentage(given.get("cap", 100), "cap"), memory=_memory(given))
    length = round(float(parse(str(given["slice"]), TIME))) if "slice" in given else OWN_SLICE
    if "slice" in given and length <= 0:
        raise GpusimError(f"a time slice of {given['slice']} is none", hint=_USUAL)
    return Terms(Tenant(length, str(given.get("level", LOW))), memory=_memory(given))


def _memory(given: Mapping[str, object]) -> int:
    if "memory" not in given:
        return 0
    found = int(parse(str(given["memory"]), BYTES))
    if found <= 0:
        raise GpusimError(f"a memory limit of {given['memory']} leaves nothing", hint="memory=8 GiB")
    return found

"""What the words of an experiment cannot be combined with: tiers that a machine lacks, policies where the driver decides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from gpusim.base.errors import PolicyError, Problem, ProfileError
from gpusim.base.yaml.find import is_managed
from gpusim.base.yaml.values import NONE, Capacity
from gpusim.experiment.spec import AS_RECORDED, Experiment, Policies
from gpusim.machine import tiers
from gpusim.machine.chain import lends
from gpusim.machine.kernels.user_table import of_machines
from gpusim.machine.profile import Profile, changed
from gpusim.policies import units

if TYPE_CHECKING:
    from gpusim.experiment.load import Loaded


def problems(loaded: Loaded, machines: Sequence[Profile], ranked: Sequence[Profile] = ()) -> list[Problem]:
    """All of it, at its places in the experiment's file; ranked: those that are GPUs of machines of several."""
    found = _of_tiers(loaded, machines, ranked) + _of_unified(loaded, machines) + _of_table(loaded, machines)
    return found + _of_policies(loaded)


def _of_policies(loaded: Loaded) -> list[Problem]:
    """Policies that mean nothing for tensors, where tensors move."""
    found, e = [], loaded.experiment
    for kind in ("evict", "prefetch") if e.unified == (NONE,) else ():
        for i, spec in enumerate(getattr(e.policies, kind)):
            try:
                units.check(loaded.own.find(kind, spec.name), units.TENSORS)
            except PolicyError as error:
                found.append(loaded.document.problem(("policies", kind, i), error.message, error.hint))
    return found


def _of_table(loaded: Loaded, machines: Sequence[Profile]) -> list[Problem]:
    """A table of kernel times that is of none of these machines."""
    if loaded.kernel_times is None:
        return []
    try:
        of_machines(loaded.kernel_times, machines)
    except ProfileError as error:
        return [loaded.document.problem(("kernel_times",), error.message, "its column gpu names a machine of the experiment")]
    return []


def _of_tiers(loaded: Loaded, machines: Sequence[Profile], ranked: Sequence[Profile]) -> list[Problem]:
    """What is wrong with the memories below the GPU's on these machines, whatever the program is."""
    e, found = loaded.experiment, []
    sizes = [memory.bytes for memory in e.host_memory if memory.fraction is None]  # shares are known with the program
    for machine, (i, chain), size in product(machines, enumerate(e.tiers), sizes or [None]):
        try:
            if chain == tiers.DEFAULT and machine.memory.unified and "tiers" in loaded.document.data:
                tiers.refuse_host(machine)
            if not (lends(chain) and any(machine is one for one in ranked)):
                tiers.parse(chain, machine if size is None else changed(machine, "host.capacity", size))
        except ProfileError as error:
            found.append(loaded.document.problem(("tiers", i), error.message, error.hint))
    if e.host_memory != (Capacity(),) and not any(tiers.in_host_memory(chain) for chain in e.tiers):
        said = "host_memory changes nothing: no tier of this experiment lies in host memory"
        found.append(loaded.document.problem(("host_memory",), said, "leave it out, or add host to the tiers", at_key=True))
    return list(dict.fromkeys(found))


def _of_unified(loaded: Loaded, machines: Sequence[Profile]) -> list[Problem]:
    """What unified memory cannot be combined with: the driver alone decides there what leaves and what comes."""
    e, found = loaded.experiment, []

    def say(path: tuple[str | int, ...], message: str, hint: str) -> None:
        found.append(loaded.document.problem(path, message, hint))

    managed = [name for name, file in loaded.traces.items() if is_managed(file)]
    for name in managed:
        at = ("trace", e.trace.index(name))
        if NONE in e.unified:
            say(at, f"'{name}' is a managed program: it runs under unified memory only", "write unified: driver")
        if e.transform != (AS_RECORDED,):
            say(at, f"'{name}' is a managed program, which no transform can change", "leave out the transform")
    if e.unified != (NONE,):
        default = Experiment(question="-", trace=("-",), profile=("-",))
        for key in ("grain", "tiers"):
            if getattr(e, key) != getattr(default, key):
                say((key,), f"under unified memory pages move as the driver decides: there is no {key}", f"leave out {key}")
        if len(managed) == len(loaded.traces):
            for key in ("share", "active_thread_percentage"):
                if getattr(e, key) != getattr(default, key):
                    said = f"managed programs share the GPU as their kernels say: {key} changes nothing"
                    say((key,), said, f"leave out {key}")
        for kind in ("evict", "prefetch", "defrag", "plan", "release", "pool"):
            if getattr(e.policies, kind) != getattr(Policies(), kind):
                hint = f"leave it out; the driver's is a parameter: driver({kind}=...)" if kind in ("evict", "prefetch") else ""
                say(("policies", kind), f"under unified memory the driver decides: there is no {kind} policy",
                    hint or "leave it out")  # fmt: skip
        if e.policies.place != Policies().place and len(managed) == len(loaded.traces):
            say(("policies", "place"), "managed programs have no allocator: place changes nothing", "leave it out")
        if e.bounds == "search" and NONE not in e.unified:
            say(("bounds",), "under unified memory there is no plan that a search could look for", "write bounds: true")
        one = [name for name, machine in zip(e.profile, machines, strict=False) if machine.memory.unified]
        if e.host_memory != (Capacity(),) and one:
            say(("host_memory",), f"{one[0]} has one memory for CPU and GPU: host_memory changes nothing", "leave it out")
    return found

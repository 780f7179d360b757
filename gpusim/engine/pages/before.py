"""What is known of a run before it: its program, what would be refused, whether the size of memory can matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpusim.base.units import show_bytes
from gpusim.engine.pages import device_memory, victims
from gpusim.engine.pages.advice import advised, for_one
from gpusim.engine.pages.driver_tables import HMM
from gpusim.engine.pages.launches import by_malloc
from gpusim.engine.pages.memory import kind
from gpusim.engine.pages.settings import DriverSettings
from gpusim.engine.pages.simulate import fits
from gpusim.engine.pages.tensors import managed
from gpusim.machine import platforms
from gpusim.machine.driver_parameters import UvmError, resolve
from gpusim.machine.platforms import Platform
from gpusim.machine.profile import Profile
from gpusim.machine.topology.connections import Connections
from gpusim.machine.topology.sharing import shared
from gpusim.machine.topology.topology import Topology
from gpusim.programs.managed.layout import lay_out
from gpusim.programs.managed.steps import Advise, Kernel, ManagedProgram, Prefetch, gpus_of
from gpusim.trace.workload import Workload


def footprint(source: Workload | ManagedProgram) -> int:
    """Bytes of GPU memory of which shares are: what holds all that is alive at once."""
    return source.live_peak if isinstance(source, Workload) else source.footprint


def room(source: Workload | ManagedProgram, profile: Profile, capacity_bytes: int | None) -> int:
    """Bytes of GPU memory that managed pages may take.  Raises UvmError when a machine has too few of them in all."""
    device = platforms.of(profile).memory
    available = device if capacity_bytes is None else capacity_bytes
    most = min(available, device)  # a share may be more memory than the GPU has
    host, needed = int(profile.host.capacity.value), footprint(source)
    name = source.trace.name if isinstance(source, Workload) else source.name
    if profile.memory.unified and needed > most:
        has = "has" if most == device else "is given"
        said = f"{name} needs {show_bytes(needed)}, and {profile.name} {has} {show_bytes(most)} of one memory for CPU and GPU"
        raise UvmError(f"{said}, where nothing can be moved away", hint="" if most == device else "give it memory: capacity")
    if not profile.memory.unified and needed > most + host:
        raise UvmError(
            f"{name} needs {show_bytes(needed)}, more than the {show_bytes(most)} of GPU memory and "
            f"the {show_bytes(host)} of host memory that {profile.name} has together",
            hint=f"give it a larger host: {profile.name}(host.capacity=...)",
        )
    return available


def program_of(
    source: Workload | ManagedProgram, profile: Profile, settings: DriverSettings, place: Any, available: int,
    others: Sequence[Workload | ManagedProgram] = (),
) -> ManagedProgram:  # fmt: skip
    """The program as it runs: a recorded one with its allocator's segments, and with what it is advised to tell the driver.

    available  bytes of GPU memory for managed pages
    others     programs on the same GPU: advice may name their allocations
    """
    programs, said = [], settings.advice
    for one in (source, *(others if ":" in said else ())):
        programs.append(managed(one, profile, place, discards=said == "discard") if isinstance(one, Workload) else one)
    return advised(programs[0], for_one(programs[0], said, programs[1:]), available)


def between(machine: Topology | None, gpus: int) -> Connections | None:
    """The links that the first GPUs of a machine share; None: each has its own way.  Raises UvmError where it has fewer."""
    if machine is None or gpus < 2:
        return None
    if gpus > len(machine.gpus):
        raise UvmError(f"the program runs kernels on {gpus} GPUs, and {machine.name} has {len(machine.gpus)}")
    first = list(machine.gpus)[:gpus]
    if (hosts := len({machine.host[gpu] for gpu in first})) > 1:
        raise UvmError(f"the first {gpus} GPUs of {machine.name} are of {hosts} hosts, and a driver moves pages within one")
    if len({machine.profile(gpu).name for gpu in first}) > 1:
        raise UvmError(f"the first {gpus} GPUs of {machine.name} differ, and one driver's numbers are those of one kind of GPU")
    links = shared(machine, first)
    return Connections(links.rates, links.beyond)


def refuse(
    source: Workload | ManagedProgram, profile: Profile, settings: DriverSettings, capacity_bytes: int | None, place: Any,
    machine: Topology | None = None, others: Sequence[Workload | ManagedProgram] = (),
) -> None:  # fmt: skip
    """Raises UvmError for what a run could not get past.  Allocators of recordings are asked only where that matters."""
    available = room(source, profile, capacity_bytes)
    if isinstance(source, Workload):
        if not source.trace.ops or ":" in settings.advice or profile.memory.unified:
            program = program_of(source, profile, settings, place, available, others)
            fits(program.arrays, platforms.of(profile, available))
        return
    program, platform = program_of(source, profile, settings, place, available, others), platforms.of(profile, available)
    between(machine, gpus_of(program.steps))
    fits(program.arrays, platform)
    device_memory.check(program.steps, {array.name: array for array in program.arrays}, platform)
    _reaches(program, platform, settings)


def _reaches(program: ManagedProgram, platform: Platform, settings: DriverSettings) -> None:
    """May kernels touch what the program has by malloc?"""
    values, _ = resolve({**platform.parameters, **settings.parameters})
    if not values["uvm_disable_hmm"]:
        return
    spans = lay_out(program.arrays)
    refused = {array.name for array in program.arrays if kind(array, platform, values["uvm_ats_mode"]) == HMM}
    for step in program.steps:
        if isinstance(step, Kernel):
            for access in step.accesses:
                if access.array in refused:
                    raise by_malloc(step, access.array, spans[access.array])


def holds_all(program: ManagedProgram, profile: Profile, settings: DriverSettings, capacity_bytes: int | None) -> bool:
    """Whether the run would be the same with more memory, and with any eviction policy: nothing is ever evicted.

    So it is where everything fits, where CPU and GPU have one memory, and where nothing ever comes to the GPU.
    """
    policy = victims.module(settings.evict)
    if settings.migrate != "none":
        return False  # what belongs where does not depend on room alone
    if hasattr(policy, "RESERVE") or hasattr(policy, "PIECES"):
        return False  # they keep chunks free, or move smaller ones, wherever there is room
    available = platforms.of(profile).memory if capacity_bytes is None else capacity_bytes
    if profile.memory.unified or available >= program.footprint:
        return True
    hints = any(isinstance(step, Advise | Prefetch) for step in program.steps)
    return settings.advice == "zero_copy" and not hints and all(array.kind == "managed" for array in program.arrays)

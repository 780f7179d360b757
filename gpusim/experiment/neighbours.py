"""Other programs on the GPU of a run, as an experiment names them: what cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpusim.base.defaults import LATER
from gpusim.base.errors import GpusimError, Problem
from gpusim.base.yaml.find import is_managed, is_of_ranks
from gpusim.base.yaml.values import NONE, policy
from gpusim.engine.pages.settings import settings
from gpusim.engine.run.tenants import capacities, limited
from gpusim.machine import mig
from gpusim.machine.tenancy import EXCLUSIVE, MIG, Switch, way

if TYPE_CHECKING:
    from gpusim.experiment.load import Loaded
    from gpusim.machine.profile import Profile


def names(beside: str) -> list[str]:
    """The programs of the axis `beside`: `none`, or traces with a plus between them."""
    return [] if beside == LATER["beside"] else [part.strip() for part in beside.split("+")]


def problems(loaded: Loaded, machines: Sequence[Profile]) -> list[Problem]:
    """What is wrong with programs beside others, at its places in the experiment's file."""
    e, found = loaded.experiment, list[Problem]()
    most = max(len(names(beside)) for beside in e.beside)

    def say(path: tuple[str | int, ...], message: str, hint: str) -> None:
        found.append(loaded.document.problem(path, message, hint))

    if e.tenancy != (EXCLUSIVE,) and not most:
        say(("tenancy",), "the program is alone: tenancy changes nothing", "name the other programs: beside: resnet50-train")
    if not most:
        return found
    if e.parallel != (LATER["parallel"],):
        said = "programs that share a GPU are simulated without ranks: each of those has its own GPU"
        say(("parallel",), said, "leave out parallel or beside")
    if any(spec != NONE for spec in e.unified):
        found += _with_managed_memory(loaded)
    if "sms" not in e.share:
        say(("share",), "programs that share a GPU share its multiprocessors", "share: [sms, memory, engines]")
    if e.active_thread_percentage != (int(LATER["active_thread_percentage"]),):
        say(("active_thread_percentage",), "each program beside others has a cap of its own", "write tenancy: mps(cap=30)")
    if e.options.log and e.policies.plan != (NONE,):
        say(("options", "log"), "the logs of programs beside each other are kept without a plan", "leave out log, or plan")
    for name, file in {**loaded.traces, **loaded.beside}.items():
        if is_of_ranks(file):
            said = f"'{name}' is a program of many ranks, which cannot share a GPU with others"
            say(("beside",), said, "name the recorded trace of one GPU")
        if is_managed(file) and NONE in e.unified:
            say(("beside",), f"'{name}' is a managed program, whose memory is the driver's", "write unified: driver")
    for i, text in enumerate(e.tenancy):
        shared = way(policy(text))
        if shared.memory is not None:
            try:
                loaded.own.get("tenants", shared.memory)
            except GpusimError as error:
                say(("tenancy", i), error.message, error.hint)
        limits = [terms.memory for terms in shared.terms(most)]
        for machine in machines if shared.name != EXCLUSIVE else ():
            try:
                shared.tenancy(most, Switch())  # refuses more programs than there may be
                if shared.name == MIG:
                    mig.arrange(machine.name, [terms.mig for terms in shared.terms(most)])
                elif any(limits):
                    limited(machine, limits)
                else:
                    capacities(machine, most + 1)
            except GpusimError as error:
                say(("tenancy", i), error.message, error.hint)
    return found


def _with_managed_memory(loaded: Loaded) -> list[Problem]:
    """What cannot be where programs beside each other have managed memory."""
    e, found = loaded.experiment, list[Problem]()
    for i, spec in enumerate(e.unified):
        if spec != NONE and settings(spec, loaded.own).oracle:
            said = f"{spec} reads the future of one program, and that of several depends on what it decides"
            found.append(loaded.document.problem(("unified", i), said, "evict=lru, or evict=by_turn"))
    for i, text in enumerate(e.tenancy):
        shared = way(policy(text))
        if shared.fault:
            said = "a fatal fault beside other processes is simulated without managed memory"
            found.append(loaded.document.problem(("tenancy", i), said, "unified: none"))
        if any(terms.memory for terms in shared.terms(1)):
            said = "a limit is of memory by cudaMalloc: managed pages of a process have none"
            found.append(loaded.document.problem(("tenancy", i), said, "leave out memory, or unified"))
    return found

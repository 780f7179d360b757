"""Other programs on the GPU of a run, as an experiment names them: what cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpusim.base.defaults import LATER
from gpusim.base.errors import GpusimError, Problem
from gpusim.base.yaml.find import is_managed, is_of_ranks
from gpusim.base.yaml.values import NONE, policy
from gpusim.engine.run.tenants import limited
from gpusim.machine import mig
from gpusim.machine.tenancy import EXCLUSIVE, MIG, way

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
    reasons = {
        "unified": ((NONE,), "unified memory, which one process has in a run"),
        "parallel": ((LATER["parallel"],), "ranks: each of those has its own GPU"),
    }  # fmt: skip
    for key, (plain, why) in reasons.items():
        if getattr(e, key) != plain:
            say((key,), f"programs that share a GPU are simulated without {why}", f"leave out {key} or beside")
    if "sms" not in e.share:
        say(("share",), "programs that share a GPU share its multiprocessors", "share: [sms, memory, engines]")
    if e.active_thread_percentage != (int(LATER["active_thread_percentage"]),):
        say(("active_thread_percentage",), "each program beside others has a cap of its own", "write tenancy: mps(cap=30)")
    if e.options.log and e.policies.plan != (NONE,):
        say(("options", "log"), "the logs of programs beside each other are kept without a plan", "leave out log, or plan")
    for name, file in {**loaded.traces, **loaded.beside}.items():
        if is_managed(file) or is_of_ranks(file):
            kind = "a managed program" if is_managed(file) else "a program of many ranks"
            say(("beside",), f"'{name}' is {kind}, which cannot share a GPU with others", "name the recorded trace of one GPU")
    for i, text in enumerate(e.tenancy):
        shared = way(policy(text))
        if shared.memory is not None:
            try:
                loaded.own.get("tenants", shared.memory)
            except GpusimError as error:
                say(("tenancy", i), error.message, error.hint)
        limits = [terms.memory for terms in shared.terms(most)]
        for machine in machines if shared.name == MIG or any(limits) else ():
            try:
                if shared.name == MIG:
                    mig.arrange(machine.name, [terms.mig for terms in shared.terms(most)])
                else:
                    limited(machine, limits)
            except GpusimError as error:
                say(("tenancy", i), error.message, error.hint)
    return found

"""From what stands on the command line to an experiment: the one place that lends the registry to the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.errors import ConfigError, ProfileError, UnitError

if TYPE_CHECKING:
    from gpusim.config.load import Loaded
    from gpusim.config.values import PolicySpec
    from gpusim.errors import Problem
    from gpusim.hardware.profile import Profile


def experiment(name: str, sets: Sequence[str] = ()) -> Loaded:
    """The experiment in the file `name`, or the shipped one of this name, with overrides; its profiles are in order and have
    its tiers.

    Raises ConfigError.
    """
    from gpusim import transforms
    from gpusim.config.find import find
    from gpusim.config.load import load_experiment
    from gpusim.hardware import tiers, variant
    from gpusim.policies import registry

    def check(kind: str, spec: PolicySpec | str) -> None:
        if isinstance(spec, str):
            {"transform": transforms.check, "tiers": tiers.check}[kind](spec)
            return
        registry.bind(registry.find(kind, spec.name), dict(spec.params))

    loaded = load_experiment(find("experiment", name), sets, use=registry.load_user_file, check_policy=check)
    problems, machines = [], []
    for i, text in enumerate(loaded.experiment.profile):
        try:
            machines.append(variant.load(loaded.profiles[text], text))  # a mistake is told once, and not by every run
        except (ProfileError, UnitError) as error:
            problems.append(loaded.document.problem(("profile", i), error.message, error.hint))
    problems += _of_tiers(loaded, machines)
    if problems:
        raise ConfigError(problems)
    return loaded


def _of_tiers(loaded: Loaded, machines: Sequence[Profile]) -> list[Problem]:
    """What is wrong with the memories below the GPU's on these machines, whatever the program is."""
    from gpusim.config.values import Capacity
    from gpusim.hardware import tiers
    from gpusim.hardware.profile import changed

    e, found = loaded.experiment, []
    sizes = [memory.bytes for memory in e.host_memory if memory.fraction is None]  # shares are known with the program
    for machine, (i, chain), size in product(machines, enumerate(e.tiers), sizes or [None]):
        try:
            if chain == tiers.DEFAULT and machine.memory.unified and "tiers" in loaded.document.data:
                tiers.refuse_host(machine)
            tiers.parse(chain, machine if size is None else changed(machine, "host.capacity", size))
        except ProfileError as error:
            found.append(loaded.document.problem(("tiers", i), error.message, error.hint))
    if e.host_memory != (Capacity(),) and not any(tiers.in_host_memory(chain) for chain in e.tiers):
        said = "host_memory changes nothing: no tier of this experiment lies in host memory"
        found.append(loaded.document.problem(("host_memory",), said, "leave it out, or add host to the tiers", at_key=True))
    return list(dict.fromkeys(found))


def default_folder(loaded: Loaded) -> Path:
    """Where results go when nothing is said."""
    return Path("results") / loaded.path.stem

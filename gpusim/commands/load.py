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
    for machine, (i, chain) in product(machines, enumerate(loaded.experiment.tiers)):
        try:
            tiers.parse(chain, machine)
        except ProfileError as error:
            problems.append(loaded.document.problem(("tiers", i), error.message, error.hint))
    if problems:
        raise ConfigError(problems)
    return loaded


def default_folder(loaded: Loaded) -> Path:
    """Where results go when nothing is said."""
    return Path("results") / loaded.path.stem

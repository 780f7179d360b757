"""From what stands on the command line to an experiment: the one place that lends the registry to the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusim.config.experiment import PolicySpec
    from gpusim.config.load import Loaded


def experiment(name: str, sets: Sequence[str] = ()) -> Loaded:
    """The experiment in the file `name`, or the shipped one of this name, with overrides; its profiles are in order.

    Raises ConfigError.
    """
    from gpusim import transforms
    from gpusim.config.find import find
    from gpusim.config.load import load_experiment
    from gpusim.hardware.profile import load_file
    from gpusim.policies import registry

    def check(kind: str, spec: PolicySpec | str) -> None:
        if isinstance(spec, str):
            transforms.check(spec)
            return
        registry.bind(registry.find(kind, spec.name), dict(spec.params))

    loaded = load_experiment(find("experiment", name), sets, use=registry.load_user_file, check_policy=check)
    for profile in loaded.profiles.values():
        load_file(profile)  # a mistake in it is told once, before anything runs, and not by every run
    return loaded


def default_folder(loaded: Loaded) -> Path:
    """Where results go when nothing is said."""
    return Path("results") / loaded.path.stem

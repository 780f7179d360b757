"""What `unified: driver(...)` of an experiment says: victims, prefetcher, advice, and module parameters of the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpusim.base.errors import suggest
from gpusim.engine.pages import advice, prefetchers, victims
from gpusim.machine.driver_parameters import PARAMETERS, UvmError, resolve
from gpusim.policies.registry import SHIPPED, Registry

WORDS = ("evict", "prefetch", "migrate", "advice")


@dataclass(frozen=True)
class DriverSettings:
    """How unified memory behaves in a run.

    evict, prefetch  what is evicted, and what moves beside faulted pages: the driver's own policies, or alternatives
    migrate          which blocks belong into the GPU's memory; none: the driver's rules
    own              the policies that these may name beside the built-in ones
    advice           what the program tells the driver (gpusim.engine.pages.advice)
    parameters       module parameters by the driver's names, as given
    """

    evict: str = "driver"
    prefetch: str = "tree"
    migrate: str = "none"
    advice: str = "none"
    parameters: Mapping[str, int] = field(default_factory=dict)
    own: Registry = field(default=SHIPPED, compare=False)

    @property
    def oracle(self) -> bool:
        """Whether one of its policies reads the future."""
        return victims.foresees(self.evict, self.own) or prefetchers.foresees(self.prefetch)


DRIVER = DriverSettings()


def settings(spec: Any, own: Registry = SHIPPED) -> DriverSettings:
    """From `driver(...)`, an object with `name` and `params`.  Raises UvmError or PolicyError for what does not exist."""
    if spec.name != "driver":
        raise UvmError(f"there is no unified memory '{spec.name}'", hint=suggest(spec.name, ("none", "driver")))
    given = dict(spec.params)
    words = {name: str(given.pop(name)) for name in WORDS if name in given}
    victims.refuse(words.get("evict", DRIVER.evict), own)
    prefetchers.refuse(words.get("prefetch", DRIVER.prefetch), own)
    prefetchers.refuse_migration(words.get("migrate", DRIVER.migrate), own)
    advice.check(words.get("advice", ""))
    for name in given:
        if name not in PARAMETERS:
            raise UvmError(f"driver has no parameter '{name}'", hint=suggest(name, (*WORDS, *PARAMETERS)))
    resolve(given)
    return DriverSettings(**words, parameters=given, own=own)


def told(spec: Any, own: Registry = SHIPPED) -> list[str]:
    """What the driver does other than asked, a sentence each."""
    return resolve(settings(spec, own).parameters)[1]

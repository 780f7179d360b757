"""What `unified: driver(...)` of an experiment says: victims, prefetcher, advice, and module parameters of the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpusim.base.errors import suggest
from gpusim.engine.pages import advice
from gpusim.engine.pages.prefetchers import PREFETCHERS
from gpusim.engine.pages.victims import EVICT
from gpusim.machine.driver_parameters import PARAMETERS, UvmError, resolve

WORDS = ("evict", "prefetch", "advice")


@dataclass(frozen=True)
class DriverSettings:
    """How unified memory behaves in a run.

    evict, prefetch  what is evicted, and what moves beside faulted pages: the driver's own policies, or alternatives
    advice           what the program tells the driver (gpusim.engine.pages.advice)
    parameters       module parameters by the driver's names, as given
    """

    evict: str = "driver"
    prefetch: str = "tree"
    advice: str = "none"
    parameters: Mapping[str, int] = field(default_factory=dict)


DRIVER = DriverSettings()


def settings(spec: Any) -> DriverSettings:
    """From `driver(...)`, an object with `name` and `params`.  Raises UvmError for what does not exist."""
    if spec.name != "driver":
        raise UvmError(f"there is no unified memory '{spec.name}'", hint=suggest(spec.name, ("none", "driver")))
    given = dict(spec.params)
    words = {name: str(given.pop(name)) for name in WORDS if name in given}
    for name, known in (("evict", EVICT), ("prefetch", PREFETCHERS)):
        if words.get(name, known[0]) not in known:
            raise UvmError(f"unified memory has no {name} policy '{words[name]}'", hint=suggest(words[name], known))
    advice.check(words.get("advice", ""))
    for name in given:
        if name not in PARAMETERS:
            raise UvmError(f"driver has no parameter '{name}'", hint=suggest(name, (*WORDS, *PARAMETERS)))
    resolve(given)
    return DriverSettings(**words, parameters=given)


def told(spec: Any) -> list[str]:
    """What the driver does other than asked, a sentence each."""
    return resolve(settings(spec).parameters)[1]

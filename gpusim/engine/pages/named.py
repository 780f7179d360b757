"""What a text may name as a policy of unified memory: a module of the driver's own, or a policy that has a meaning there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from gpusim.base.calls import parse
from gpusim.base.errors import PolicyError, suggest
from gpusim.machine.driver_parameters import UvmError
from gpusim.policies.registry import SHIPPED, Registry, bind
from gpusim.policies.units import UNIFIED, check, units


@dataclass(frozen=True, eq=False)
class NamedPolicies:
    """kind: of the registry; title: as errors say it; unit: what a policy decides about here; modules: the driver's own."""

    kind: str
    title: str
    unit: str
    modules: Mapping[str, ModuleType]

    def known(self, own: Registry = SHIPPED) -> tuple[str, ...]:
        """All names."""
        return (*self.modules, *(entry.name for entry in own.entries(self.kind) if self.unit in units(entry)))

    def refuse(self, text: str, own: Registry = SHIPPED) -> None:
        """Raises UvmError for a name that there is not, PolicyError for a policy that has no meaning for this unit."""
        name, given = parse(text)
        if name in self.modules:
            if given:
                raise UvmError(f"the {self.title} '{name}' of unified memory has no parameters")
            return
        try:
            entry = own.find(self.kind, name)
        except PolicyError:
            others = [kind for kind in UNIFIED if kind != self.kind and any(name == entry.name for entry in own.entries(kind))]
            hint = f"it is of kind '{others[0]}': {others[0]}={name}" if others else suggest(name, self.known(own))
            raise UvmError(f"unified memory has no {self.kind} policy '{name}'", hint=hint) from None
        check(entry, self.unit)
        bind(entry, given)

    def find(self, text: str, own: Registry = SHIPPED) -> Any:
        """What this text names: a module by its name, any other policy ready to run.  Raises as `refuse`."""
        self.refuse(text, own)
        return text if parse(text)[0] in self.modules else own.get(self.kind, text)

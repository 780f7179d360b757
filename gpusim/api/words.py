"""Policies as a call names them: text, decorated objects, and objects with parameters, as the words that a run has for them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from gpusim.base.calls import parse
from gpusim.base.errors import GpusimError, PolicyError, suggest
from gpusim.base.yaml.values import PolicySpec
from gpusim.experiment import users
from gpusim.experiment.users import Given
from gpusim.policies import registry
from gpusim.policies.registry import Registry
from gpusim.programs.ranks.placement import placement_text


def spec_words(words: dict[str, Any], spec: Any, said: str, own: str = "") -> dict[str, Any]:
    """The words of a call for the fields of `spec`; of a policy that is an object, at the word `own`, its name.

    Raises GpusimError for a word that is no field: "a service has" is `said` of it.
    """
    known = spec.__dataclass_fields__
    unknown = sorted(set(words) - set(known))
    if unknown:
        raise GpusimError(f"{said} no '{unknown[0]}'", hint=suggest(unknown[0], known) or ", ".join(known))
    if (entry := registry.entry_of(words.get(own))) is None:
        return words
    return words | {"use": (*words.get("use", ()), words[own]), own: entry.name}


class Named:
    """The user's files and objects that a call has named so far."""

    def __init__(self, use: Any = ()) -> None:
        listed = [use] if isinstance(use, str | Path) or registry.entry_of(use) is not None else list(use)
        self.files = tuple(dict.fromkeys(_file(each) for each in listed if isinstance(each, str | Path)))
        self._objects = [each for each in listed if not isinstance(each, str | Path)]

    @property
    def registry(self) -> Registry:
        """What can be named: the built-ins, and these."""
        return users.registry_of(self.files, self.given)

    @property
    def given(self) -> Given:
        """The objects among them.  PolicyError when two of them have one name."""
        return users.given(*dict.fromkeys(o.func if isinstance(o, partial) else o for o in self._objects))

    def policy(self, kind: str, value: Any) -> PolicySpec:
        """The name and the parameters of "name", "name(k=4)", {"name": {"k": 4}}, or of a decorated object."""
        if isinstance(value, PolicySpec):
            return value
        if isinstance(value, str):
            name, params = parse(value)
            return PolicySpec(name, tuple(sorted(params.items())))
        if isinstance(value, dict) and len(value) == 1:
            name, given = next(iter(value.items()))
            return PolicySpec(str(name), tuple(sorted((given or {}).items())))
        if (entry := registry.entry_of(value)) is None:
            said = f"{getattr(value, '__name__', repr(value))} is not a policy"
            raise PolicyError(said, hint=f"give a name, or decorate it with @policy.{kind}")
        if entry.kind != kind:
            raise PolicyError(f"'{entry.name}' is a policy of kind {entry.kind}, not {kind}", entry.where)
        if not entry.builtin:
            self._objects.append(value)
        params = value.keywords if isinstance(value, partial) else {}
        return PolicySpec(entry.name, tuple(sorted(params.items())))

    def placement(self, value: Any) -> str:
        """The text of a placement: of a policy, or of the GPUs in the order of ranks."""
        if isinstance(value, str | list | tuple):
            return placement_text(value)
        return str(self.policy("placement", value))

    def axis(self, kind: str, values: Any) -> list[str]:
        """One policy, or several, as an experiment writes them."""
        many: Iterable[Any] = values if isinstance(values, list | tuple) else [values]
        return [str(self.policy(kind, value)) for value in many]


def _file(path: str | Path) -> Path:
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise PolicyError(f"there is no policy file '{path}'")
    return file

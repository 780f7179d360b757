"""What of an experiment can be tuned: its axes, and the parameters of what they name.

The text of a value is that of an experiment: "next_k(k=4)", "checkpointing(every=2) | offload", "host > nvme(direct=1)".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from gpusim.base.calls import split
from gpusim.base.errors import GpusimError, suggest
from gpusim.base.units import BYTES, write
from gpusim.engine.pages import prefetchers, victims
from gpusim.engine.pages.settings import DRIVER, WORDS
from gpusim.experiment.spec import KINDS, Experiment
from gpusim.machine import driver_parameters
from gpusim.machine.chain import PARAMETERS, Wanted
from gpusim.policies.registry import Registry
from gpusim.programs import transforms

CHOSEN = ("transform", "grain", "tiers", "unified", *(f"policies.{kind}" for kind in KINDS))
"""Axes of which one value is wanted in the end: a list of these in an experiment is a list to choose from."""
PLACES = ("profile", "memory", "host_memory", "active_thread_percentage")
"""Axes that are where the question is asked, unless they are tuned: a trial runs at each of their values."""
AXES = (*CHOSEN, *PLACES)
WITH_PARAMETERS = ("transform", "tiers", "unified", *(f"policies.{kind}" for kind in KINDS))
_BETWEEN = {"transform": " | ", "tiers": " > "}
Parts = list[tuple[str, dict[str, str]]]


def keys(axis: str) -> tuple[str, ...]:
    """Where the axis stands in an experiment: ("policies", "evict")."""
    return tuple(axis.split("."))


def written(e: Experiment, axis: str) -> tuple[str, ...]:
    """The values of the axis in this experiment, as text."""
    found: Any = e
    for key in keys(axis):
        found = getattr(found, key)
    return tuple(str(value) for value in found)


def first_on(e: Experiment, axes: Iterable[str]) -> Experiment:
    """The experiment with nothing but the first value on each of these axes."""
    kinds = {key[1]: getattr(e.policies, key[1])[:1] for axis in axes if len(key := keys(axis)) == 2}
    others: dict[str, Any] = {axis: getattr(e, axis)[:1] for axis in axes if len(keys(axis)) == 1}
    return replace(e, policies=replace(e.policies, **kinds), **others)


def parts(axis: str, text: str) -> Parts:
    """The policies, transforms or tiers that a value of the axis names, with the parameters that it gives."""
    if axis not in WITH_PARAMETERS:
        return []
    return [split(part.strip(), "a part of it") for part in text.split(_BETWEEN.get(axis, "\0").strip())]


def names(axis: str, text: str) -> list[str]:
    """What a value of the axis names."""
    return [name for name, _ in parts(axis, text)]


def put(axis: str, text: str, given: Mapping[tuple[str, str], str | None]) -> str:
    """The value with these parameters, (name, parameter) -> text; None takes a parameter out."""
    made = []
    for name, values in parts(axis, text):
        for (of, parameter), value in given.items():
            if of == name:
                values.pop(parameter, None) if value is None else values.update({parameter: value})
        inner = ", ".join(f"{key}={value}" for key, value in values.items())
        made.append(f"{name}({inner})" if inner else name)
    return _BETWEEN.get(axis, "").join(made) if made else text


def declared(axis: str, name: str, own: Registry) -> Mapping[str, Any]:
    """The parameters of what is called so on this axis, with their defaults.  GpusimError where nothing is."""
    if axis.startswith("policies."):
        entry = own.find(axis.partition(".")[2], name)
        return {**({"sample": 0} if "now" in entry.facts else {}), **entry.parameters}
    known: dict[str, Mapping[str, Any]]
    if axis == "transform":
        known = {entry.name: entry.parameters for entry in transforms.entries(own)}
    elif axis == "tiers":
        defaults = {field.name: field.default for field in fields(Wanted)} | {"request": write(Wanted.request, BYTES)}
        known = {kind: {key: defaults[key] for key in keys} for kind, keys in PARAMETERS.items()}
    else:
        module = {key: parameter.default for key, parameter in driver_parameters.PARAMETERS.items()}
        known = {"driver": {**{word: getattr(DRIVER, word) for word in WORDS}, **module}}
    if name not in known:
        raise GpusimError(f"there is no '{name}' on the axis {axis}", hint=suggest(name, known))
    return known[name]


def oracle(axis: str, text: str, own: Registry) -> bool:
    """Whether a value of the axis reads the future."""
    if axis.startswith("policies."):
        return any(own.find(axis.partition(".")[2], name).oracle for name in names(axis, text))
    given = dict(parts(axis, text)).get("driver", {}) if axis == "unified" else {}
    evict, ahead = given.get("evict", DRIVER.evict), given.get("prefetch", DRIVER.prefetch)
    return victims.foresees(evict, own) or prefetchers.foresees(ahead)


def apart(path: str) -> tuple[str, str, str]:
    """("policies.prefetch", "next_k", "k") of "policies.prefetch.next_k.k"; two empty words behind an axis alone.

    Raises GpusimError for what is no axis, or has no parameters.
    """
    words = path.split(".")
    length = 2 if words[0] == "policies" else 1
    axis, rest = ".".join(words[:length]), words[length:]
    if axis in ("trace", "seed"):
        raise GpusimError(f"'{axis}' cannot be tuned: another {_ASKED[axis]}", hint="tune what is chosen, such as policies")
    if axis not in AXES:
        raise GpusimError(f"there is no axis '{axis}' to tune", hint=suggest(axis, AXES) or _known(AXES))
    if rest and axis not in WITH_PARAMETERS:
        raise GpusimError(f"the values of '{axis}' have no parameters", hint=f"write {axis}: [a, b]")
    if len(rest) not in (0, 2):
        raise GpusimError(f"'{path}' names no parameter", hint=f"write {axis}, or {axis}.NAME.PARAMETER")
    return axis, *(rest or ("", ""))


_ASKED = {"trace": "program is another question", "seed": "seed is another sample of the same"}


def _known(names: Sequence[str]) -> str:
    return "known: " + ", ".join(names)

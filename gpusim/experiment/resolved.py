"""An experiment as text again, with every default and override in place: a file that gives the same grid."""

from __future__ import annotations

from typing import Any

import yaml

from gpusim.base.defaults import LATER
from gpusim.base.units import FRACTION, write
from gpusim.base.yaml.ranges import NumberRange
from gpusim.experiment.spec import KINDS, Experiment, Uncertainty


def resolved(e: Experiment) -> str:
    """YAML of all that decides the results; the number of worker processes does not."""
    axes: dict[str, Any] = {
        "question": e.question,
        "trace": list(e.trace),
        **_named({"transform": e.transform}),
        "profile": list(e.profile),
        "memory": [str(memory) for memory in e.memory],
        "host_memory": [str(memory) for memory in e.host_memory],
        **_named({"tiers": e.tiers, "grain": e.grain, "unified": e.unified, "parallel": e.parallel, "placement": e.placement,
                  "stragglers": e.stragglers, "beside": e.beside, "tenancy": e.tenancy}),
        **_shared(e),
        **({"fold": True} if e.fold else {}),
        "use": list(e.use),
        **({"kernel_times": e.kernel_times} if e.kernel_times else {}),
        "policies": _named({kind: getattr(e.policies, kind) for kind in KINDS}),
        "seed": list(e.seed),
        "options": {"log": e.options.log},
        **({"uncertainty": _uncertainty(e.uncertainty)} if e.uncertainty.samples else {}),
        "bounds": e.bounds,
        "figures": list(e.figures),
        "max_runs": e.max_runs,
        **({"tune": {path: _tuned(values) for path, values in e.tune.items()}} if e.tune else {}),
    }
    return yaml.safe_dump(axes, sort_keys=False, allow_unicode=True, width=1000)


def _named(axes: dict[str, tuple[Any, ...]]) -> dict[str, list[str]]:
    """Axes as text, without those that are named only where they say something."""
    words = {name: [str(value) for value in axis] for name, axis in axes.items()}
    return {name: axis for name, axis in words.items() if axis != [LATER.get(name)]}


def _shared(e: Experiment) -> dict[str, Any]:
    """What is shared, and how much of it is the program's, where that is not the default."""
    said = {"share": e.share, "active_thread_percentage": list(e.active_thread_percentage)}
    return {name: value for name, value in said.items() if value not in (LATER[name], [int(LATER["active_thread_percentage"])])}


def _tuned(values: Any) -> Any:
    """A range or a list of `tune`, as it is written."""
    if not isinstance(values, NumberRange):
        return list(values)
    with_unit = {key: values.write(number) if values.unit else number for key, number in
                 (("from", values.low), ("to", values.high), ("step", values.step)) if number is not None}  # fmt: skip
    return {**with_unit, **({"log": True} if values.log else {})}


def _uncertainty(u: Uncertainty) -> dict[str, Any]:
    return {"samples": u.samples, "estimated": write(u.estimated, FRACTION), "seed": u.seed}

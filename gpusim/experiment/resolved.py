"""An experiment as text again, with every default and override in place: a file that gives the same grid."""

from __future__ import annotations

from typing import Any

import yaml

from gpusim.config.experiment import AS_RECORDED, KINDS, Experiment, Uncertainty
from gpusim.units import FRACTION, write


def resolved(e: Experiment) -> str:
    """YAML of all that decides the results; the number of worker processes does not."""
    axes: dict[str, Any] = {
        "question": e.question,
        "trace": list(e.trace),
        **({} if e.transform == (AS_RECORDED,) else {"transform": list(e.transform)}),
        "profile": list(e.profile),
        "memory": [str(memory) for memory in e.memory],
        "host_memory": [str(memory) for memory in e.host_memory],
        "use": list(e.use),
        "policies": {kind: [str(policy) for policy in getattr(e.policies, kind)] for kind in KINDS},
        "seed": list(e.seed),
        "options": {"log": e.options.log},
        **({"uncertainty": _uncertainty(e.uncertainty)} if e.uncertainty.samples else {}),
        "bounds": e.bounds,
        "figures": list(e.figures),
        "max_runs": e.max_runs,
    }
    return yaml.safe_dump(axes, sort_keys=False, allow_unicode=True, width=1000)


def _uncertainty(u: Uncertainty) -> dict[str, Any]:
    return {"samples": u.samples, "estimated": write(u.estimated, FRACTION), "seed": u.seed}

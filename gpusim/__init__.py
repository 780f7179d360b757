"""gpusim: a discrete-event simulator of GPU and host memory hierarchies.

    simulate(trace, on=machine, evict=...)   one run            run(experiment)   a grid
    load_trace, load_machine, load_results   what there is      Experiment, Result
    fit, kernel_times, machines, oom, advise, tune, check, monitor, environment, record, transform,
    transforms, policy

Each name is imported when it is first asked for.
"""

from typing import TYPE_CHECKING, Any

from gpusim.base.public import PUBLIC

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gpusim.api.advising import advise as advise
    from gpusim.api.checking import check as check
    from gpusim.api.cluster import cluster as cluster
    from gpusim.api.environments import environment as environment
    from gpusim.api.experts import experts as experts
    from gpusim.api.failures import endure as endure
    from gpusim.api.grids import Experiment as Experiment
    from gpusim.api.grids import load_results as load_results
    from gpusim.api.grids import run as run
    from gpusim.api.inputs import load_machine as load_machine
    from gpusim.api.inputs import load_trace as load_trace
    from gpusim.api.machines import machines as machines
    from gpusim.api.models import models as models
    from gpusim.api.monitoring import monitor as monitor
    from gpusim.api.questions import fit as fit
    from gpusim.api.questions import kernel_times as kernel_times
    from gpusim.api.questions import oom as oom
    from gpusim.api.result import Result as Result
    from gpusim.api.runs import simulate as simulate
    from gpusim.api.serving import serve as serve
    from gpusim.api.suspending import suspend as suspend
    from gpusim.api.tuning import tune as tune
    from gpusim.policies import decorators as policy  # noqa: F401
    from gpusim.programs import record as record
    from gpusim.programs import transforms as transforms
    from gpusim.programs.transforms import apply as transform  # noqa: F401

__all__ = [*PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'gpusim' has no attribute '{name}'")
    from importlib import import_module

    module, _, attribute = PUBLIC[name].partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return __all__

"""gpusim: a discrete-event simulator of GPU and host memory hierarchies."""

from typing import Any

# What `gpusim.NAME` imports when it is first asked for.
_LAZY = {"record": "gpusim.record:record", "transform": "gpusim.transforms:apply"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'gpusim' has no attribute '{name}'")
    from importlib import import_module

    module, _, attribute = _LAZY[name].partition(":")
    return getattr(import_module(module), attribute)

"""gpusim: a discrete-event simulator of GPU and host memory hierarchies."""

from typing import Any

from gpusim.base.public import PUBLIC


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'gpusim' has no attribute '{name}'")
    from importlib import import_module

    module, _, attribute = PUBLIC[name].partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found

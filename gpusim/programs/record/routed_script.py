"""A script that names a model with experts and texts for it: which experts it chooses, run on the CPU with real values.

The script's own names say what is recorded:

    model    an `nn.Module` that takes (1, T) token ids
    texts    (T,) token ids each
    gates    the linear layers that choose; without it, those that are called gate or router
    chosen   experts of a token: 2 without it;  prompt: tokens of each text that are its prompt, 64 without it
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from gpusim.base.errors import GpusimError
from gpusim.programs.record.routing import record_routing
from gpusim.programs.record.where import RecordError, line_of
from gpusim.programs.serving.routing import ExpertRouting

GATES = ("gate", "router")


def routing_of_script(script: Path, args: Sequence[str]) -> ExpertRouting:
    """Runs the script as `python script.py args...` would, then its model on its texts.  Raises GpusimError."""
    if not script.is_file():
        raise RecordError(f"there is no script '{script}'")
    arguments, search = sys.argv, sys.path[:]
    sys.argv, sys.path[0] = [str(script), *args], str(script.resolve().parent)
    try:
        names = runpy.run_path(str(script), run_name="__main__")
    except Exception as error:
        first = str(error).strip().splitlines() or [""]
        raise RecordError(f"{type(error).__name__}: {first[0]}", line_of(error.__traceback__)) from error
    finally:
        sys.argv, sys.path[:] = arguments, search
    for name, what in (("model", "a PyTorch module"), ("texts", "token ids, a tensor for each text")):
        if name not in names:
            raise RecordError(f"the script has no '{name}': {what}", str(script), "gpusim record --help")
    model = names["model"]
    if not isinstance(model, nn.Module):
        raise RecordError(f"'model' is {type(model).__name__}, and no PyTorch module", str(script))
    gates = list(names.get("gates", _gates(model)))
    if not gates:
        said = f"no linear layer of the model is called {' or '.join(GATES)}"
        raise RecordError(said, str(script), "name them: gates = [...]")
    numbers: dict[str, Any] = {"chosen": int(names.get("chosen", 2)), "prompt": int(names.get("prompt", 64))}
    if not 1 <= numbers["chosen"] <= gates[0].out_features:
        said = f"of {gates[0].out_features} experts no {numbers['chosen']} can be chosen"
        raise GpusimError(said, str(script), "chosen = 2")
    return record_routing(model, gates, names["texts"], source=script.name, **numbers)


def _gates(model: nn.Module) -> list[nn.Linear]:
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return [module for name, module in found if name.rpartition(".")[2] in GATES]

"""Well-known models as PyTorch programs, made from configuration: there are no weights to load.

    entries()                                          what there is: name, help, parameters, options
    build("llama-8b", batch=4, seq=4096).run()         the program, to be recorded on fake tensors
    build("llama-8b(batch=4, seq=4096)").run()         the same

A family of models is one file with `class Model(nn.Module)`: `Model(**config)` makes it, `inputs(...)` its inputs, and calling
it with them answers the loss (or, without labels, the output).  Memory behaves as in the well-known eager implementation, which
each file names.  `models.py` lists the models, `catalogue.py` their options; torch is imported when one is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusim.base.errors import GpusimError
from gpusim.programs.zoo.catalogue import Value, ask, entries
from gpusim.programs.zoo.models import ModelEntry

if TYPE_CHECKING:
    from gpusim.programs.zoo.model_program import ModelProgram

__all__ = ["ModelEntry", "build", "entries"]


def build(spec: str, **options: Value) -> ModelProgram:
    """The program of "name" or "name(option=value, ...)"; `options` come after those of the text."""
    asked = ask(spec, options)
    try:
        from gpusim.programs.zoo.model_program import make
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise GpusimError("the models of the zoo need PyTorch", hint="pip install 'gpusim[torch]'") from None
    return make(asked)

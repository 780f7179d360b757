"""Where the runs of a grid are done, as the command line and Python name it.

    local          by worker processes of this machine (pool.py), the default
    dask:ADDRESS   by the workers of a dask scheduler: its address, or the file that it wrote (--scheduler-file)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpusim.base.errors import GpusimError, suggest
from gpusim.experiment.executor import Executor, LocalWorkers
from gpusim.experiment.far import dask_executor

LOCAL, DASK = "local", "dask"


@contextmanager
def opened(name: str, out: Path, local: Callable[[], LocalWorkers]) -> Iterator[Executor]:
    """The executor of this name, for results in the folder `out`, which has begun.  GpusimError where it is not there."""
    kind, _, address = name.partition(":")
    if kind == LOCAL and not address:
        yield local()
    elif kind == DASK and address:
        with dask_executor(address, out) as executor:
            yield executor
    elif kind == DASK:
        raise GpusimError("an executor of dask needs the address of its scheduler", hint="dask:ADDRESS, or dask:FILE")
    else:
        raise GpusimError(f"there is no executor '{name}'", hint=suggest(kind, [LOCAL, f"{DASK}:ADDRESS"]))

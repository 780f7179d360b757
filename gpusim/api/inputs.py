"""What runs, and on which machine: by name, by path, or made in Python."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.base.yaml.find import find, find_run, is_managed, is_of_ranks
from gpusim.base.yaml.values import machine as named
from gpusim.machine import variant
from gpusim.machine.profile import Profile
from gpusim.machine.topology import build
from gpusim.machine.topology.topology import Topology
from gpusim.programs.managed.steps import ManagedProgram
from gpusim.programs.managed.text import load as load_program
from gpusim.programs.ranks.files import load_ranks
from gpusim.programs.ranks.folder import import_ranks
from gpusim.programs.ranks.recorded import RankPrograms
from gpusim.studies.fragmentation.inputs import open_trace
from gpusim.trace.trace import Trace

Source = Trace | ManagedProgram | RankPrograms
_MANAGED = (".yaml", ".yml")


def load_trace(what: str | Path, device: int | None = None) -> Source:
    """The program behind a name or a path.

    what    a shipped trace or managed program by name, a file `gpusim record` or `gpusim import` wrote, or another tool's
            recording (a memory snapshot of PyTorch, ...), which is imported; its warnings are Python warnings; a folder of
            recordings, one of each rank
    device  which GPU of a snapshot that holds several

    Raises TraceError: not there, damaged, or in no known format.

    >>> import gpusim
    >>> trace = gpusim.load_trace("gpt2-small-train")
    >>> trace.name, trace.tensors
    ('gpt2-small-train', 2688)
    """
    try:
        file = find_run(str(what))
    except GpusimError:
        file = Path(what)
    if is_managed(file) and file.is_file():
        return load_program(file)
    if is_of_ranks(file) and file.is_file():
        return load_ranks(file)
    if file.is_dir():
        options: dict[str, Any] = {} if device is None else {"device": device}
        programs = import_ranks(file, **options)
        for sentence in programs.meta["warnings"]:
            warnings.warn(sentence, stacklevel=3)
        return programs
    return open_trace(str(what), device, lambda sentence: warnings.warn(sentence, stacklevel=4))


def load_machine(name: str | Path) -> Profile:
    """The machine behind a name or a path, some numbers of it changed on request.

    Raises ProfileError: not there, or it has no such number; ConfigError for a file with mistakes; UnitError for a value.

    >>> import gpusim
    >>> machine = gpusim.load_machine("a100-pcie-80gb(link.h2d=50 GB/s)")
    >>> machine.name, machine.link.h2d.value
    ('a100-pcie-80gb', 50000000000.0)
    """
    return variant.load(find("profile", named(str(name))[0]), str(name))


def source_of(what: str | Path | Source) -> tuple[str, Source]:
    """The program, and the word for it in a result."""
    if isinstance(what, Trace | ManagedProgram | RankPrograms):
        return what.name, what
    return str(what), load_trace(what)


def machine_of(what: str | Path | Profile) -> tuple[str, Profile]:
    """The machine, and the word for it in a result."""
    return (what.name, what) if isinstance(what, Profile) else (str(what), load_machine(what))


def any_machine_of(what: str | Path | Profile | Topology) -> tuple[str, Profile | Topology]:
    """The same, also of a machine of several GPUs."""
    if isinstance(what, Topology):
        return what.name, what
    if isinstance(what, Profile) or (file := build.file_of(str(what))) is None:
        return machine_of(what)
    return str(what), build.load_found(file, str(what))

"""From what the user has to a program: a script, a recording, a trace, a managed program, or the name of a model of the zoo."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusim.base.errors import GpusimError, TraceError, suggest
from gpusim.base.files import make_folder
from gpusim.base.yaml.find import RUNS, find_run, is_managed, names
from gpusim.programs import generate
from gpusim.programs.zoo.models import ENTRIES
from gpusim.studies.fragmentation import inputs
from gpusim.trace.files import save_trace
from gpusim.trace.trace import Trace

Warn = Callable[[str], object]


@dataclass(frozen=True)
class Recordings:
    """Device -> its trace, and the device that is asked about; `file`: what names the trace, "" where it is kept nowhere."""

    traces: dict[int, Trace]
    chosen: int
    file: str = ""


def program_of(
    words: Sequence[str], *, options: Mapping[str, Any] | None = None, device: int | None = None, folder: Path | None = None,
    warn: Warn = lambda sentence: None, **recorder: Any,
) -> Recordings | Path:  # fmt: skip
    """What the words mean; of a managed program its file.

    words     a script with its arguments, or one name or path, or a model of the zoo
    options   of a model of the zoo
    device    which GPU of a snapshot
    folder    where the recording of a script is kept
    recorder  how a model is recorded: gpu, cudnn_workspace
    Raises GpusimError for what is none of them.
    """
    what = words[0]
    if what.endswith(".py"):
        trace = inputs.record(words, folder, warn)
        return Recordings({0: trace}, 0, str((folder or inputs.folder_of(what)) / f"{Path(what).stem}.npz"))
    name = what.partition("(")[0].strip()
    if not Path(what).is_file() and what not in names(RUNS[0]) and name in {entry.name for entry in ENTRIES}:
        from gpusim.programs.zoo.traced import record_model  # with torch

        return _kept(record_model(what, options or {}, **recorder), folder)
    if len(words) > 1:
        raise GpusimError(f"'{words[1]}' is too much: advice is for one program", hint="arguments go with a script or a model")
    return _found(what, name, device, warn)


def _found(what: str, name: str, device: int | None, warn: Warn) -> Recordings | Path:
    """A file, or a name that is known."""
    if name in {entry.name for entry in generate.entries()}:
        hint = f"gpusim oom '{what}' compares allocators"
        raise GpusimError(f"'{name}' is a generated program, without operators", hint=hint)
    path = Path(what).expanduser()
    if not path.is_file():
        try:
            path = find_run(what)
        except GpusimError as error:
            near = suggest(name, [*names(RUNS[0]), *names(RUNS[1]), *(entry.name for entry in ENTRIES)])
            said = "a script, a recording, a trace, a managed program, or a model of the zoo"
            raise TraceError(f"there is no program '{what}'", hint=near or f"give {said}") from error
    if is_managed(path):
        return path
    traces = inputs.open_all(what, warn) if device is None else {device: inputs.open_trace(what, device, warn)}
    return Recordings(traces, inputs.choose(traces, device), what)


def _kept(trace: Trace, folder: Path | None) -> Recordings:
    """A recording that is in no file yet; it is left in the folder, if there is one."""
    if folder is None:
        return Recordings({0: trace}, 0)
    make_folder(folder)
    save_trace(trace, folder / f"{trace.name}.npz")
    return Recordings({0: trace}, 0, str(folder / f"{trace.name}.npz"))

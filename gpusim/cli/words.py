"""From the words of a command line to traces, machines and files of the user's own: one way for all verbs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.base.errors import GpusimError, UnitError
from gpusim.cli import say

if TYPE_CHECKING:
    from gpusim.machine.profile import Profile
    from gpusim.policies.registry import Registry
    from gpusim.trace.trace import Trace


def trace(name: str) -> Trace:
    """The trace of this name or file.  Raises TraceError."""
    from gpusim.base.yaml.find import find
    from gpusim.trace.files import load_trace

    file = find("trace", name)
    say.detail(f"trace {name}: {file}")
    return load_trace(file)


def recording(file: str, device: int | None = None) -> Trace:
    """A trace by name or path, or a foreign recording, imported on the way.  Raises TraceError."""
    from gpusim.studies.fragmentation import inputs

    return inputs.open_trace(file, device, say.warning)


def machine(word: str | None, verb: str, before: str | None = None) -> Profile:
    """The one machine that a verb ("gpusim plan") needs; `before` is where it stood once, as an argument behind the trace.

    Raises GpusimError where none is named, or two are; ProfileError.
    """
    from gpusim.machine import words

    if before is not None:
        if word is not None:
            raise GpusimError(f"the machine is named twice, as '{before}' and with --on", hint="leave the argument out")
        say.renamed(f"`{verb} TRACE {before}`", f"`{verb} TRACE --on {before}`")
    said = word or before
    if said is None:
        raise GpusimError(f"{verb} needs a machine", hint="write --on a100-pcie-40gb; `gpusim profiles` lists them")
    several = words.split([said])
    if len(several) > 1:
        raise GpusimError(f"{verb} takes one machine, not {len(several)}", hint=f"write --on {several[0]}")
    return profile(words.one(said, verb))


def profile(word: str) -> Profile:
    """The machine that a word means.  Raises ProfileError, UnitError, ConfigError."""
    from gpusim.machine import words

    found = words.load(word)
    say.detail(f"machine {word}: profile {found.name}")
    return found


def own_files(use: Sequence[str] | None) -> Registry:
    """What can be named: the built-in policies and transforms, and those in files of the user's own.  Raises PolicyError."""
    from gpusim.policies import registry

    for file in use or ():
        there(file)
        say.detail(f"own policies and transforms: {Path(file).resolve()}")
    return registry.of(*(use or ()))


def there(use: str) -> None:
    """GpusimError when a file of --use is not there."""
    if not Path(use).expanduser().is_file():
        raise GpusimError(f"there is no file '{use}'", hint="--use takes a Python file with policies or transforms")


def capacity(text: str) -> int:
    """Bytes, above 0, of "24 GiB".  Raises UnitError."""
    from gpusim.base.units import parse_bytes

    limit = parse_bytes(text)
    if not limit:
        raise UnitError(f"a capacity of '{text}' holds nothing", hint="leave it out for no limit")
    return limit


def room(found: Profile) -> int:
    """Bytes that the CUDA context leaves of a machine's memory."""
    return int(found.memory.capacity.value - found.context.value)

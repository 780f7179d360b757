"""The policies of the package: each is found by being a file in `policies/<kind>/`, and read without being imported."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gpusim.base.errors import PolicyError
from gpusim.policies import entry as entry_file
from gpusim.policies.entry import Entry
from gpusim.results.renamed import POLICIES


@cache
def files(kind: str) -> Mapping[str, Path]:
    """The files of the built-ins of this kind, by name."""
    return {f.stem: f for f in sorted((Path(__file__).parent / kind).glob("*.py")) if not f.name.startswith("_")}


@cache
def builtin(kind: str, name: str) -> Entry:
    """The entry of a built-in."""
    return entry_file.read(files(kind)[name], kind)


@cache
def aliases(kind: str) -> Mapping[str, str]:
    """Former name of a built-in -> its name: accepted wherever its name is, and never listed."""
    return {before: name for (of, before), name in POLICIES.items() if of == kind}


def refuse_name(entry: Entry) -> None:
    """PolicyError when a policy of the user's has the name of a built-in."""
    if entry.name in files(entry.kind):
        raise PolicyError(f"{entry.kind} policy '{entry.name}' is built in", entry.where, "give yours another name")
    if entry.name in aliases(entry.kind):
        said = f"'{entry.name}' is a former name of {entry.kind} policy '{aliases(entry.kind)[entry.name]}'"
        raise PolicyError(said, entry.where, "give yours another name")

"""Shell completion of names: what is shipped, read from folders and declarations, never from traces or compiled policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

Completer = Callable[[str], list[str]]


def experiments(incomplete: str) -> list[str]:
    """Shipped experiments, and YAML files."""
    return [*_shipped("experiment", incomplete), *_files(incomplete, (".yaml", ".yml"))]


def traces(incomplete: str) -> list[str]:
    """Shipped traces and managed programs, and files."""
    return [*_shipped("trace", incomplete), *_shipped("managed program", incomplete), *_files(incomplete)]


def machines(incomplete: str) -> list[str]:
    """Shipped machines, and YAML files; of a list the last one is completed."""
    before, comma, last = incomplete.rpartition(",")
    found = [*_shipped("profile", last), *_files(last, (".yaml", ".yml"))]
    return [f"{before}{comma}{word}" for word in found]


def whole_machines(incomplete: str) -> list[str]:
    """Shipped machines of several GPUs, and YAML files."""
    return [*_shipped("machine", incomplete), *_files(incomplete, (".yaml", ".yml"))]


def collectives(incomplete: str) -> list[str]:
    """What several GPUs do at once."""
    from gpusim.trace.exchanges import KINDS, SEND

    return _begun([*KINDS, SEND], incomplete)


def policies(incomplete: str) -> list[str]:
    """The names of all policies."""
    from gpusim.policies.registry import entries

    return _begun(dict.fromkeys(entry.name for entry in entries()), incomplete)


def export_formats(incomplete: str) -> list[str]:
    """The formats of `gpusim export`."""
    from gpusim.show.export import TABLES, TIMELINES
    from gpusim.trace.exporters import FORMATS

    return _begun(("pytorch", *TIMELINES, *TABLES, *FORMATS), incomplete)


def transforms(incomplete: str) -> list[str]:
    """The names of all transforms."""
    from gpusim.programs.transforms import entries

    return _begun((entry.name for entry in entries()), incomplete)


def metrics(incomplete: str) -> list[str]:
    """The names of all metrics."""
    from gpusim.results.metrics import METRICS

    return _begun(METRICS, incomplete)


def _shipped(kind: str, incomplete: str) -> list[str]:
    from gpusim.base.yaml.find import names

    return _begun(names(kind), incomplete)


def _begun(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _files(incomplete: str, suffixes: tuple[str, ...] = ()) -> Iterator[str]:
    """Files and folders that begin so."""
    given = Path(incomplete or ".").expanduser()
    folder = given if incomplete.endswith("/") or not incomplete else given.parent
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        word = f"{path}/" if path.is_dir() else str(path)
        if word.startswith(incomplete) and not path.name.startswith(".") and (
            path.is_dir() or not suffixes or path.suffix in suffixes
        ):
            yield word

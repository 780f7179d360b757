"""The source files that can decide a result, found by following imports from where a run begins.

What counts of a file is its syntax tree without docstrings: a comment decides nothing.  A tree is as expensive to make as
its file is long, so what follows from a file is kept by the hash of its content.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, cached_property
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from gpusim.base import cache as kept_files
from gpusim.base.public import PUBLIC

PACKAGE = Path(__file__).parents[1]
_KEPT, _MOST = f"sources-{sys.version_info[0]}.{sys.version_info[1]}.json", 10_000
_LOADERS = ("import_module", "__import__")


class Source(NamedTuple):
    """What follows from the content of a file: a digest of what it does, and the names that it imports as they stand there."""

    digest: str
    imports: Sequence[str]


class Closure:
    """Source files and what they import, of the package in this folder and of users beside it."""

    def __init__(self, package: Path = PACKAGE) -> None:
        self._package = package
        self._known: dict[str | Path, dict[str, str]] = {}
        self._found: dict[Path, Source] = {}
        self._leads: dict[Path, list[Path | str]] = {}
        self._ours: dict[str, list[Path]] = {"": []}
        self._others: dict[str, Path | str | None] = {}
        self._used: set[str] = set()
        self._new = False

    def digest(self, roots: Iterable[str | Path]) -> str:
        """sha256 over all that these modules (of the package, by name) and files (of a user) lead to."""
        told = hashlib.sha256()
        for name, content in sorted(self.contents(roots).items()):
            told.update(f"{name}\0{content}\0".encode())
        self._keep()
        return told.hexdigest()

    def contents(self, roots: Iterable[str | Path]) -> dict[str, str]:
        """The same one by one: module, data file, or package of others -> digest, or version."""
        found: dict[str, str] = {}
        for root in roots:
            found |= self._from(root)
        return found

    def _from(self, root: str | Path) -> dict[str, str]:
        if root not in self._known or isinstance(root, Path):
            todo: list[Path | str] = [root] if isinstance(root, Path) else [*self._of_package(root)]
            seen: set[Path | str] = set()
            while todo:
                at = todo.pop()
                if at not in seen:
                    seen.add(at)
                    todo += self._leads_to(at) if isinstance(at, Path) else []
            files = [at for at in seen if isinstance(at, Path)]
            found = {self._name(file): self._read(file).digest for file in files}
            for folder in sorted({file.parent for file in files if self._is_ours(file)}):
                found |= {self._name(table): _hash(table.read_bytes()) for table in _data(folder)}
            self._known[root] = found | {at: "" for at in seen if isinstance(at, str)}
        return self._known[root]

    def _name(self, file: Path) -> str:
        """What a file is called wherever the package lies; a user's is called by its name alone."""
        return file.relative_to(self._package).as_posix() if self._is_ours(file) else f"{file.name} {self._read(file).digest}"

    def _is_ours(self, file: Path) -> bool:
        return str(file).startswith(f"{self._package}{os.sep}")

    def _leads_to(self, at: Path) -> list[Path | str]:
        if at not in self._leads or not self._is_ours(at):
            self._leads[at] = list(dict.fromkeys(p for name in self._read(at).imports for p in self._resolved(name, at)))
        return self._leads[at]

    def _resolved(self, name: str, by: Path) -> Iterator[Path | str]:
        """The files that an import of this name in the file `by` executes; of what pip has installed its version."""
        top = name.partition(".")[0]
        if not top:
            level = len(name) - len(name.lstrip("."))
            yield from _modules(by.parents[level - 1], name.lstrip(".").split("."))
        elif top == PACKAGE.name:
            yield from self._of_package(name)
        elif not self._is_ours(by) and top not in sys.stdlib_module_names:
            if top not in self._others:
                self._others[top] = _other(top, by)
            place = self._others[top]
            if isinstance(place, Path):
                yield from _modules(place, name.split("."))
            elif place:
                yield place

    def _of_package(self, name: str) -> Iterator[Path]:
        lazy = PUBLIC.get(name.partition(".")[2], "")
        for each in (name, lazy.partition(":")[0]):
            if each not in self._ours:
                self._ours[each] = list(_modules(self._package.parent, each.split(".")))
            yield from self._ours[each]

    def _read(self, file: Path) -> Source:
        if file not in self._found or not self._is_ours(file):  # users edit theirs while this process runs
            content = file.read_bytes()
            key = _hash(content)
            if key not in self._kept:
                self._kept[key] = _source(content)
                self._new = True
            self._used.add(key)
            self._found[file] = self._kept[key]
        return self._found[file]

    @cached_property
    def _kept(self) -> dict[str, Source]:
        """What earlier processes have read, by hash of the content."""
        folder = kept_files.folder("sources")
        content = None if folder is None else kept_files.read(folder / _KEPT)
        try:
            kept = json.loads(content or "{}")
            return {str(key): Source(str(digest), [str(name) for name in names]) for key, (digest, names) in kept.items()}
        except (ValueError, TypeError, AttributeError, RecursionError):
            return {}

    def _keep(self) -> None:
        folder = kept_files.folder("sources")
        if self._new and folder is not None:
            wanted = self._used if len(self._kept) > _MOST else self._kept
            kept_files.write(folder / _KEPT, json.dumps({key: self._kept[key] for key in wanted}).encode())
        self._new = False


def _modules(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """The files of a dotted name below a folder: each package on the way, and the module, as far as there are any."""
    at = str(folder)
    for part in parts:
        at = f"{at}{os.sep}{part}"
        if os.path.isfile(package := f"{at}{os.sep}__init__.py"):
            yield _path(package)
        elif os.path.isfile(module := f"{at}.py"):
            yield _path(module)
            return
        elif not os.path.isdir(at):
            return


_path = cache(Path)  # one object for each: a path is expensive to make, hash and compare


def _other(top: str, by: Path) -> Path | str | None:
    """The folder in which a user's module lies, or "name version" of one that is installed."""
    loaded = sys.modules.get(top)
    spec = getattr(loaded, "__spec__", None)
    if spec is None:
        with suppress(ImportError, ValueError, AttributeError):
            spec = find_spec(top)
    if spec is None:
        return None
    place = next((Path(p) for p in spec.submodule_search_locations or ()), None) or Path(spec.origin or "")
    installed = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
    if any(folder in place.parents for folder in installed) and place not in (by, *by.parents):
        with suppress(metadata.PackageNotFoundError):
            return f"{top} {metadata.version(top)}"
        return None
    return place.parent


def _data(folder: Path) -> list[Path]:
    """The files beside modules that are none themselves: tables that the package reads."""
    found = [*folder.iterdir(), *(folder / "data").rglob("*")]
    return [p for p in found if p.is_file() and p.suffix not in (".py", ".pyc") and p.name[0] != "." and p.name[-1] != "~"]


def _source(content: bytes) -> Source:
    """What follows from a Python file; of one that is none, the content as it stands."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return Source(_hash(content), [])
    imports = sorted(set(_imports(tree)))
    return Source(_hash(repr(_form(tree)).encode()), imports)


def _imports(node: ast.AST) -> Iterator[str]:
    """Names of modules, and of what might be modules; not what is only imported for annotations."""
    within = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.If) and "TYPE_CHECKING" in (getattr(node.test, "id", ""), getattr(node.test, "attr", "")):
        within = list(node.orelse)
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        yield module
        yield from (f"{module}.{alias.name}" if node.module else f"{module}{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and _loads(node):
        yield node.args[0].value  # type: ignore[attr-defined]
    for each in within:
        yield from _imports(each)


def _loads(node: ast.Call) -> bool:
    """Whether this is import_module("a.name")."""
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    return name in _LOADERS and bool(node.args) and isinstance(getattr(node.args[0], "value", None), str)


def _form(node: Any) -> Any:
    """The tree as plain values, without places in the file, docstrings, and what later versions of Python add empty."""
    if isinstance(node, list):
        return [_form(each) for each in node]
    if not isinstance(node, ast.AST):
        return node
    fields = {name: value for name, value in ast.iter_fields(node) if value is not None and value != []}
    documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    if documented and ast.get_docstring(node, clean=False) is not None:  # type: ignore[arg-type]
        fields["body"] = fields["body"][1:]
    return type(node).__name__, [(name, _form(value)) for name, value in fields.items()]


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

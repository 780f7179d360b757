"""Machine code that the next process finds on disk.

Numba's own disk cache reads what lies in its folder, never mind the owner, and fails where a file is damaged.
Here a file is read only when no other user can have written it and its digest fits it, the source and numba's version;
anything else counts as not there, and the function is compiled.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import os
import pickle
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
from numba import config

from gpusim.base import cache as places
from gpusim.base.compiled.reached import fields
from gpusim.base.errors import note

try:
    from numba.core.compiler import CompileResult
    from numba.core.serialize import dumps
except ImportError:  # private parts of numba, which may go
    CompileResult = dumps = None
    if not config.DISABLE_JIT:
        note("this version of numba has no way to keep what gpusim compiles: every process compiles it again")


def keep(dispatcher: Any, function: Callable[..., Any], stamp: Callable[[], str], folder: Path | None = None) -> Any:
    """The dispatcher of `function`, whose machine code is kept as long as its stamp is the same.

    stamp    asked for when numba first looks for the code
    folder   where; by default where the code of the function's source file is, and nowhere for one without a file
    """
    if dumps is not None:
        dispatcher._cache = _Cache(function, stamp, folder)
    return dispatcher


VERSIONS = f"{numba.__version__} {llvmlite.__version__} {np.__version__}"


class _Files:
    """Machine code of one function: an index of the signatures, and a file for each."""

    def __init__(self, folder: Path, name: str, content: str) -> None:
        self.folder, self._name, self._content = folder, name, content

    def load(self, key: Any) -> Any:
        name = self.names().get(key)
        return None if name is None else self._read(name)

    def save(self, key: Any, data: Any) -> None:
        names = self.names()
        if key not in names:
            names[key] = next(n for i in itertools.count(1) if (n := f"{self._name}.{i}.nbc") not in names.values())
        self._write(names[key], dumps(data))  # before the index names it: a kill in between costs a compilation
        self._write(f"{self._name}.nbi", dumps(names))

    def flush(self) -> None:
        self._write(f"{self._name}.nbi", dumps({}))

    def names(self) -> dict[Any, str]:
        """The file of each signature."""
        found = self._read(f"{self._name}.nbi")
        return found if isinstance(found, dict) else {}

    def _read(self, name: str) -> Any:
        found = places.read(self.folder / name)
        if found is None or found[:32] != self._digest(name, found[32:]):
            return None
        try:
            return pickle.loads(found[32:])
        except Exception:  # whatever a class that has changed raises
            return None

    def _write(self, name: str, content: bytes) -> None:
        places.write(self.folder / name, self._digest(name, content) + content)

    def _digest(self, name: str, content: bytes) -> bytes:
        about = f"{VERSIONS}\0{self._content}\0{name}\0"
        return hashlib.sha256(about.encode() + content).digest()


class _Cache:
    """What numba's dispatcher asks before it compiles a function, and tells afterwards."""

    def __init__(self, function: Any, stamp: Callable[[], str], folder: Path | None) -> None:
        self._function, self._stamp, self._folder = function, stamp, folder
        self._name = _name(function)

    @cached_property
    def _files(self) -> _Files | None:
        file = Path(inspect.getfile(self._function))
        folder = self._folder or (places.of_source(file) if file.is_file() else None)
        return None if folder is None else _Files(folder, self._name, self._stamp())

    @property
    def is_empty(self) -> bool:
        """Whether it could keep the function, and has none of it as its source is now."""
        return self._files is not None and not self._files.names()

    @property
    def cache_path(self) -> str:
        """Where it is kept."""
        return os.fspath(self._files.folder) if self._files else ""

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The compiled function, None where there is none that this numba and this processor can use."""
        try:
            context.refresh()
            found = self._files.load(self._key(signature, context.codegen())) if self._files else None
            return None if found is None else CompileResult._rebuild(context, *found)
        except Exception:  # whatever a change in numba raises
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep it, unless it holds addresses that are of this process only."""
        if any(not part.can_cache for part in compiled.lifted) or compiled.library.has_dynamic_globals or not self._files:
            return
        try:
            self._files.save(self._key(signature, compiled.codegen), compiled._reduce())
        except Exception as error:
            note(f"this version of numba does not let gpusim keep what it compiles: {type(error).__name__}: {error}")

    def flush(self) -> None:
        """Forget what was kept."""
        if self._files:
            self._files.flush()

    def _key(self, signature: Any, codegen: Any) -> Any:
        return signature, fields(signature), codegen.magic_tuple()


_named: dict[str, list[Any]] = {}


def _name(function: Any) -> str:
    """What the files of a function are called: by its own name, without the line at which it stands; a second one of this name
    in this file is numbered."""
    code = function.__code__
    name = f"{Path(code.co_filename).stem}.{function.__qualname__}".replace("<", "").replace(">", "")
    others = _named.setdefault(f"{code.co_filename}:{name}", [])
    if code not in others:
        others.append(code)
    number = f".{others.index(code)}" if others.index(code) else ""
    return f"{name}{number}.py{''.join(map(str, sys.version_info[:2]))}"

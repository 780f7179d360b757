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
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import config, njit

from gpusim.base import cache as places
from gpusim.base.errors import note

try:
    from numba.core.compiler import CompileResult
    from numba.core.serialize import dumps
except ImportError:  # private parts of numba, which may go
    CompileResult = dumps = None
    if not config.DISABLE_JIT:
        note("this version of numba has no way to keep what gpusim compiles: every process compiles it again")


def kept(signature: Any = None, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function: compiled by numba, with the options of njit, and kept as long as its file does not change.

    With a signature it is compiled now and for nothing else, without one at the first call.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**options)(function)
        return dispatcher if config.DISABLE_JIT else keep(dispatcher, function, _content(inspect.getfile(function)), signature)

    return decorate


def keep(dispatcher: Any, function: Callable[..., Any], content: str, signature: Any = None, folder: Path | None = None) -> Any:
    """The dispatcher of `function`, whose machine code is kept as long as `content` is the same.

    folder   where; by default where the code of the function's source file is
    """
    if config.DISABLE_JIT:
        return dispatcher
    folder = folder or (places.of_source(Path(inspect.getfile(function))) if content else None)
    if folder is not None and dumps is not None:
        dispatcher._cache = _Cache(function, folder, content)
    if signature is not None:
        dispatcher.compile(signature)
        dispatcher.disable_compile()
    return dispatcher


@cache
def _content(file: str) -> str:
    """Hash of the source; "" of one inside a zip-app, beside which nothing is kept."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if Path(file).is_file() else ""


class _Files:
    """Machine code of one function: an index of the signatures, and a file for each."""

    def __init__(self, folder: Path, name: str, content: str) -> None:
        self._folder, self._name, self._content = folder, name, content

    def load(self, key: Any) -> Any:
        name = self._names().get(key)
        return None if name is None else self._read(name)

    def save(self, key: Any, data: Any) -> None:
        names = self._names()
        if key not in names:
            names[key] = next(n for i in itertools.count(1) if (n := f"{self._name}.{i}.nbc") not in names.values())
        self._write(names[key], dumps(data))  # before the index names it: a kill in between costs a compilation
        self._write(f"{self._name}.nbi", dumps(names))

    def flush(self) -> None:
        self._write(f"{self._name}.nbi", dumps({}))

    def _names(self) -> dict[Any, str]:
        found = self._read(f"{self._name}.nbi")
        return found if isinstance(found, dict) else {}

    def _read(self, name: str) -> Any:
        found = places.read(self._folder / name)
        if found is None or found[:32] != self._digest(name, found[32:]):
            return None
        try:
            return pickle.loads(found[32:])
        except Exception:  # whatever a class that has changed raises
            return None

    def _write(self, name: str, content: bytes) -> None:
        places.write(self._folder / name, self._digest(name, content) + content)

    def _digest(self, name: str, content: bytes) -> bytes:
        about = f"{numba.__version__}\0{self._content}\0{name}\0"
        return hashlib.sha256(about.encode() + content).digest()


class _Cache:
    """What numba's dispatcher asks before it compiles a function, and tells afterwards."""

    def __init__(self, function: Any, folder: Path, content: str) -> None:
        code = function.__code__
        name = f"{Path(code.co_filename).stem}.{function.__qualname__}".replace("<", "").replace(">", "")
        version = "".join(map(str, sys.version_info[:2]))
        self._function = function
        self._files = _Files(folder, f"{name}-{code.co_firstlineno}.py{version}", content)
        self.cache_path = os.fspath(folder)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The compiled function, None where there is none that this numba and this processor can use."""
        try:
            context.refresh()
            found = self._files.load(self._key(signature, context.codegen()))
            return None if found is None else CompileResult._rebuild(context, *found)
        except Exception:  # whatever a change in numba raises
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep it, unless it holds addresses that are of this process only."""
        if any(not part.can_cache for part in compiled.lifted) or compiled.library.has_dynamic_globals:
            return
        try:
            self._files.save(self._key(signature, compiled.codegen), compiled._reduce())
        except Exception as error:
            note(f"this version of numba does not let gpusim keep what it compiles: {type(error).__name__}: {error}")

    def flush(self) -> None:
        """Forget what was kept."""
        self._files.flush()

    def _key(self, signature: Any, codegen: Any) -> Any:
        inner = tuple(cell.cell_contents for cell in self._function.__closure__ or ())
        parts = self._function.__code__.co_code, dumps(inner) if inner else b""
        return signature, codegen.magic_tuple(), tuple(hashlib.sha256(part).hexdigest() for part in parts)

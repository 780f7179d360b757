"""Where the real classes of serving engines are found: folders with the unpacked sources of published wheels.

The variable GPUSIM_SERVING_WHEELS names a folder with sglang-0.5.23, vllm-0.9.2, vllm-0.11.0, vllm-0.33.0 and lmcache-0.5.6,
each what `pip download --no-deps PACKAGE==VERSION` and `unzip WHEEL '*.py'` give.  Nothing of them is part of this project.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

VARIABLE = "GPUSIM_SERVING_WHEELS"


def folder(release: str) -> Path | None:
    """The unpacked wheel of this release (as "vllm-0.9.2"), None where there is none."""
    root = os.environ.get(VARIABLE)
    path = Path(root) / release / release.partition("-")[0] if root else None
    return path if path is not None and path.is_dir() else None


def absent(release: str) -> str:
    """What a check says that cannot find a release."""
    return f"the sources of {release} are not there: {VARIABLE} names no folder that has them"


class _Meta(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _Meta(name, (Inert,), {})

    def __or__(cls, other: Any) -> Any:
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __iter__(cls) -> Any:
        return iter(())


class Inert(metaclass=_Meta):
    """Takes any call and has any attribute, and does nothing: what stands for a module that is not needed."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __init_subclass__(cls, **_: Any) -> None:
        pass

    def __class_getitem__(cls, _: Any) -> Any:
        return cls

    def __call__(self, *given: Any, **named: Any) -> Any:
        return given[0] if len(given) == 1 and callable(given[0]) and not named else Inert()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Inert()

    def __getitem__(self, _: Any) -> Any:
        return Inert()

    def __iter__(self) -> Any:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __contains__(self, _: Any) -> bool:
        return False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


class _InertModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        value = _Meta(name, (Inert,), {}) if name[:1].isupper() or name in ("dtype", "device", "tensor") else Inert()
        if name == "init_logger":
            value = lambda _name: Inert()  # noqa: E731
        setattr(self, name, value)
        return value


class Imports(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports chosen modules of a package from a folder; all its other modules, and missing packages, are inert."""

    def __init__(self, package: str, root: Path, real: Sequence[str]) -> None:
        self.package, self.root, self.real, self.inert = package, root, tuple(real), set[str]()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.split(".")[0] != self.package:
            return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.inert else None
        base = self.root.joinpath(*name.split(".")[1:])
        if name in self.real or any(name.startswith(r) for r in self.real if r.endswith(".")):
            file = base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__init__.py"
            places = [str(base)] if file.name == "__init__.py" else None
            return importlib.util.spec_from_file_location(name, file, submodule_search_locations=places)
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = [str(base)] if base.is_dir() else []
        return spec

    def create_module(self, spec: Any) -> types.ModuleType:
        module = _InertModule(spec.name)
        module.__path__ = list(spec.submodule_search_locations or [])
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _Missing(importlib.abc.MetaPathFinder):
    """A package that nobody else finds is inert where the real classes import it."""

    def __init__(self, imports: Imports) -> None:
        self.imports = imports

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        frame = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if frame is None or not frame.f_code.co_filename.startswith(str(self.imports.root)):
            return None
        self.imports.inert.add(name.split(".")[0])
        return importlib.machinery.ModuleSpec(name, self.imports, is_package=True)


def imports(package: str, root: Path, real: Sequence[str], inert: Iterable[str] = ()) -> None:
    """From now on this process imports `real` modules of a package from `root` (a name that ends in a dot: all below it).

    Only for a process of its own: what is missing is inert from then on.
    """
    found = Imports(package, root, real)
    found.inert.update(inert)
    sys.meta_path.insert(0, found)
    sys.meta_path.append(_Missing(found))

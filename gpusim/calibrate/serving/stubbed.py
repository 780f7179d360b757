"""Import single modules of a big package without what it depends on: everything else becomes an inert stub.

    stubbed.install("vllm", "/unpacked/vllm", real=("vllm.v1.core.", "vllm.v1.request"))

Imports the standard library only: it runs in the process of a real engine.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from typing import Any


class _StubType(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _stub_type(name)

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__

    def __iter__(cls) -> Any:
        return iter(())

    def __getitem__(cls, _: Any) -> Any:
        return cls


class _Stub(metaclass=_StubType):
    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __init_subclass__(cls, **_: Any) -> None:
        pass

    def __class_getitem__(cls, _: Any) -> Any:
        return cls

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """A decorator gives what it decorates; anything else gives a stub."""
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) and not named else _Stub()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _Stub()

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Any:
        return iter(())

    def __getitem__(self, _: Any) -> Any:
        return _Stub()

    def __contains__(self, _: Any) -> bool:
        return False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


def _stub_type(name: str) -> Any:
    return _StubType(name, (_Stub,), {})


class _Logger:
    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class _StubModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        if name == "init_logger":
            return lambda _: _Logger()
        made = _stub_type(name) if name[:1].isupper() or name in ("dtype", "device", "tensor") else _Stub()
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Real modules of the package from its folder, the others of it as stubs."""

    def __init__(self, package: str, folder: str, real: tuple[str, ...]) -> None:
        self.package, self.folder, self.real = package, folder, real

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.split(".")[0] != self.package:
            return None
        base = os.path.join(self.folder, *name.split(".")[1:])
        if os.path.isdir(base) and name not in self.real:
            spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
            spec.submodule_search_locations = [base]
            return spec
        if name in self.real or any(name.startswith(r) for r in self.real if r.endswith(".")):
            file = base + ".py" if os.path.exists(base + ".py") else os.path.join(base, "__init__.py")
            inside = [base] if file.endswith("__init__.py") else None
            return importlib.util.spec_from_file_location(name, file, submodule_search_locations=inside)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        module = _StubModule(spec.name)
        module.__path__ = list(spec.submodule_search_locations or [])
        return module

    def exec_module(self, module: Any) -> None:
        pass


class _Rest(importlib.abc.MetaPathFinder):
    """Whatever nobody else finds is a stub, too."""

    def __init__(self, finder: _Finder) -> None:
        self.finder = finder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.split(".")[0] in {"numpy", *sys.stdlib_module_names, *sys.builtin_module_names}:
            return None
        return importlib.machinery.ModuleSpec(name, self.finder, is_package=True)


class _NoTorch(importlib.abc.MetaPathFinder):
    def __init__(self, finder: _Finder) -> None:
        self.finder = finder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        stubbed = name.split(".")[0] in ("torch", "pydantic", "cloudpickle", "msgspec", "zmq", "psutil", "transformers")
        return importlib.machinery.ModuleSpec(name, self.finder, is_package=True) if stubbed else None


def install(package: str, folder: str, real: tuple[str, ...]) -> None:
    """From now on, `real` modules (a name, or a prefix that ends in a dot) of the package come from the folder."""
    finder = _Finder(package, folder, real)
    sys.meta_path.insert(0, _NoTorch(finder))
    sys.meta_path.insert(0, finder)
    sys.meta_path.append(_Rest(finder))

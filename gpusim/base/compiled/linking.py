"""What is compiled together: a function that Python calls, with all that it calls, optimised and turned into machine code once.

Numba finishes each function before it compiles its callers: it links what the function calls, optimises all of it and makes
machine code, which is not used where only compiled code calls it.  In a tree of two hundred functions that is most of the work.
"""

from __future__ import annotations

from typing import Any

from numba import _dynfunc
from numba.core.codegen import JITCodeLibrary
from numba.core.environment import lookup_environment

from gpusim.base.compiled import lean


def _defined(module: Any) -> list[Any]:
    return [function for function in module.functions if not function.is_declaration]


class _Library(JITCodeLibrary):  # type: ignore[misc]
    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self._shared_module: Any = None
        self._called: dict[Any, None] = {}  # directly or not, callees before their callers

    def add_linking_library(self, library: Any) -> None:
        library._ensure_finalized()
        if isinstance(library, Part):
            self._called.update(library._called)
        self._called[library] = None

    def _take_in(self, module: Any) -> None:
        """Link what this function calls.  Callers first: what nothing in the module calls so far would be left out."""
        for library in reversed(self._called):
            if hasattr(library, "_reload_init"):  # numba since 0.62
                self._reload_init.update(library._reload_init)
            module.link_in(library.alone() if isinstance(library, Part) else library._get_module_for_linking(), preserve=True)


class Part(_Library):
    """A function that only compiled code calls: kept as it was written until one that Python calls takes it in."""

    def finalize(self) -> None:
        for function in _defined(self._final_module):
            function.linkage = "linkonce_odr"
        self._finalized = True

    def alone(self) -> Any:
        return self._final_module

    def _get_module_for_linking(self) -> Any:
        """With all that it calls, for callers that numba compiles in its own way."""
        if self._shared_module is None:
            self._shared_module = self._final_module.clone()
            self._take_in(self._shared_module)
        return self._shared_module


class Whole(_Library):
    """A function that Python calls."""

    def finalize(self) -> None:
        self._take_in(self._final_module)
        inside = {f.name for part in self._called if isinstance(part, Part) for f in _defined(part.alone())}
        for function in _defined(self._final_module):
            if function.name in inside:  # only this module calls the copy: arguments that it does not use are not passed
                function.linkage = "internal"
        super().finalize()
        for variable in self._final_module.global_variables:
            environment = lookup_environment(variable.name)
            if environment is not None:
                self.codegen.set_env(variable.name, environment)


class PartCompiler(lean.KernelCompiler):
    def define_pipelines(self) -> Any:
        state = self.state
        state.library = Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.targetctx = state.targetctx.subtarget(get_executable=_nothing_to_execute)
        return super().define_pipelines()


class WholeCompiler(lean.EntryCompiler):
    def define_pipelines(self) -> Any:
        state = self.state
        state.library = Whole(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()


def _nothing_to_execute(library: Any, description: Any, environment: Any) -> Any:
    """What numba knows a compiled function by."""
    name = description.qualname.rpartition(".")[2]
    return _dynfunc.make_function(description.lookup_module(), name, "", 0, environment, (library,))


# What numba calls here, or is called by: a name that has gone is missed now, and not while something is compiled.
for _owner, _names in (
    (JITCodeLibrary, ("add_linking_library", "enable_object_caching", "finalize")),
    (JITCodeLibrary, ("_ensure_finalized", "_get_module_for_linking")),
    (lean.KernelCompiler, ("define_pipelines",)),
    (_dynfunc, ("make_function",)),
):
    for _name in _names:
        getattr(_owner, _name)

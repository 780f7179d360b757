"""How numba compiles what gpusim has: the same machine code for less work.

Where thousands of small functions call each other, half of the time in which numba compiles goes into passes that look for what
kernels do not have, into names that spell out the types of all arguments, and into comparisons of options.  Compilers with
passes of their own are a documented extension of numba ("Customizing the compiler").
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType
from typing import Any

from numba.core import errors, event, typed_passes, untyped_passes
from numba.core.compiler import Compiler, Flags
from numba.core.compiler_machinery import PassManager
from numba.core.itanium_mangler import mangle
from numba.core.types.functions import BaseFunction

# In numba's order.  Left out: passes for closures, `with`, literal_unroll, inlining of Python and array expressions; and dead
# branches are looked for once instead of three times.
PASSES = (
    untyped_passes.TranslateByteCode, untyped_passes.FixupArgs, untyped_passes.IRProcessing,
    untyped_passes.RewriteSemanticConstants, untyped_passes.DeadBranchPrune, untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA, typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis,
    typed_passes.InlineOverloads, typed_passes.IRLegalization, typed_passes.AnnotateTypes, typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
)  # fmt: skip
_LITERAL = frozenset({"literally", "literal_unroll"})
_typed: dict[Any, Any] = {}  # signatures of operators, by the types of what they are called with
_calls: Any = BaseFunction  # of operators and of numba's own functions
_get_call_type = _calls.get_call_type
_events: Any = event
_errors: Any = errors
_start, _end = _events.start_event, _events.end_event
_LOCK = "numba:llvm_lock"  # the event of each call of LLVM


class KernelCompiler(Compiler):  # type: ignore[misc]
    """Of functions that only compiled code calls."""

    def __init__(self, typing: Any, target: Any, library: Any, args: Any, returns: Any, flags: Any, locals_: Any) -> None:
        fresh = target.subtarget(refresh=_nothing, mangler=short_name)  # refreshed with the function that Python calls
        super().__init__(typing, fresh, library, args, returns, CompileOptions(flags), locals_)

    def define_pipelines(self) -> Any:
        chosen = passes(self.state.func_id.code)
        return super().define_pipelines() if chosen is None else [chosen]


class EntryCompiler(Compiler):  # type: ignore[misc]
    """Of functions that Python calls."""

    def __init__(self, typing: Any, target: Any, library: Any, args: Any, returns: Any, flags: Any, locals_: Any) -> None:
        super().__init__(typing, target, library, args, returns, CompileOptions(flags), locals_)

    def compile_extra(self, func: Any) -> Any:
        with remembering(), untold():
            return super().compile_extra(func)


def passes(code: CodeType) -> PassManager | None:
    """The passes that a kernel of this code needs; None where it needs all."""
    if any(isinstance(constant, CodeType) for constant in code.co_consts) or _LITERAL & {*code.co_names, *code.co_freevars}:
        return None
    manager = PassManager("kernel")
    for each in PASSES:
        manager.add_pass(each)
    manager.finalize()
    return manager


class CompileOptions(Flags):  # type: ignore[misc]
    """Those of a function that is compiled: numba asks for their hash at every call that it types, and makes a list of all."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(frozenset(self._values))  # by names: some values have none

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Flags) and bool(self._values == other._values)


def short_name(name: str, types: Any, *, abi_tags: Any = (), uid: Any = None) -> str:
    """The symbol of a kernel, with a digest of the types of its arguments: those of tables are thousands of letters."""
    spelled = hashlib.sha256(repr(([_spelled(each) for each in types], abi_tags)).encode()).hexdigest()[:16]
    return str(mangle(name, (), abi_tags=(spelled,), uid=uid))


@cache
def _spelled(kind: Any) -> str:
    return hashlib.sha256(repr(kind).encode()).hexdigest()


@contextmanager
def remembering() -> Iterator[None]:
    """Within, a call of an operator is typed once for arguments of the same types."""
    before, _calls.get_call_type = _calls.get_call_type, _remembered
    try:
        yield
    finally:
        _calls.get_call_type = before


def _remembered(self: Any, context: Any, args: Any, kws: Any) -> Any:
    """As numba does it, which tries some dozen candidates at each call and makes an error for each that fails."""
    key = self.typing_key, tuple(args), context
    found: Any = None if kws else _typed.get(key)
    if found is not None:
        self._impl_keys[found.args] = self.typing_key
        return found
    found = _get_call_type(self, context, args, kws)
    # What has been found depends on nothing else, unless it is an overload, which is compiled by the options of its caller.
    if not kws and self._impl_keys.get(found.args) == self.typing_key:
        _typed[key] = found
    return found


@contextmanager
def untold() -> Iterator[None]:
    """Within, numba does not time each call of LLVM once for every function that is being compiled around it, errors that lead
    to its next candidate have no colours, and garbage is seldom looked for: what numba knows of a function stays."""
    thresholds = gc.get_threshold()
    gc.set_threshold(max(thresholds[0], 500_000) if thresholds[0] else 0, *thresholds[1:])
    before = _events.install_timer, _events.start_event, _events.end_event, _errors.termcolor
    _events.install_timer, _errors.termcolor = _untimed, _Plain
    _events.start_event, _events.end_event = _unless_lock(_start), _unless_lock(_end)
    try:
        yield
    finally:
        _events.install_timer, _events.start_event, _events.end_event, _errors.termcolor = before
        gc.set_threshold(*thresholds)


@contextmanager
def _untimed(kind: str, callback: Any) -> Iterator[None]:
    yield


def _unless_lock(tell: Callable[..., None]) -> Callable[..., None]:
    def told(kind: str, *said: Any, **more: Any) -> None:
        if kind != _LOCK:
            tell(kind, *said, **more)

    return told


class _Plain:
    """Text as it is, in place of numba's colours for messages, names of files, and so on."""

    def __getattr__(self, part: str) -> Callable[[str], str]:
        return str


def _nothing() -> None:
    pass

"""What numba does for every function, made cheaper for what only compiled code calls; none of it changes the machine code's answers.

Half of the time in which numba compiles goes into passes over its own representation of a function, into names, and into
comparisons of options.  Kernels have no closures, `with` blocks or objects, so most passes find nothing in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from numba.core import typed_passes, untyped_passes
from numba.core.compiler import Flags
from numba.core.compiler_machinery import PassManager
from numba.core.itanium_mangler import mangle
from numba.core.types.functions import BaseFunction

# In numba's order.  Left out: passes for closures, `with`, literal_unroll, inlining of Python, array expressions; and dead branches
# are looked for once instead of three times.
PASSES = (
    untyped_passes.TranslateByteCode, untyped_passes.FixupArgs, untyped_passes.IRProcessing,
    untyped_passes.RewriteSemanticConstants, untyped_passes.DeadBranchPrune, untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA, typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis,
    typed_passes.InlineOverloads, typed_passes.IRLegalization, typed_passes.AnnotateTypes, typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
)  # fmt: skip
LITERAL = frozenset({"literally", "literal_unroll"})


def passes(code: CodeType) -> PassManager | None:
    """The passes that a function of this code needs; None where it needs all."""
    if any(isinstance(constant, CodeType) for constant in code.co_consts) or LITERAL & {*code.co_names, *code.co_freevars}:
        return None
    manager = PassManager("kernel")
    for each in PASSES:
        manager.add_pass(each)
    manager.finalize()
    return manager


class Options(Flags):  # type: ignore[misc]
    """Options of a function that is compiled.  Numba asks for their hash at every call that it types, and makes a list of all."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(frozenset(self._values))  # values need not have one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Flags) and self._values == other._values


def short_name(name: str, types: Any, *, abi_tags: Any = (), uid: Any = None) -> str:
    """The symbol of a function: numba spells out the types of all arguments, which are thousands of letters for tables."""
    spelled = hashlib.sha256(repr((types, abi_tags)).encode()).hexdigest()[:16]
    return str(mangle(name, (), abi_tags=(spelled,), uid=uid))


_typed: dict[Any, Any] = {}
_get_call_type = BaseFunction.get_call_type


def _remembered(self: Any, context: Any, args: Any, kws: Any) -> Any:
    """As numba types a call of an operator; but it tries some dozen candidates at every call, with an error for each that fails."""
    if kws:
        return _get_call_type(self, context, args, kws)
    key = self.typing_key, args, context
    found = _typed.get(key)
    if found is None:
        found = _get_call_type(self, context, args, kws)
        if self._impl_keys.get(found.args) == self.typing_key:  # it depends on nothing else: no overload, which is compiled by options
            _typed[key] = found
    else:
        self._impl_keys[found.args] = self.typing_key
    return found


@contextmanager
def remembering() -> Iterator[None]:
    """While gpusim compiles, calls of operators are typed once for each types of arguments."""
    before, BaseFunction.get_call_type = BaseFunction.get_call_type, _remembered
    try:
        yield
    finally:
        BaseFunction.get_call_type = before

"""How verbs of policies are compiled: for their contract's signature, found again on disk by the next process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils, config
from numba.extending import intrinsic

from gpusim.base.jit import cached, callee
from gpusim.policies.entry import KINDS

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
U8 = npt.NDArray[np.uint8]


@cache
def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def stamp(*files: str) -> str:
    """A digest of these files and of the helpers that verbs inline: beside this file, and in the packages of large models; ""
    where one is no file: what was typed at a prompt is not kept."""
    if not all(Path(file).is_file() for file in files):
        return ""
    here = Path(__file__).parent
    shared = sorted(str(f) for f in here.glob("**/*.py") if f.parent.name not in KINDS)
    return hashlib.sha256("".join(_digest(f) for f in [*shared, *files]).encode()).hexdigest()


def verb(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a verb: compiled for `signature` when its module is imported; plain Python without numba's compiler."""
    return lambda function: cached(function, stamp(function.__code__.co_filename), signature)


def seldom(function: Callable[..., Any]) -> Any:
    """Decorate a verb that few runs use: compiled when one of them asks for its address."""
    return cached(function, stamp(function.__code__.co_filename))


def helper(function: Callable[..., Any]) -> Any:
    """Decorate what verbs call: compiled as part of its caller, wherever that is.

    Helpers make no arrays, so nobody needs to count references to them, which would cost a third of a verb's time.
    """
    return callee(function, forceinline=True)


def inlined(function: Any) -> Any:
    """A verb as a helper: of any argument types, compiled into whoever calls it."""
    return njit(getattr(function, "py_func", function), forceinline=True)


@intrinsic
def _prefetch(typing: Any, array: Any, index: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), cgutils.voidptr_t)
        i32 = cgutils.int32_t
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [address, i32(0), i32(3), i32(1)])  # for reading, into all caches, data
        return context.get_dummy_value()

    return types.none(array, types.uint64), build


if config.DISABLE_JIT:

    def prefetch(S: I64, i: int) -> None:
        """Nothing to fetch ahead of in plain Python."""

else:

    @helper
    def prefetch(S: I64, i: int) -> None:
        """Tell the processor that S[i] is needed soon."""
        _prefetch(S, np.uint64(i))

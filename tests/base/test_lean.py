"""Is what is compiled with fewer passes the same function, and is numba left as it was?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import config, njit, types
from numba.core.compiler import Flags
from numba.core.types.functions import BaseFunction
from numba.np.numpy_support import from_dtype

from gpusim.base.compiled import entry, kernel
from gpusim.base.compiled.lean import CompileOptions, passes, short_name

pytestmark = [
    pytest.mark.agreement, pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled"),
]  # fmt: skip


def plain(x: int, by: int) -> int:
    return x // by if x > 0 else -(x % by)


def enclosing(x: int) -> int:
    twice = lambda y: 2 * y  # noqa: E731
    return twice(x) + 1


def test_passes_are_left_out_only_where_code_has_nothing_for_them() -> None:
    chosen = passes(plain.__code__)
    assert chosen is not None and len(chosen.passes) == 14
    assert passes(enclosing.__code__) is None


@pytest.mark.slow
def test_kernels_answer_as_functions_of_numba() -> None:
    inner, closed, numbas = kernel(plain), kernel(enclosing), njit(error_model="numpy")(plain)

    @entry(types.int64(types.int64, types.int64))
    def both(x: int, by: int) -> int:
        return inner(x, by) + closed(x)

    for x, by in ((7, 2), (-7, 2), (0, 3)):
        assert both(x, by) == numbas(x, by) + 2 * x + 1


@pytest.mark.slow
def test_an_entry_without_a_signature_is_part_of_the_code_that_calls_it() -> None:
    @entry()
    def twice(x: Any) -> Any:
        return 2 * x

    @entry(types.float64(types.float64))
    def four(x: float) -> float:
        return twice(twice(x))

    assert four(1.5) == 6.0 and twice.signatures == []
    assert twice(3) == 6 and [args for args, *_ in twice.signatures] == [types.int64]
    assert four(2.5) == 10.0


def test_options_are_equal_as_those_of_numba() -> None:
    flags = Flags()
    flags.nrt = True
    one, other = CompileOptions(flags), CompileOptions(flags)
    assert one == other == flags and hash(one) == hash(other)
    other.nrt = False
    assert one != other and one.get_mangle_string() != other.get_mangle_string()


def test_symbols_tell_functions_and_types_apart_in_few_letters() -> None:
    table = from_dtype(np.dtype([(f"f{i}", np.int64) for i in range(99)]))[::1]
    names = {short_name("f", args, uid=uid) for args in ((table,), (types.int64,)) for uid in (1, 2)}
    names.add(short_name("g", (table,), uid=1))
    assert len(names) == 5 and all(name.startswith("_Z") and len(name) < 60 for name in names)


def test_numba_is_left_as_it_was() -> None:
    assert BaseFunction.get_call_type.__module__ == BaseFunction.__module__

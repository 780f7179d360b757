"""Compiled verbs as loops call them: a table of addresses, so that no loop is compiled again for another policy.

A loop declares its verbs as a NamedTuple whose fields are annotated with their signatures, `alloc: Annotated[Any, ALLOC]`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from gpusim.base.compiled import address, function_at
from gpusim.base.tables import declared
from gpusim.policies.compiled import I64


@cache
def signatures(verbs: Any) -> dict[str, Any]:
    """name -> signature of each verb, in the order of the table's rows."""
    return {name: signature for name, (signature,) in declared(verbs).items()}


def addresses(verbs: Any) -> I64:
    """(verbs, 2): where each verb of the tuple begins; 0 of a verb that is None."""
    declaring: Any = type(verbs)
    found = zip(verbs, signatures(declaring).values(), strict=True)
    return np.array([address(verb, signature) if verb else (0, 0) for verb, signature in found], np.int64)


def called(verbs: Any, name: str) -> tuple[Any, int]:
    """(as_x, V_X): `as_x(*address)` is the verb whose address stands in row V_X of the table."""
    return function_at(signatures(verbs)[name]), list(signatures(verbs)).index(name)

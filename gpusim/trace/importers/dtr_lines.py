"""One line of a DTR log: a JSON object of known fields."""

from __future__ import annotations

import json
from typing import Any

from gpusim.base.errors import TraceError, suggest

_FIELDS: dict[str, dict[str, type]] = {
    "CONSTANT": {"NAME": str},
    "CALL": {"NAME": str, "ARGS": list, "RESULT": list, "TIME": int},
    "MEMORY": {"NAME": str, "MEMORY": int},
    "ALIAS": {"NAME": str, "ALIAS": int},
    "MUTATE": {"NAME": str, "ARGS": list, "MUTATE": list, "TIME": int},
    "COPY": {"DST": str, "SRC": str},
    "COPY_FROM": {"DST": str, "SRC": str},
    "RELEASE": {"NAME": str},
    "ANNOTATE": {"ANNOTATION": str},
}
CUT = "is the file cut short, or of another format?"  # a hint


def instruction(line: bytes, where: str) -> dict[str, Any]:
    """The line with its fields as text, whole numbers and lists; numbers may stand as text."""
    try:
        found = json.loads(line)
        kind = found["INSTRUCTION"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise TraceError("this line is not an instruction of a DTR log", where, CUT) from None
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise TraceError(f"unknown instruction '{str(kind)[:40]}'", where, suggest(str(kind), _FIELDS))
    for field, wanted in _FIELDS[kind].items():
        value = found.get(field)
        if wanted is int and isinstance(value, str):
            try:
                found[field] = value = int(value)
            except ValueError:
                raise TraceError(f"{field} of a {kind} is '{value[:40]}', not a whole number", where) from None
        if type(value) is not wanted:
            fault = "is missing" if value is None else f"is of the wrong type ({type(value).__name__})"
            raise TraceError(f"{field} of a {kind} {fault}", where, CUT)
    return found  # type: ignore[no-any-return]

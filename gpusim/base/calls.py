"""What is written like a call: "name", "name(parameter=value, ...)"."""

from __future__ import annotations

import re

from gpusim.base.errors import PolicyError

Value = int | float | str
_CALL = re.compile(r"\s*([\w.@-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NEXT = re.compile(r",(?=\s*(?:\w+\s*=|$))")  # text may have commas of its own: conf=max_split_size_mb:64,backend:native


def parse(spec: str) -> tuple[str, dict[str, Value]]:
    """'next_k(k=4)' -> ('next_k', {'k': 4})."""
    name, texts = split(spec)
    return name, {key: value_of(text) for key, text in texts.items()}


def split(spec: str, what: str = "a policy") -> tuple[str, dict[str, str]]:
    """'next_k(k=4)' -> ('next_k', {'k': '4'}), of anything that is written like a policy."""
    match = _CALL.fullmatch(spec)
    closed(spec)
    if not match:
        raise PolicyError(f"'{spec}' is not {what}", hint="write name or name(parameter=value, ...)")
    values: dict[str, str] = {}
    for part in _NEXT.split(match[2] or ""):
        if not part.strip():
            continue
        key, equals, text = (p.strip() for p in part.partition("="))
        if not equals or not key:
            raise PolicyError(f"'{part.strip()}' in '{spec}' is not a parameter", hint="write parameter=value")
        values[key] = text
    return match[1], values


def closed(text: str) -> None:
    """Raises PolicyError where parentheses do not pair."""
    left = text.count("(") - text.count(")")
    if left > 0:
        raise PolicyError(f"in '{text}' a parenthesis is not closed", hint="write name(parameter=value, ...)")
    if left < 0:
        raise PolicyError(f"in '{text}' a parenthesis is closed that was not opened", hint="write name(parameter=value, ...)")


def listed(text: str) -> list[str]:
    """'a, b(x=1, y=c(2, 3))' -> ['a', 'b(x=1, y=c(2, 3))']: what lies between commas that are in no parentheses."""
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    return [*parts, text[begin:].strip()]


def value_of(text: str) -> Value:
    """A number where the text is one; text in quotes stays text."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text

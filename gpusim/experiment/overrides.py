"""`--set policies.evict=lru,belady`: values from the command line in place of those in the file."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpusim.base.errors import ConfigError, Problem, suggest
from gpusim.base.yaml import document
from gpusim.base.yaml.document import Document
from gpusim.base.yaml.validate import keys_of, type_at


def apply_overrides(doc: Document, sets: Sequence[str], model: type) -> Document:
    """A copy of the document with each "path.to.key=value" set; the model says which paths there are.

    A value is read like YAML; a comma between values makes a list, that is, an axis of the grid.
    Raises ConfigError with all unusable sets at once.
    """
    data = copy.deepcopy(doc.data)
    changed = replace(doc, data=data, overridden=dict(doc.overridden))
    problems = []
    for text in sets:
        path, problem = _path(text, model)
        if problem is None:
            try:
                _put(data, path, _value(text.partition("=")[2]))
                changed.overridden[path] = text
            except ConfigError as error:
                problem = Problem(f"cannot be read: {error.problems[0].message}", f"--set {text}")
        if problem is not None:
            problems.append(problem)
    if problems:
        raise ConfigError(problems)
    return changed


def _path(text: str, model: type) -> tuple[tuple[str, ...], Problem | None]:
    left, equals, _ = text.partition("=")
    path = tuple(step.strip() for step in left.split("."))
    where = f"--set {text}"
    if not equals:
        return path, Problem("has no value", where, hint="write --set key=value")
    for end, step in enumerate(path):
        known = keys_of(type_at(model, path[:end]))
        if step not in known:
            inside = f" in '{'.'.join(path[:end])}'" if end else ""
            return path, Problem(f"unknown key '{step}'{inside}", where, hint=suggest(step, known))
    return path, None


def _put(data: Any, path: tuple[str, ...], value: Any) -> None:
    for step in path[:-1]:
        if not isinstance(data.get(step), dict):
            data[step] = {}
        data = data[step]
    data[path[-1]] = value


def _value(text: str) -> Any:
    parts = _split(text)
    values = [_scalar(part) for part in parts]
    return values[0] if len(values) == 1 else values


def _scalar(text: str) -> Any:
    doc = document.loads(text) if text.strip() else None
    if doc and doc.problems:
        raise ConfigError(doc.problems)
    return doc.data if doc else None


def _split(text: str) -> list[str]:
    """At commas that stand in no bracket, brace, parenthesis or quote."""
    parts, depth, quote, start = [], 0, "", 0
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]

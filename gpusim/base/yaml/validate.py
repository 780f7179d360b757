"""Data → model, with every mistake told at its place in the file."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from gpusim.base.errors import ConfigError, Problem, suggest
from gpusim.base.yaml.document import Document, Path_

T = TypeVar("T")


def build(model: type[T], document: Document, context: Any = None) -> T:
    """The model of the document.  Raises ConfigError with all its mistakes, in the order of the file."""
    problems = list(document.problems)
    if not isinstance(document.data, dict):
        problems.append(document.problem((), "the file must be a mapping of keys to values"))
        raise ConfigError(problems)
    try:
        value = TypeAdapter(model).validate_python(document.data, context=context)
        if not problems:
            return value
    except ValidationError as error:
        problems += [_problem(document, model, e) for e in error.errors(include_url=False)]
    raise ConfigError(sorted(dict.fromkeys(problems), key=lambda p: (p.line, p.col)))


def _problem(document: Document, model: type, error: Any) -> Problem:
    """One pydantic error in our words, at its place."""
    path, at_key = _place(document.data, error["loc"])
    kind, context = error["type"], error.get("ctx", {})
    name = _name(path)
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        hint = suggest(str(path[-1]), keys_of(type_at(model, path[:-1])))
        return document.problem(path, f"unknown key '{path[-1]}'{_inside(path)}", hint, at_key=True)
    if kind in ("too_short", "too_long"):
        count = context["min_length"] if kind == "too_short" else context["max_length"]
        said = f"at {'least' if kind == 'too_short' else 'most'} {count} {'entry' if count == 1 else 'entries'}"
        return document.problem(path, f"'{name}' must have {said}, not {context['actual_length']}")
    if kind in ("missing", "missing_argument") and isinstance(path[-1], int):
        return document.problem(path[:-1], f"'{_name(path[:-1])}' must have at least {path[-1] + 1} entries")
    if kind in ("missing", "missing_argument"):
        return document.problem(path[:-1], f"key '{path[-1]}' is missing{_inside(path)}", at_key=True)
    if kind == "gpusim":
        told = f"{name}: {context['message']}" if name else context["message"]
        return document.problem(path, told, context["hint"], at_key=at_key)
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", context["expected"])
        message = f"'{name}' cannot be {_short(error['input'])}"
        return document.problem(path, message, suggest(str(error["input"]), known))
    wanted = {
        "dataclass_type": "a mapping of keys to values",
        "dict_type": "a mapping of keys to values",
        "list_type": "a list",
        "tuple_type": "a list",
        "string_type": "text",
        "int_type": "a whole number",
        "bool_type": "true or false",
        "float_type": "a number",
    }.get(kind)
    if wanted:
        hint = "put it in quotes" if wanted == "text" and isinstance(error["input"], (int, float, bool)) else ""
        if kind == "dataclass_type":
            hint = "its keys: " + ", ".join(keys_of(type_at(model, path)))
        return document.problem(path, f"'{name}' must be {wanted}, not {_short(error['input'])}", hint)
    message = re.sub(r"^\w+ should ", "should ", str(error["msg"]))
    return document.problem(path, f"'{name}' {message[:1].lower()}{message[1:]}, not {_short(error['input'])}")


def _place(data: Any, loc: tuple[str | int, ...]) -> tuple[Path_, bool]:
    """The path in the data that a pydantic location means, and whether it means the key.

    One value in place of a list has no index in the file, though it has one in the model.
    """
    path: list[str | int] = []
    for step in loc:
        if step == "[key]":
            return tuple(path), True
        if isinstance(step, int) and not isinstance(data, list):
            continue
        path.append(step)
        data = _get(data, (step,))
    return tuple(path), False


def _inside(path: Path_) -> str:
    return f" in '{_name(path[:-1])}'" if len(path) > 1 else ""


def _name(path: Path_) -> str:
    """('policies', 'evict', 2) -> "policies.evict[2]"."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).removeprefix(".")


def _get(data: Any, path: Path_) -> Any:
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _short(value: Any) -> str:
    text = "nothing" if value is None else repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 60 else text[:57] + "..."


def type_at(model: Any, path: Path_) -> Any:
    """The type that the model wants at `path`; None where it does not say."""
    for step in path:
        if dataclasses.is_dataclass(model):
            model = get_type_hints(model).get(str(step))
        elif get_origin(model) in (dict, list, tuple):
            model = get_args(model)[1 if get_origin(model) is dict else 0]
        while model is not None and not dataclasses.is_dataclass(model) and type(None) in get_args(model):
            model = next((a for a in get_args(model) if a is not type(None)), None)
    return model


def keys_of(model: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(model)] if dataclasses.is_dataclass(model) else []

"""Docstrings of the code as Markdown: columns of names and meanings become lists, examples become blocks of code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ENTRY = re.compile(r"(\S(?:.{0,34}?[^\s.:])?) {2,}(\S.*)")


def markdown(text: str) -> str:
    """A docstring with its paragraphs as Markdown has them."""
    return "\n\n".join(_paragraph(part) for part in re.split(r"\n\s*\n", text))


def _paragraph(text: str) -> str:
    lines = text.splitlines()
    if lines[0].startswith(">>>"):
        return f"```pycon\n{text}\n```"
    begun = [line for line in lines if not line.startswith(" ")]
    if not begun or lines[0].startswith(" ") or not all(_ENTRY.fullmatch(line) for line in begun):
        return text
    made: list[str] = []
    for line in lines:
        found = _ENTRY.fullmatch(line)
        made.append(f"- `{found[1]}` {found[2]}" if found and not line.startswith(" ") else f"  {line.strip()}")
    return "\n".join(made)


class Columns(griffe.Extension):
    """What mkdocstrings calls for each object that it reads."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """A part of `__all__` that is computed, as the public names of `gpusim` are, stands in no text."""
        mod.exports = [name for name in mod.exports or () if isinstance(name, str)] or None

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)

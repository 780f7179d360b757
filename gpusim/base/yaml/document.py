"""A YAML 1.2 file as plain data, with the line and column of every key and value.

PyYAML's own loaders speak YAML 1.1: they read `450e9` as a string, `on` and `yes` as true, and let the second of two
equal keys win.  Here its (C) parser only delivers events; scalars follow the YAML 1.2 core schema, duplicate keys are
mistakes, tags are refused, and size, depth and aliases are bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gpusim.base.errors import ConfigError, Problem

MAX_BYTES = 1 << 20
MAX_DEPTH = 40
MAX_VALUES = 50_000  # after aliases are followed: a "billion laughs" file stays a small error

Path_ = tuple[str | int, ...]

_INT = re.compile(r"[-+]?[0-9]{1,30}|0o[0-7]{1,30}|0x[0-9a-fA-F]{1,30}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN")
_WORDS: dict[str, Any] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(("false", "False", "FALSE"), False)


def scalar(text: str) -> Any:
    """The value of a plain (unquoted) scalar in the YAML 1.2 core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10)
    if _FLOAT.fullmatch(text):
        value = float(text)
        return value if math.isfinite(value) else text  # 1e999 is a mistake; infinity is written .inf
    if _INFINITE.fullmatch(text):
        return float(text.lower().replace(".", ""))
    return text


class Mark(NamedTuple):
    """Where something stands; line and col count from 1."""

    line: int
    col: int
    width: int


@dataclass
class Document:
    """One file: its data, and where each key and value of it stands (by path, for example ('gpu', 'peak', 'fp16'))."""

    file: str
    text: str
    data: Any = None
    keys: dict[Path_, Mark] = field(default_factory=dict)
    values: dict[Path_, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)  # mistakes of form after which reading could go on
    overridden: dict[Path_, str] = field(default_factory=dict)  # path -> the --set that gave its value

    def problem(self, path: Path_, message: str, hint: str = "", at_key: bool = False) -> Problem:
        """A Problem at the value (or key) of `path`, or at the nearest thing above it that has a place."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.overridden:
                return Problem(message, f"--set {self.overridden[path[:end]]}", hint=hint)
        first, second = (self.keys, self.values) if at_key else (self.values, self.keys)
        mark = first.get(path)
        while mark is None and path:
            path = path[:-1]
            mark = first.get(path) or second.get(path)
        return self._at(mark or Mark(0, 0, 1), message, hint)

    def part(self, path: Path_) -> Document:
        """What stands at `path`, as a document whose places are those of the whole."""
        data, n = self.data, len(path)
        for step in path:
            data = data[step]
        keys, values = ({p[n:]: m for p, m in marks.items() if p[:n] == path} for marks in (self.keys, self.values))
        keys.setdefault((), values[()])  # what is missing is told where the part begins
        return Document(self.file, self.text, data, keys, values)

    def _at(self, mark: Mark, message: str, hint: str = "") -> Problem:
        lines = self.text.splitlines()
        source = lines[mark.line - 1] if 0 < mark.line <= len(lines) else ""
        if len(source) > 200:  # a minified line would bury the message
            return Problem(message, self.file, mark.line, mark.col, hint=hint)
        return Problem(message, self.file, mark.line, mark.col, source, hint, mark.width)


def read(path: Path) -> Document:
    """The document in the file `path`.  Raises ConfigError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _single(f"cannot be read: {error.strerror or error}", path) from None
    if len(raw) > MAX_BYTES:
        raise _single(f"is larger than {MAX_BYTES >> 20} MiB, which no configuration is", path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _single("is not text in UTF-8", path) from None
    if "\0" in text:
        raise _single("is a binary file, not YAML", path)
    return loads(text, str(path))


def loads(text: str, file: str = "<text>") -> Document:
    """The document in `text`; `file` is the name that errors show.

    Equal keys, tags and the like are noted in its `problems` (the first value counts), so that the rest can be judged.
    Raises ConfigError for what cannot be read at all.
    """
    document = Document(file, text)
    try:
        _Builder(document).build(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.MarkedYAMLError as error:
        raise ConfigError([*document.problems, _syntax(document, error)]) from None
    except yaml.YAMLError as error:
        raise ConfigError([Problem(f"is not YAML: {str(error).splitlines()[0]}", file)]) from None
    if not document.problems and document.data is None:
        raise ConfigError([Problem("is empty", file)])
    return document


class _Builder:
    """Turns the parser's events into data and marks, collecting mistakes as it goes."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.anchors: dict[str, tuple[Any, int]] = {}  # name -> (value, how many values it stands for)
        self.count = 0

    def build(self, events: Iterator[Any]) -> None:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if self.document.data is not None:
                    self._complain(event, "a second document begins here", "one file holds one document")
                    return
                self.document.data = self._value(next(events), events, ())

    def _value(self, event: Any, events: Iterator[Any], path: Path_) -> Any:
        if len(path) > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested more than {MAX_DEPTH} deep", problem_mark=event.start_mark)
        self.document.values[path] = _mark(event)
        before = self.count
        self._add(1, event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.tag is not None and event.tag != "!":
            self._complain(event, f"tag '{event.tag}' is not allowed", "write the plain value")
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = scalar(event.value) if event.implicit[0] and event.tag is None else event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                value.append(self._value(item, events, (*path, len(value))))
        else:
            value = self._mapping(events, path)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.count - before)
        return value

    def _mapping(self, events: Iterator[Any], path: Path_) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self._complain(event, "a key must be a plain word")
                self._value(event, events, path)
                self._value(next(events), events, path)
                continue
            key = event.value  # keys are names: `on:` is the key 'on', `1:` is the key '1'
            place = (*path, key)
            if key in mapping:
                first = self.document.keys[place]
                self._complain(event, f"key '{key}' is given twice", f"its first value is on line {first.line}")
                self._value(next(events), events, (*place, "given again"))  # read past it, leaving the first's marks
                continue
            self.document.keys[place] = _mark(event)
            mapping[key] = self._value(next(events), events, place)
        return mapping

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self.anchors:
            self._complain(event, f"alias '*{event.anchor}' names no finished anchor above it")
            return None
        value, count = self.anchors[event.anchor]
        self._add(count, event)
        return value

    def _add(self, count: int, event: Any) -> None:
        self.count += count
        if self.count > MAX_VALUES:
            raise yaml.MarkedYAMLError(problem=f"holds more than {MAX_VALUES:,} values", problem_mark=event.start_mark)

    def _complain(self, event: Any, message: str, hint: str = "") -> None:
        self.document.problems.append(self.document._at(_mark(event), message, hint))


def _mark(event: Any) -> Mark:
    start, end = event.start_mark, event.end_mark
    width = end.column - start.column if end.line == start.line else 1
    return Mark(start.line + 1, start.column + 1, max(1, width))


def _syntax(document: Document, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    at = Mark(mark.line + 1, mark.column + 1, 1) if mark else Mark(0, 0, 1)
    said = str(error.problem or error.context or "cannot be read")
    lines = document.text.splitlines()
    line = lines[at.line - 1] if 0 < at.line <= len(lines) else ""
    if "\\t" in said or "\t" in line[: at.col]:
        return document._at(at, "a tab stands where YAML wants spaces", "indent with spaces")
    hint = "put the text in quotes when it contains ': '" if "mapping values" in said else ""
    opened = error.context_mark
    if "unexpected end" in said and opened:
        at = Mark(opened.line + 1, opened.column + 1, 1)
        said, hint = "what begins here does not end", "close the quotation marks"
    elif opened and "while parsing a flow" in str(error.context):
        before = document.text[: opened.index] if "flow node" in str(error.context) else ""
        bracket = max(before.rfind("["), before.rfind("{"))  # of a value that is missing, the mark is its own place
        number = before.count("\n", 0, bracket) if bracket >= 0 else opened.line
        hint = f"close the bracket that is open since line {number + 1}"
    return document._at(at, said, hint)


def _single(message: str, path: Path) -> ConfigError:
    return ConfigError([Problem(message, str(path))])

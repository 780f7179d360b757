"""What `gpusim tune` may change, from the key `tune` of an experiment, and every point that this spans.

A key of it is an axis or a parameter of what an axis names; a parameter counts where the axis has what it belongs to.  An
axis of CHOSEN on which the experiment itself lists several values is chosen from these, without being named.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from gpusim.base.errors import ConfigError, GpusimError, Problem, suggest
from gpusim.base.yaml.document import Document
from gpusim.base.yaml.ranges import NumberRange
from gpusim.base.yaml.values import policy
from gpusim.engine.pages.settings import told
from gpusim.experiment import load
from gpusim.experiment.load import Loaded
from gpusim.studies.tuning.axes import (
    CHOSEN,
    WITH_PARAMETERS,
    apart,
    declared,
    first_on,
    keys,
    names,
    oracle,
    parts,
    put,
    written,
)

Value = str | int | float
Point = Mapping[str, Value]
Lines = Mapping[str, str]


@dataclass(frozen=True)
class Knob:
    """One thing that is varied: an axis, or (name and parameter) a parameter of what the axis names.

    values   numbers between two ends, or texts of which one is taken
    default  of a parameter, as text; None where none is known
    """

    path: str
    axis: str
    values: NumberRange | tuple[str, ...]
    name: str = ""
    parameter: str = ""
    default: str | None = None

    def write(self, value: Value) -> str:
        """The value as an experiment has it."""
        return value if isinstance(value, str) else self._numbers.write(value)

    def read(self, text: str | None) -> Value | None:
        """The inverse of `write`; None for what is none of the values."""
        if isinstance(self.values, tuple):
            return text if text in self.values else None
        number = None if text is None else self.values.read(text)
        return number if number is not None and self.values.holds(number) else None

    @property
    def count(self) -> int | None:
        """How many values there are; None for any number between two."""
        return len(self.values) if isinstance(self.values, tuple) else self.values.count

    def levels(self, count: int) -> tuple[Value, ...]:
        """So many numbers spread over the range, both ends among them, one being its middle; all values of a list."""
        if isinstance(self.values, tuple):
            return self.values
        shares = [0.5] if count == 1 else [i / (count - 1) for i in range(count)]
        return tuple(dict.fromkeys(self.values.at(share) for share in shares))

    @property
    def _numbers(self) -> NumberRange:
        assert isinstance(self.values, NumberRange)
        return self.values


@dataclass(frozen=True)
class Space:
    """All knobs of an experiment.

    knobs  those of axes first
    fixed  axis -> its one value, where parameters of it are varied and it is not
    given  the experiment as written: axis -> text, of each of its runs in one place
    """

    knobs: tuple[Knob, ...]
    fixed: Lines
    given: tuple[Lines, ...]

    @cached_property
    def chosen(self) -> tuple[Knob, ...]:
        """The knobs that are axes."""
        return tuple(knob for knob in self.knobs if not knob.parameter)

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The axes that are varied, or parameters of what is on them."""
        return tuple(dict.fromkeys(knob.axis for knob in self.knobs))

    def texts(self, axis: str) -> tuple[str, ...]:
        """The values of the axis, without the parameters that are varied; none where it is a range of numbers."""
        knob = next((knob for knob in self.chosen if knob.axis == axis), None)
        if knob is None:
            return (self.fixed[axis],)
        return knob.values if isinstance(knob.values, tuple) else ()

    def active(self, point: Point) -> list[Knob]:
        """The parameters that count where the axes are at these values."""
        return [k for k in self.knobs if k.parameter and k.name in names(k.axis, self._base(k.axis, point))]

    def lines(self, point: Point) -> dict[str, str]:
        """What the experiment has at this point: axis -> text."""
        found = {}
        for axis in self.axes:
            of = {(k.name, k.parameter): k.write(point[k.path]) for k in self.active(point) if k.axis == axis}
            found[axis] = put(axis, self._base(axis, point), of)
        return found

    def point(self, lines: Lines) -> dict[str, Value] | None:
        """The inverse; None for what lies outside of the space."""
        found: dict[str, Value | None] = {}
        for knob in self.chosen:
            found[knob.path] = knob.read(self._bare(knob.axis, lines[knob.axis]))
        if None in found.values():
            return None
        for knob in self.active(found):  # type: ignore[arg-type]
            given = next(values for name, values in parts(knob.axis, lines[knob.axis]) if name == knob.name)
            found[knob.path] = knob.read(given.get(knob.parameter, knob.default))
        return None if None in found.values() else found  # type: ignore[return-value]

    def size(self) -> int | None:
        """How many points there are; None where a number may be any."""
        counts = {knob.path: knob.count for knob in self.knobs}
        return None if None in counts.values() else self._count(counts)  # type: ignore[arg-type]

    def points(self, levels: Callable[[Knob], Sequence[Value]]) -> Iterator[dict[str, Value]]:
        """All points of a grid: each knob at each of these levels."""
        for values in product(*(levels(knob) for knob in self.chosen)):
            base = dict(zip((knob.path for knob in self.chosen), values, strict=True))
            active = self.active(base)
            for numbers in product(*(levels(knob) for knob in active)):
                yield base | dict(zip((knob.path for knob in active), numbers, strict=True))

    def grid(self, budget: int) -> list[dict[str, Value]]:
        """The finest grid of at most so many points: all values of each list, and of each range as many levels as of the others
        or one more.  Empty where the lists alone span more."""
        counts = {knob.path: len(knob.values) if isinstance(knob.values, tuple) else 1 for knob in self.knobs}
        if self._count(counts) > budget:
            return []
        ranges = [knob for knob in self.knobs if not isinstance(knob.values, tuple)]
        grown = True
        while grown:
            grown = False
            for knob in ranges:
                finer = counts | {knob.path: min(counts[knob.path] + 1, knob.count or budget)}
                if finer != counts and self._count(finer) <= budget:
                    counts, grown = finer, True
        return list(self.points(lambda knob: knob.levels(counts[knob.path])))

    def _count(self, counts: Mapping[str, int]) -> int:
        """Points of a grid with so many levels of each knob: a product over the axes, whose parameters are their own."""
        found = 1
        for axis in self.axes:
            texts = self.texts(axis)
            found *= sum(self._below(axis, text, counts) for text in texts) if texts else counts[axis]
        return found

    def _below(self, axis: str, text: str, counts: Mapping[str, int]) -> int:
        here = names(axis, text)
        return math.prod(counts[k.path] for k in self.knobs if k.axis == axis and k.parameter and k.name in here)

    def _base(self, axis: str, point: Point) -> str:
        """The value of the axis without the parameters that are varied."""
        knob = next((k for k in self.chosen if k.axis == axis), None)
        if knob is None:
            return self.fixed[axis]
        return knob.write(point[axis]) if axis in point else ""

    def _bare(self, axis: str, text: str) -> str:
        return put(axis, text, {(k.name, k.parameter): None for k in self.knobs if k.axis == axis and k.parameter})


def at(loaded: Loaded, lines: Mapping[str, Any]) -> Loaded:
    """The experiment with these values on these axes, checked as if each had been added to its lists.  Raises ConfigError."""
    doc = loaded.document
    data = copy.deepcopy(doc.data)
    data.pop("tune", None)
    for axis, value in lines.items():
        *above, last = keys(axis)
        inner = data
        for key in above:
            inner[key] = inner.get(key) or {}
            inner = inner[key]
        there = inner.get(last, [])
        inner[last] = [value, *(other for other in (there if isinstance(there, list) else [there]) if str(other) != str(value))]
    found = load.experiment(Document(doc.file, doc.text, data, doc.keys, doc.values), given=loaded.given)
    return replace(found, experiment=first_on(found.experiment, lines))


def space(loaded: Loaded) -> Space:
    """The space of an experiment.  Raises ConfigError with all that is wrong with its key `tune`."""
    found = _Reader(loaded)
    made = found.read()
    if found.problems:
        raise ConfigError(sorted(dict.fromkeys(found.problems), key=lambda p: (p.line, p.col)))
    return made


class _Reader:
    """Reads the key `tune`, collecting its mistakes."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded, self.e = loaded, loaded.experiment
        self.problems: list[Problem] = []

    def read(self) -> Space:
        placed: list[tuple[str, tuple[str, str, str]]] = []
        for path in self.e.tune:
            try:
                placed.append((path, apart(path)))
            except GpusimError as error:
                self._say(path, error.message, error.hint, at_key=True)
        of_axes = {axis: self._choices(path, axis) for path, (axis, name, _) in placed if not name}
        texts = {axis: written(self.e, axis) for axis in dict.fromkeys((*CHOSEN, *(axis for _, (axis, _, _) in placed)))}
        listed = {axis: found for axis, found in texts.items() if len(found) > 1 and axis in CHOSEN and axis not in of_axes}
        of_axes |= {axis: self._possible(axis, found) for axis, found in listed.items()}
        knobs = [
            knob for path, (axis, name, parameter) in placed
            if name and (knob := self._parameter(path, axis, name, parameter, of_axes.get(axis, texts[axis])))
        ]  # fmt: skip
        if not of_axes and not knobs and not self.problems:
            hint = "write for example tune: {policies.prefetch.next_k.k: {from: 1, to: 64}}"
            self.problems.append(self.loaded.document.problem((), "nothing of this experiment can be tuned", hint))
        chosen, fixed = [], {}
        for axis in dict.fromkeys((*of_axes, *(knob.axis for knob in knobs))):
            values = of_axes.get(axis, texts[axis])
            if isinstance(values, tuple):
                varied: dict[tuple[str, str], str | None] = {(k.name, k.parameter): None for k in knobs if k.axis == axis}
                values = tuple(dict.fromkeys(put(axis, text, varied) for text in values))
            if isinstance(values, tuple) and len(values) == 1:
                fixed[axis] = values[0]
            else:
                chosen.append(Knob(axis, axis, values))
        axes = [*(knob.axis for knob in chosen), *fixed]
        given = tuple(dict(zip(axes, point, strict=True)) for point in product(*(texts[axis] for axis in axes)))
        return Space((*chosen, *knobs), fixed, given)

    def _possible(self, axis: str, texts: tuple[str, ...]) -> tuple[str, ...]:
        """The values among which to choose: those that read the future are there to compare with, unless all do."""
        return tuple(text for text in texts if not oracle(axis, text, self.loaded.own)) or texts

    def _choices(self, path: str, axis: str) -> NumberRange | tuple[str, ...]:
        """The values of an axis that `tune` names, each checked as if the experiment had it."""
        values, here = self.e.tune[path], written(self.e, axis)
        if len(here) > 1:
            hint = f"leave one of them out: {axis} of the experiment is what a search is compared with"
            self._say(path, f"the experiment lists {len(here)} values of {axis}, and tune has its own", hint, at_key=True)
        if isinstance(values, NumberRange):
            if axis in WITH_PARAMETERS:
                self._say(path, f"{axis} is one of several, not a number", f"write {axis}: [a, b]")
            for end, number in (("from", values.low), ("to", values.high)):
                self._tried(axis, values.write(number) if values.unit else number, path, end)
            return values
        found = [self._tried(axis, value, path, i) for i, value in enumerate(values)]
        varied = [key.rpartition(".")[::2] for key in self.e.tune if key.startswith(f"{axis}.")]
        for i, text in enumerate(found):
            for name, given in parts(axis, text) if text else []:
                if twice := next((p for of, p in varied if of == f"{axis}.{name}" and p in given), None):
                    self._say(path, f"'{text}' says what {twice} is, and tune varies it", f"write {name}", i)
        return tuple(dict.fromkeys(text for text in found if text))

    def _parameter(
        self, path: str, axis: str, name: str, parameter: str, values: NumberRange | tuple[str, ...]
    ) -> Knob | None:
        """The knob of a parameter; None, with the reason among the problems, for what the experiment does not have."""
        try:
            known = declared(axis, name, self.loaded.own)
        except GpusimError as error:
            self._say(path, error.message, error.hint, at_key=True)
            return None
        if parameter not in known:
            hint = suggest(parameter, known) if known else f"{name} has no parameters"
            self._say(path, f"'{name}' has no parameter '{parameter}'", hint, at_key=True)
            return None
        texts = values if isinstance(values, tuple) else ()
        base = next((text for text in texts if name in names(axis, text)), None)
        if base is None:
            said = f"nothing here has {name}: {axis} is {' or '.join(texts)}"
            self._say(path, said, f"name it there, or in a list at tune: {axis}", at_key=True)
            return None
        default, wanted = known[parameter], self.e.tune[path]
        if isinstance(wanted, NumberRange):
            if isinstance(default, int) and not isinstance(default, bool) and not wanted.whole:
                self._say(path, f"{parameter} of {name} is a whole number", "write both ends as whole numbers")
                return None
            if isinstance(default, float) and wanted.whole and wanted.step is None:
                wanted = replace(wanted, low=float(wanted.low), high=float(wanted.high), whole=False)
            ends = {"from": wanted.write(wanted.low), "to": wanted.write(wanted.high)}
        else:
            wanted = tuple(_text(value) for value in wanted)
            ends = dict(enumerate(wanted))  # type: ignore[arg-type]
        for where, text in ends.items():
            self._tried(axis, put(axis, base, {(name, parameter): text}), path, where)
        return Knob(path, axis, wanted, name, parameter, None if default is None else _text(default))

    def _tried(self, axis: str, value: Any, path: str, where: str | int) -> str:
        """The value as the experiment has it; "", with the reason among the problems, for one that it cannot have."""
        try:
            text = written(at(self.loaded, {axis: value}).experiment, axis)[0]
            if axis == "unified" and (words := told(policy(text)) if text != "none" else []):
                self._say(path, words[0], "", where)
            return text
        except ConfigError as error:
            first = error.problems[0]
            self._say(path, first.message.removeprefix(f"{axis}[0]: "), first.hint, where)
            return ""

    def _say(self, path: str, message: str, hint: str = "", *where: str | int, at_key: bool = False) -> None:
        self.problems.append(self.loaded.document.problem(("tune", path, *where), message, hint, at_key=at_key))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

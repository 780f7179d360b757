"""A log of DTR's runtime (its lines: trace/importers/dtr.py) as the program that DTR's own simulator replays.

Other than in the importer, a mutation is made pure: it makes new storages, and the old tensors lose the name.  What still has a
name at the end has to be there at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpusim.base.errors import TraceError, suggest
from gpusim.policies.plan.parts.recompute.problem import GET, PIN, RELEASE, Builder, RecomputeProgram
from gpusim.trace.importers.dtr_lines import CUT, instruction


def read(data: bytes, path: str) -> RecomputeProgram:
    """The program of one log.  Raises TraceError with file:line."""
    lines = data.splitlines()
    start = next((i for i, line in enumerate(lines) if b'"START"' in line and b'"ANNOTATE"' in line), -1)
    numbered = ((f"{path}:{n}", line) for n, line in enumerate(lines[start + 1 :], start + 2) if line.strip())
    return _Log((where, instruction(line, where)) for where, line in numbered).read()


class _Log:
    def __init__(self, lines: Iterator[tuple[str, dict[str, Any]]]) -> None:
        self.lines, self.where = lines, ""
        self.build = Builder()
        self.named: dict[str, int] = {}  # name -> tensor; a name that was given up stays
        self.names: list[int] = []       # of each tensor

    def read(self) -> RecomputeProgram:
        for where, line in self.lines:
            self.where = where
            obey = getattr(self, f"_{line['INSTRUCTION'].lower()}", None)
            if obey is None:
                raise TraceError(f"nothing asks for the {line['INSTRUCTION']} of '{line['NAME'][:40]}'", where, CUT)
            obey(line)
        for tensor in self.named.values():
            if self.names[tensor] > 0:
                self.build.act(PIN, tensor)
        return self.build.finish()

    def _constant(self, line: dict[str, Any]) -> None:
        self._name(line["NAME"], self.build.bring(self._due("MEMORY", line["NAME"])))

    def _call(self, line: dict[str, Any]) -> None:
        inputs = self._arguments(line)
        outputs = []
        for result in line["RESULT"]:
            size, alias = self._due("MEMORY", result), self._due("ALIAS", result)
            if not -1 <= alias < len(inputs):
                raise TraceError(f"ALIAS is {alias}, but the operator has {len(inputs)} arguments", self.where)
            outputs.append((size, -1) if alias == -1 else (0, inputs[alias]))
        made = self.build.compute(line["TIME"], inputs, outputs)
        for result, tensor in zip(line["RESULT"], made, strict=True):
            self._name(result, tensor)

    def _mutate(self, line: dict[str, Any]) -> None:
        inputs = self._arguments(line)
        if not all(type(i) is int and 0 <= i < len(inputs) for i in line["MUTATE"]):
            raise TraceError(f"MUTATE is not a list of indices of the {len(inputs)} arguments", self.where)
        changed = [inputs[i] for i in line["MUTATE"]]
        sizes = [self.build.size[self.build.storage[t]] for t in changed]
        made = self.build.compute(line["TIME"], inputs, [(size, -1) for size in sizes])
        for i, old, new in zip(line["MUTATE"], changed, made, strict=True):
            self._name(line["ARGS"][i], new)
            self._drop(old)

    def _copy(self, line: dict[str, Any]) -> None:
        self._bind(line["DST"], self._tensor(line["SRC"]))

    def _copy_from(self, line: dict[str, Any]) -> None:
        source = self._tensor(line["SRC"])
        self._drop(self._tensor(line["DST"]))
        self._bind(line["DST"], source)

    def _release(self, line: dict[str, Any]) -> None:
        if line["NAME"] in self.named:
            self._drop(self.named[line["NAME"]])

    def _annotate(self, line: dict[str, Any]) -> None:
        pass

    def _due(self, kind: str, name: str) -> int:
        """The number in the line that must come next."""
        self.where, line = next(self.lines, (self.where, {}))
        if (line.get("INSTRUCTION"), line.get("NAME")) != (kind, name):
            raise TraceError(f"here should stand the {kind} of '{str(name)[:40]}'", self.where, CUT)
        number: int = line[kind]
        return number

    def _name(self, name: str, tensor: int) -> None:
        self.named[name] = tensor
        self.names.append(1)

    def _bind(self, name: str, tensor: int) -> None:
        self.named[name] = tensor
        self.names[tensor] += 1
        self.build.act(GET, tensor)

    def _drop(self, tensor: int) -> None:
        self.names[tensor] -= 1
        self.build.act(RELEASE, tensor)

    def _arguments(self, line: dict[str, Any]) -> list[int]:
        return [self._tensor(name) for name in line["ARGS"]]

    def _tensor(self, name: str) -> int:
        if name not in self.named:
            hint = suggest(name, self.named) if len(self.named) < 10_000 else ""
            raise TraceError(f"this line uses '{str(name)[:40]}', which never appeared", self.where, hint)
        return self.named[name]

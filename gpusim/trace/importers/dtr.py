"""Logs of DTR's runtime (dynamic tensor rematerialization): one JSON object per line, named tensors, times in ns.

    CONSTANT     NAME                        data that comes from outside; its MEMORY line follows
    CALL         NAME ARGS RESULT TIME       an operator; for each result a MEMORY and an ALIAS line follow
    MEMORY       NAME MEMORY                 bytes of a constant or a result
    ALIAS        NAME ALIAS                  -1: a result of its own, else the argument of which it is a view
    MUTATE       NAME ARGS MUTATE TIME       an operator that changes the arguments with these indices
    COPY         DST SRC                     another name for a tensor
    COPY_FROM    DST SRC                     a name is given to another tensor
    RELEASE      NAME                        a name is given up; with its last name a tensor is freed
    ANNOTATE     ANNOTATION                  START: what stands before it is left out; BACKWARD begins the backward pass

Of our own, so that an exported trace comes back whole (DTR reads past them): READ, the arguments that a MUTATE reads
where that is not all, and JOINED, a MUTATE that is one operator with the CALL before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpusim.base.errors import TraceError, suggest
from gpusim.trace.build import TraceBuilder
from gpusim.trace.importers.dtr_lines import CUT, instruction
from gpusim.trace.trace import Trace

MUTATIONS = ("in_place", "copies")


def read(data: bytes, path: str, *, name: str | None = None, mutations: str = "in_place") -> Trace:
    """The trace of one log.  Raises TraceError with file:line.

    mutations  "in_place", what the program did, or "copies", what DTR makes of it: each changed tensor becomes a new
               one and the old one is given up.
    """
    if mutations not in MUTATIONS:
        raise TraceError(f"mutations are not '{mutations}'", path, suggest(mutations, MUTATIONS))
    log = _Log(TraceBuilder(name or "dtr", path), mutations == "copies", backward=b'"BACKWARD"' in data)
    lines = data.splitlines()
    start = next((i for i, line in enumerate(lines) if b'"START"' in line and b'"ANNOTATE"' in line), -1)
    for number, line in enumerate(lines, 1):
        log.build.line = number
        if line.strip():
            (log.before if number <= start else log.obey)(instruction(line, log.build.where))
    return log.finish()


@dataclass
class _Operator:
    """An operator whose lines are not all read yet."""

    name: str
    reads: list[int]
    writes: list[int]
    time: int
    results: dict[str, int]  # name -> tensor


class _Log:
    def __init__(self, build: TraceBuilder, copies: bool, backward: bool) -> None:
        self.build, self.copies, self.backward, self.begun = build, copies, backward, False
        self.named: dict[str, int] = {}  # live name -> tensor
        self.gone: set[str] = set()  # names that were given up
        self.older: set[str] = set()  # names of what stands before START
        self.names: list[int] = []  # of each tensor: how many live names it has
        self.size: list[int] = []
        self.due: list[tuple[str, str]] = []  # the lines (instruction, name) that must come next
        self.made = 0  # bytes that the latest MEMORY line gave
        self.open: _Operator | None = None
        self.passes = 0  # backward passes
        self.unmatched = self.changed = 0

    def before(self, line: dict[str, Any]) -> None:
        """An instruction that stands before START: only its names are kept, since they may be released later."""
        self.older.update(str(n) for n in line.get("RESULT") or [line.get("DST") or line.get("NAME")])

    def obey(self, line: dict[str, Any]) -> None:
        kind = line["INSTRUCTION"]
        if self.due and (kind, line.get("NAME")) != self.due[0]:
            raise self._due_is_missing(kind)
        if self.open and not self.due and not (kind == "MUTATE" and line.get("JOINED")):
            self._issue(self.open)
        getattr(self, f"_{kind.lower()}")(line)

    def finish(self) -> Trace:
        if self.due:
            raise self._due_is_missing("the end of the file")
        if self.open:
            self._issue(self.open)
        self.build.meta = {
            "format": "dtr",
            "lacks": ["host times", "addresses", "streams", "flops", "bytes moved"],
            "filled": {
                "bytes": "an operator moves the whole of the tensors that it reads and writes; one that only makes views, none",
                "mutations": "each changed tensor becomes a new one" if self.copies else "in place",
            },
            "mutations": self.changed,
            "releases_of_older_names": self.unmatched,
        }
        return self.build.finish()

    def _constant(self, line: dict[str, Any]) -> None:
        self.due = [("MEMORY", self._fresh(line["NAME"]))]

    def _call(self, line: dict[str, Any]) -> None:
        self._begin()
        results = self._texts(line, "RESULT")
        for i, result in enumerate(results):
            if self._fresh(result) in results[:i]:
                raise self.error(f"the result '{result[:40]}' is named twice")
        self.due = [(kind, result) for result in results for kind in ("MEMORY", "ALIAS")]
        self.open = _Operator(line["NAME"], self._arguments(line), [], self._time(line), {})

    def _memory(self, line: dict[str, Any]) -> None:
        if not self.due:
            raise self.error(f"nothing asks for the size of '{line['NAME'][:40]}'", "a CONSTANT or CALL comes first")
        self.due.pop(0)
        self.made = line["MEMORY"]
        if self.open is None:
            self._hold(line["NAME"], self._alloc(self.made, "constant"))

    def _alias(self, line: dict[str, Any]) -> None:
        if not self.due or self.open is None:
            raise self.error(f"nothing asks what '{line['NAME'][:40]}' is a view of", "a CALL comes first")
        self.due.pop(0)
        at, arguments = line["ALIAS"], self.open.reads
        if not -1 <= at < len(arguments):
            raise self.error(f"ALIAS is {at}, but the operator has {len(arguments)} arguments", "-1 stands for none")
        if at == -1:
            self.open.writes.append(self._alloc(self.made, self._pass()))
        self.open.results[line["NAME"]] = self.open.writes[-1] if at == -1 else arguments[at]

    def _mutate(self, line: dict[str, Any]) -> None:
        self._begin()
        arguments = self._arguments(line)
        changed = self._indices(line, "MUTATE", len(arguments))
        reads = [arguments[i] for i in self._indices(line, "READ", len(arguments))] if "READ" in line else arguments
        self.changed += len(changed)
        if self.open and not self.copies:  # joined
            self.open.writes += [arguments[i] for i in changed]
            return
        if self.open:
            self._issue(self.open)
        if not self.copies:
            self.open = _Operator(line["NAME"], reads, [arguments[i] for i in changed], self._time(line), {})
            return
        fresh = [self._alloc(self.size[arguments[i]], self._pass()) for i in changed]
        self._issue(_Operator(line["NAME"], arguments, fresh, self._time(line), {}))
        for i, tensor in zip(changed, fresh, strict=True):
            self._rename(line["ARGS"][i], tensor)

    def _copy(self, line: dict[str, Any]) -> None:
        self._hold(self._fresh(line["DST"]), self._tensor(line["SRC"], "copies"))

    def _copy_from(self, line: dict[str, Any]) -> None:
        self._tensor(line["DST"], "overwrites")
        self._rename(line["DST"], self._tensor(line["SRC"], "copies"))

    def _release(self, line: dict[str, Any]) -> None:
        name = line["NAME"]
        if name in self.older and name not in self.named and name not in self.gone:
            self.older.remove(name)
            self.unmatched += 1
            return
        self._drop(self._tensor(name, "releases"))
        del self.named[name]
        self.gone.add(name)

    def _annotate(self, line: dict[str, Any]) -> None:
        if line["ANNOTATION"] == "BACKWARD":
            self.begun = True
            self.build.begin_phase(f"step{self.passes}.bwd")
            self.passes += 1

    def _begin(self) -> None:
        """The forward pass begins with the first operator: what is constant was there before."""
        if self.backward and not self.begun:
            self.build.begin_phase("step0.fwd")
        self.begun = True

    def _issue(self, operator: _Operator) -> None:
        self.open = None
        reads, writes = operator.reads, operator.writes
        self.build.op(
            operator.name, reads, writes, duration=operator.time,
            read_bytes=sum(self.size[t] for t in set(reads)) if writes else 0,
            written_bytes=sum(self.size[t] for t in set(writes)),
        )  # fmt: skip
        for name, tensor in operator.results.items():
            self._hold(name, tensor)

    def _alloc(self, size: int, category: str) -> int:
        self.size.append(size)
        self.names.append(0)
        return self.build.alloc(size, category)

    def _pass(self) -> str:
        return "bwd" if self.passes else "fwd" if self.backward else "unknown"

    def _hold(self, name: str, tensor: int) -> None:
        self.named[name] = tensor
        self.names[tensor] += 1

    def _drop(self, tensor: int) -> None:
        self.names[tensor] -= 1
        if not self.names[tensor]:
            self.build.free(tensor)

    def _rename(self, name: str, tensor: int) -> None:
        old = self.named[name]
        self._hold(name, tensor)
        self._drop(old)

    def _fresh(self, name: str) -> str:
        if name in self.named:
            raise self.error(f"the name '{name[:40]}' is given again, but it is still in use", "a RELEASE comes first")
        return name

    def _tensor(self, name: str, verb: str) -> int:
        if name not in self.named:
            state = "was already released" if name in self.gone else "never appeared"
            hint = suggest(name, self.named) if len(self.named) < 10_000 else ""
            raise self.error(f"this line {verb} '{name[:40]}', which {state}", hint)
        return self.named[name]

    def _arguments(self, line: dict[str, Any]) -> list[int]:
        return [self._tensor(name, "reads") for name in self._texts(line, "ARGS")]

    def _texts(self, line: dict[str, Any], field: str) -> list[str]:
        if not all(isinstance(name, str) for name in line[field]):
            raise self.error(f"{field} holds something else than names", CUT)
        return list(line[field])

    def _indices(self, line: dict[str, Any], field: str, count: int) -> list[int]:
        found = line[field]
        if not isinstance(found, list) or not all(type(i) is int and 0 <= i < count for i in found):
            raise self.error(f"{field} is not a list of indices of the {count} arguments")
        return found

    def _time(self, line: dict[str, Any]) -> int:
        if line["TIME"] < 0:
            raise self.error(f"TIME is {line['TIME']}", "times are ns")
        return int(line["TIME"])

    def _due_is_missing(self, found: str) -> TraceError:
        kind, name = self.due[0]
        return self.error(f"here should stand the {kind} of '{name[:40]}', not {found}", CUT)

    def error(self, message: str, hint: str = "") -> TraceError:
        return TraceError(message, self.build.where, hint)

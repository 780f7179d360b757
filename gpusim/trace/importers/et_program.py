"""What the nodes of an execution trace do on one device: operators, tensors by their storages, phases."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from gpusim.trace.importers.et_nodes import ArgumentStorage, Node, written_arguments

_ALLOCATES = re.compile(r"^aten::(new_)?empty(_|$)|^aten::resize_$")
_DESCRIBES = re.compile(r"^aten::(detach|set|requires_grad|t|squeeze|unsqueeze|transpose|as_strided|record_stream)_$")
# These write their result themselves though an operator inside has begun to: with the bias, or with zeros.
_STARTED_INSIDE = re.compile(r"^aten::(addmm|addmv|addbmm|baddbmm|addr|sum|mean|prod|nansum|.*index_add.*|.*scatter.*)$")
# These do not read what they write.
_OVERWRITES = re.compile(r"^aten::(copy|fill|zero|uniform|normal|bernoulli|random|exponential)_$")
_PARTS = (("Optimizer.step#", "opt"), ("Optimizer.zero_grad#", "zero"), ("autograd::engine::evaluate_function", "bwd"))


class OperatorStep(NamedTuple):
    """An operator in the order of the program, and the tensors it reads and writes."""

    node: Node
    reads: list[int]
    writes: list[int]
    phase: str


class OperatorProgram:
    """older: how many of the tensors, the first ones, were there before; size: of each tensor."""

    def __init__(self, nodes: Sequence[Node], device: str, launching: Collection[int] | None) -> None:
        """launching: the record ids of nodes that launched kernels, where a Kineto trace tells."""
        self._nodes = {node.id: node for node in nodes}
        self._device = device
        self.size: list[int] = []
        self.born: list[int] = []  # of each tensor, the step before which it is allocated; -1 older than the recording
        self.steps: list[OperatorStep] = []
        self._tensor: dict[tuple[int, str], int] = {}  # storage -> the tensor that is there now
        self._maker: list[int] = []  # of each tensor, the node that made it, or one inside of that
        self._first = self._first_sizes()
        operators = self._operators(nodes) if launching is None else {n.id for n in nodes if n.record in launching}
        self._optimizers = sorted(n.id for n in nodes if n.name.startswith("Optimizer.step#"))
        for node in nodes:
            if node.id in operators:
                self._step(node)
            elif _ALLOCATES.match(node.name):
                self._outputs(node)

    def _here(self, storages: Sequence[ArgumentStorage]) -> list[ArgumentStorage]:
        return [s for s in storages if s.key[1] == self._device]

    def _first_sizes(self) -> dict[tuple[int, str], int]:
        """Bytes of each storage where it is first taken: parents come first there, with tensors not yet expanded."""
        found: dict[tuple[int, str], int] = {}
        for _, node in sorted(self._nodes.items()):
            for storage in self._here([s for argument in node.inputs for s in argument]):
                found.setdefault(storage.key, storage.bytes)
        return found

    def _operators(self, nodes: Sequence[Node]) -> set[int]:
        """Nodes that compute: whose results no operators inside have written; children stand before their parents."""
        found = set[int]()
        written: dict[int, set[tuple[int, str]]] = defaultdict(set)  # node -> storages that operators inside write
        for node in nodes:
            results = self._results(node)
            if results and (not results <= written[node.id] or _STARTED_INSIDE.match(node.name)):
                found.add(node.id)
                written[node.id] |= results
            elif node.name == "aten::_local_scalar_dense" and self._here(node.inputs[0]):  # a copy to the host
                found.add(node.id)
            written[node.parent] |= written.pop(node.id, set())
        return found

    def _results(self, node: Node) -> set[tuple[int, str]]:
        """The storages that the node writes or makes, as far as its schema tells; none of what only describes tensors."""
        if node.name.startswith("nccl:"):
            return {s.key for argument in node.inputs for s in self._here(argument)}
        if not node.schema or _ALLOCATES.match(node.name) or _DESCRIBES.match(node.name):
            return set()
        taken = {s.key for argument in node.inputs for s in argument}
        mutated = {s.key for i in written_arguments(node.schema) if i < len(node.inputs) for s in self._here(node.inputs[i])}
        return mutated | {s.key for s in self._here(node.outputs)} - (taken - mutated)

    def _step(self, node: Node) -> None:
        taken = [[self._known(s, node) for s in self._here(argument)] for argument in node.inputs]
        positions = written_arguments(node.schema)
        written = [t for i in sorted(positions) if i < len(taken) for t in taken[i]]
        unread = positions if _OVERWRITES.match(node.name) else frozenset[int]()
        reads = [t for i, argument in enumerate(taken) if i not in unread for t in argument]
        writes = list(dict.fromkeys([*written, *self._outputs(node)]))
        self.steps.append(OperatorStep(node, list(dict.fromkeys(reads)), writes, self._phase(node)))

    def _known(self, storage: ArgumentStorage, node: Node) -> int:
        """The tensor that is there: one never seen being made is older than the recording, or an operator around makes it."""
        key, tensor = storage.key, self._tensor.get(storage.key, -1)
        maker = next((n for n in self._around(node.id) if self._makes(self._nodes[n], key)), -1)
        if maker >= 0 and (tensor < 0 or maker not in self._around(self._maker[tensor])):
            tensor = self._make(storage, len(self.steps), node.id)
        elif tensor < 0:
            tensor = self._make(ArgumentStorage(key, self._first[key]), -1, -1)
        return tensor

    def _makes(self, node: Node, key: tuple[int, str]) -> bool:
        return any(s.key == key for s in node.outputs) and all(s.key != key for argument in node.inputs for s in argument)

    def _outputs(self, node: Node) -> list[int]:
        """The tensors that the node gives and that it did not take: new ones, or made by operators inside."""
        taken = {s.key for argument in node.inputs for s in argument}
        found = []
        for storage in self._here(node.outputs):
            if storage.key in taken:
                if node.name == "aten::resize_":
                    tensor = self._known(storage, node)
                    self.size[tensor] = max(self.size[tensor], storage.bytes)
                continue
            tensor = self._tensor.get(storage.key, -1)
            if tensor < 0 or node.id not in self._around(self._maker[tensor]):
                tensor = self._make(storage, len(self.steps), node.id)
            found.append(tensor)
        return found

    def _make(self, storage: ArgumentStorage, born: int, maker: int) -> int:
        tensor = self._tensor[storage.key] = len(self.size)
        self.size.append(storage.bytes)
        self.born.append(born)
        self._maker.append(maker)
        return tensor

    def _around(self, node: int) -> Iterator[int]:
        """The node and those around it."""
        while node in self._nodes:
            yield node
            parent = self._nodes[node].parent
            if parent == node:
                return
            node = parent

    def _phase(self, node: Node) -> str:
        names = [self._nodes[n].name for n in self._around(node.id)]
        part = next((what for prefix, what in _PARTS for name in names if name.startswith(prefix)), "fwd")
        # A step ends with its optimizer, whose parent node has an id below those inside.
        done = bisect_left(self._optimizers, node.id) - (part == "opt")
        return f"step{done}.{part}" if self._optimizers else part

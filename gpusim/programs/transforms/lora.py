"""Low-rank adapters beside frozen weights: no gradients and no optimizer state but theirs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from gpusim.base.compiled import kept
from gpusim.base.errors import TraceError
from gpusim.programs.transforms.optimizer import optimizer as with_optimizer
from gpusim.trace.edit import Edit, begun, issued, last_uses
from gpusim.trace.elements import base_name, element_bytes
from gpusim.trace.model_blocks import blocks
from gpusim.trace.roles import BACKWARD, FORWARD, GRADIENT, OPTIMIZER, PARAMETER, lives, phase_kinds, roles
from gpusim.trace.trace import ALLOC, FREE, I64, OP, Trace
from gpusim.trace.training import Update, updates

_PRODUCTS = ("addmm", "mm", "linear")


def lora(trace: Trace, rank: int = 8, targets: str = "", optimizer: str = "adamw") -> Trace:
    """Freeze all parameters and train adapters of low rank beside linear layers.

    rank       of the adapters: A is rank x inputs, B is outputs x rank
    targets    which linear layers, by the end of their module path: "q_proj,v_proj"; empty: all in numbered layers
    optimizer  of the adapters, as in `optimizer`

    y + scale * B(A(x)), in five operators forward and six backward, as written in PyTorch.  What only gradients of frozen
    parameters needed is neither kept nor computed.  Source: Hu et al., LoRA, arXiv:2106.09685, 2021.
    """
    role = roles(trace)
    steps = updates(trace, role)
    kinds = phase_kinds(trace)[issued(trace)]
    program = _program(trace, kinds, role, targets)
    layers = _layers(trace, program)
    kept, last = _needed(program, role == GRADIENT, layers[:, _X], layers[:, _DY], layers[:, _AT])
    edit = Edit(trace)
    adapters = _Adapters(edit, layers, kept, element_bytes(trace), rank)
    adapters.forward()
    gradients = adapters.backward()
    _freeze(edit, role, kinds, kept, last, steps, adapters.instead)
    _train(edit, steps, adapters, gradients)
    return with_optimizer(edit.finish(), optimizer)


# Columns of the table of layers, one row for each time that one runs: forward operator, input, output, weight, the first of
# its backward operators, the one that makes the gradient of its input (-1: none), gradients of output and input, and the
# operator that makes the gradient of its weight.
_COLUMNS = 9
_F, _X, _Y, _W, _AT, _G, _DY, _DX, _GW = range(_COLUMNS)


class _Program(NamedTuple):
    """Operators, what they read and write, and what `_matched` asks of them and of the tensors."""

    read_start: Any
    read_id: Any
    write_start: Any
    write_id: Any
    forward: Any    # bool[O]
    backward: Any   # bool[O]
    product: Any    # bool[O] a product of matrices
    target: Any     # bool[O] a product of a layer that gets an adapter
    module: Any     # int[O]
    parameter: Any  # bool[T]
    size: Any       # int64[T] bytes


def _program(trace: Trace, kinds: Any, role: Any, targets: str) -> _Program:
    """The trace as `_matched` reads it; kinds: phase of each operator, role: of each tensor."""
    products = np.array([base_name(name) in _PRODUCTS for name in trace.op_names] or [False])[trace.op]
    forward = np.flatnonzero(products & (kinds == FORWARD))
    chosen = np.full(len(trace.modules) + 1, -1, np.int64)
    for pattern in targets.split(",") if targets else [""]:
        found = blocks(trace, forward, pattern.strip())
        chosen = np.maximum(chosen, found)
    return _Program(
        trace.read_start, trace.read_id, trace.write_start, trace.write_id, kinds == FORWARD, kinds == BACKWARD,
        products, products & (chosen[trace.module] >= 0), trace.module, role == PARAMETER, trace.size,
    )  # fmt: skip


def _layers(trace: Trace, program: _Program) -> I64:
    """The rows of layers whose weights have a gradient.  Raises TraceError where there are none."""
    table = _matched(program, len(trace.modules))
    whole: I64 = table[table[:, _GW] >= 0]
    if not len(whole):
        hint = "targets=q_proj,v_proj; lora comes before checkpointing"
        raise TraceError(f"{trace.name}: no backward makes the gradient of a weight of a linear layer here", hint=hint)
    return whole


@kept()
def _matched(p: _Program, modules: int) -> Any:
    """The table of layers.

    A backward operator that reads the weight makes the gradient of the input; one that reads the input and the same
    gradient of the output that of the weight.  Where there is only the latter, it is known by its module and sizes.
    """
    found = np.full((p.target.sum(), _COLUMNS), -1, np.int64)
    by_gradient = np.full(p.parameter.size, -1, np.int64)  # of an output: the row of its layer
    n = _layers_run(p, found, by_gradient)
    by_module = np.full(modules + 1, -1, np.int64)  # its latest row
    row = 0
    for o in range(p.target.size):
        if row < n and found[row, _F] == o:
            by_module[p.module[o]] = row
            row += 1
        elif p.product[o] and p.backward[o] and p.read_start[o + 1] - p.read_start[o] == 2:
            _match_weight(p, found, by_gradient, by_module[p.module[o]], o)
    return found[:n]


@njit
def _layers_run(p: _Program, found: Any, by_gradient: Any) -> int:
    """A row for each forward operator of a layer, and where it has one the operator that makes its input's gradient."""
    by_weight = np.full(p.parameter.size, -1, np.int64)
    n = 0
    for o in range(p.target.size):
        if p.target[o] and p.forward[o]:
            weight, x = _operands(p, o)
            if weight >= 0 and x >= 0:
                found[n, _F], found[n, _X], found[n, _Y], found[n, _W] = o, x, p.write_id[p.write_start[o]], weight
                by_weight[weight] = n
                n += 1
        elif p.product[o] and p.backward[o]:
            row, dy = -1, -1
            for i in range(p.read_start[o], p.read_start[o + 1]):
                if by_weight[p.read_id[i]] >= 0:
                    row = by_weight[p.read_id[i]]
                else:
                    dy = p.read_id[i]
            if row >= 0 and dy >= 0:
                found[row, _G], found[row, _DY], found[row, _DX] = o, dy, p.write_id[p.write_start[o]]
                by_gradient[dy] = row
    return n


@njit
def _operands(p: _Program, o: int) -> tuple[int, int]:
    """(weight, input) of a linear layer's operator, -1 where there is none: the weight is its largest parameter."""
    weight, x = -1, -1
    for i in range(p.read_start[o], p.read_start[o + 1]):
        t = p.read_id[i]
        if not p.parameter[t]:
            x = t
        elif weight < 0 or p.size[t] > p.size[weight]:
            weight = t
    return weight, x


@njit
def _match_weight(p: _Program, found: Any, by_gradient: Any, latest: int, o: int) -> None:
    """Whether operator o makes the gradient of a weight; `latest` is the row of its module's latest layer, -1: none."""
    first = p.read_start[o]
    for i in range(2):
        dy, x = p.read_id[first + i], p.read_id[first + 1 - i]
        row = by_gradient[dy]
        if row < 0 and latest >= 0 and found[latest, _G] < 0:
            row = latest
        if row >= 0 and found[row, _X] == x and p.size[p.write_id[p.write_start[o]]] == p.size[found[row, _W]]:
            found[row, _DY], found[row, _GW] = dy, o
            found[row, _AT] = o if found[row, _G] < 0 else min(o, found[row, _G])


@kept()
def _needed(p: _Program, gradient: Any, inputs: Any, above: Any, at: Any) -> Any:
    """Which operators are still run, and the last use of each tensor by them and by the adapters, at operators `at`."""
    ops, tensors = p.backward.size, p.parameter.size
    kept, needed = np.ones(ops, np.bool_), np.zeros(tensors, np.bool_)
    for t in above:
        needed[t] = True
    for o in range(ops - 1, -1, -1):
        if not p.backward[o]:
            continue
        wanted = p.write_start[o] == p.write_start[o + 1]
        for i in range(p.write_start[o], p.write_start[o + 1]):
            wanted = wanted or (needed[p.write_id[i]] and not gradient[p.write_id[i]])
        kept[o] = wanted
        if wanted:
            for i in range(p.read_start[o], p.read_start[o + 1]):
                needed[p.read_id[i]] = True
    last = np.full(tensors, -1, np.int64)
    for o in range(ops):
        if kept[o]:
            for i in range(p.read_start[o], p.read_start[o + 1]):
                last[p.read_id[i]] = o
            for i in range(p.write_start[o], p.write_start[o + 1]):
                last[p.write_id[i]] = o
    for i in range(at.size):
        last[inputs[i]], last[above[i]] = max(last[inputs[i]], at[i]), max(last[above[i]], at[i])
    return kept, last


def _freeze(edit: Edit, role: Any, kinds: Any, kept: Any, last: I64, steps: list[Update], instead: I64) -> None:
    """No gradients, no state, nothing that only they needed; what is needed less long dies earlier."""
    trace = edit.trace
    event = issued(trace)
    born, died = lives(trace)
    inside = np.zeros(trace.events, bool)
    for step in steps:
        inside[step.begin + 1 : step.end] = True
    unused = (last < 0) & (last_uses(trace) >= 0)
    edit.drop_operators(~kept | inside[event])
    edit.drop_tensors((role == GRADIENT) | (role == OPTIMIZER) | unused | inside[born])
    used = last_uses(trace)
    after = np.append(event, trace.events)[used + 1]
    shorter = (last >= 0) & (last < used) & (role != PARAMETER) & (role != GRADIENT) & (died < trace.events)
    not_saved = (kinds[used] == BACKWARD) & (kinds[last] == FORWARD)
    early = np.flatnonzero(shorter & (not_saved | (died < after)))
    gone = np.zeros(trace.events, bool)
    gone[died[early]] = True
    edit.drop_events(gone)
    edit.insert(event[last[early]] + 1, FREE, instead[early], trace.stream[died[early]])


class _Adapters:
    """The tensors and operators that are added, for all layers at once."""

    def __init__(self, edit: Edit, layers: I64, kept: Any, element: I64, rank: int) -> None:
        trace = edit.trace
        self.edit, self.layers = edit, layers
        x, y, w = (trace.size[layers[:, c]] // np.maximum(element[layers[:, c]], 1) for c in (_X, _Y, _W))
        self.tokens = np.rint(np.sqrt(x * (y / w))).astype(np.int64)
        self.rank, self.width = rank, element[layers[:, _W]]
        self.inputs, self.outputs = x // self.tokens, y // self.tokens
        if (self.inputs * self.outputs != w).any() or (self.inputs * self.tokens != x).any():
            raise TraceError(f"{trace.name}: the shape of a linear layer cannot be told from the sizes of its tensors")
        self.passed_on = (layers[:, _G] >= 0) & kept[np.maximum(layers[:, _G], 0)]
        weights, first, self.of = np.unique(layers[:, _W], return_index=True, return_inverse=True)
        born, _ = lives(trace)
        a, b = (rank * n[first] * self.width[first] for n in (self.inputs, self.outputs))
        made = edit.add_tensors(np.stack([a, b], 1).ravel(), edit.name("categories", "param"))
        edit.insert(np.full(len(made), int(born[weights].max()) + 1), ALLOC, made)
        self.parameters = made.reshape(-1, 2)
        self.a, self.b = self.parameters[self.of].T
        self.instead = np.arange(trace.tensors)  # what stands for a tensor in the end

    def forward(self) -> None:
        trace, layers = self.edit.trace, self.layers
        event, (_, died) = issued(trace), lives(trace)
        y, x = layers[:, _Y], layers[:, _X]
        self.h = self._tensors(self.rank * self.tokens, "fwd")
        u, v, z = (self._tensors(self.outputs * self.tokens, "fwd") for _ in range(3))
        at = event[layers[:, _F]] + 1
        self._takes_over(y, z, layers[:, _F], died)
        x = self.instead[x]
        self._product(at, "aten.mm.default", (x, self.a), self.h, self.inputs, _F)
        self._product(at, "aten.mm.default", (self.h, self.b), u, self.outputs, _F)
        self._product(at, "aten.mul.Tensor", (u,), v, None, _F)
        self.edit.insert(at, FREE, u)
        self._product(at, "aten.add.Tensor", (y, v), z, None, _F)
        self.edit.insert(at, FREE, v)
        self.edit.insert(at, FREE, y)

    def backward(self) -> I64:
        """Returns the gradients of A and B, (layers, 2)."""
        trace, layers = self.edit.trace, self.layers
        begin, event, (_, died) = begun(trace), issued(trace), lives(trace)
        at, on = begin[layers[:, _AT]], np.flatnonzero(self.passed_on)
        dx, total = layers[on, _DX], self._tensors((self.inputs * self.tokens)[on], "bwd", on)
        self._takes_over(dx, total, layers[on, _G], died)
        dy, x = self.instead[layers[:, _DY]], self.instead[layers[:, _X]]
        s = self._tensors(self.outputs * self.tokens, "bwd")
        dh = self._tensors(self.rank * self.tokens, "bwd")
        gradients = np.stack([self._tensors(self.rank * n, "grad") for n in (self.inputs, self.outputs)], 1)
        self._product(at, "aten.mul.Tensor", (dy,), s, None, _AT)
        self._product(at, "aten.mm.default", (s, self.h), gradients[:, 1], self.outputs, _AT)
        self._product(at, "aten.mm.default", (s, self.b), dh, self.outputs, _AT)
        self.edit.insert(at, FREE, s)
        self.edit.insert(at, FREE, self.h)
        self._product(at, "aten.mm.default", (dh, x), gradients[:, 0], self.inputs, _AT)
        more = self._tensors((self.inputs * self.tokens)[on], "bwd", on)
        self._product(at[on], "aten.mm.default", (dh[on], self.a[on]), more, self.inputs[on], _AT, on)
        self.edit.insert(at, FREE, dh)
        after = event[layers[on, _G]] + 1
        self._product(after, "aten.add.Tensor", (more, dx), total, None, _G, on)
        self.edit.insert(after, FREE, more)
        self.edit.insert(after, FREE, dx)
        return gradients

    def _tensors(self, elements: I64, category: str, rows: I64 | None = None) -> I64:
        width = self.width if rows is None else self.width[rows]
        return self.edit.add_tensors(elements * width, self.edit.name("categories", category))

    def _product(self, at: I64, name: str, reads: tuple[I64, ...], made: I64, inner: I64 | None, like: int,
                 rows: I64 | None = None) -> None:  # fmt: skip
        """An alloc and an operator for each layer; inner: inputs or outputs, which with rank and tokens are the arithmetic."""
        tokens, layers = (self.tokens, self.layers) if rows is None else (self.tokens[rows], self.layers[rows])
        size_of = self.edit.sizes_of
        flops: Any = 0.0 if inner is None else 2.0 * inner * tokens * self.rank
        one = np.ones(len(made), np.int64)
        operators = self.edit.add_operators(
            (one * len(reads), np.stack(reads, 1).ravel()), (one, made), like=layers[:, like],
            op=self.edit.name("op_names", name), flops=flops, read_bytes=sum(size_of(r) for r in reads),
            written_bytes=size_of(made), duration=-1,
        )  # fmt: skip
        self.edit.insert(at, ALLOC, made)
        self.edit.insert(at, OP, operators)

    def _takes_over(self, old: I64, new: I64, since: I64, died: I64) -> None:
        """After operator `since` the new tensor stands where the old one stood, and dies when that would have."""
        trace = self.edit.trace
        by, when = np.full(trace.tensors, -1, np.int64), np.zeros(trace.tensors, np.int64)
        by[old], when[old], self.instead[old] = new, since, new
        for side in ("read", "write"):
            _renamed(getattr(trace, f"{side}_start"), self.edit[f"{side}_id"], by, when)
        ends = died[old] < trace.events
        self.edit["arg"][died[old[ends]]] = new[ends]


@kept()
def _renamed(start: Any, ids: Any, by: Any, since: Any) -> None:
    for o in range(start.size - 1):
        for i in range(start[o], start[o + 1]):
            t = ids[i]
            if t < by.size and by[t] >= 0 and o > since[t]:
                ids[i] = by[t]


def _train(edit: Edit, steps: list[Update], adapters: _Adapters, gradients: I64) -> None:
    """One operator in each step that stands for the optimizer's; gradients die where the frozen ones died."""
    trace = edit.trace
    event, (_, died) = issued(trace), lives(trace)
    when, begins = event[adapters.layers[:, _AT]], np.array([step.begin for step in steps])
    after = np.searchsorted(begins, when)  # the step that each backward of a layer is for
    rows = np.lexsort((adapters.of, after))
    rows = rows[after[rows] < len(steps)]
    counts, layers = np.bincount(after[rows], minlength=len(steps)), len(adapters.parameters)
    if (counts != layers).any():
        wrong = int((counts != layers).argmax())
        raise TraceError(
            f"{trace.name}: the step at event {begins[wrong]} follows {counts[wrong]} backward passes of linear layers, but "
            f"{layers} layers get adapters",
            hint="accumulate gradients after lora: lora | accumulate(steps=2)",
        )
    own = gradients[rows].reshape(len(steps), -1)
    parameters = np.tile(adapters.parameters.ravel(), (len(steps), 1))
    width = np.full(len(steps), own.shape[1])
    update = edit.add_operators(
        (2 * width, np.concatenate([parameters, own], 1).ravel()), (width, parameters.ravel()),
        op=edit.name("op_names", "aten._foreach_add_.List"), dtype=trace.dtype[adapters.layers[0, _F]],
    )  # fmt: skip
    edit.insert(begins + 1, OP, update)
    ends = np.array([int(died[step.gradients].min()) for step in steps])
    freed = ends < trace.events
    edit.insert(np.repeat(ends[freed], own.shape[1]), FREE, own[freed].ravel())

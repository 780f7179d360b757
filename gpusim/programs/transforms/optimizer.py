"""Another optimizer: its state instead of the recorded one's, and its operators in each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpusim.base.errors import GpusimError, TraceError, suggest
from gpusim.trace.edit import Edit
from gpusim.trace.elements import element_bytes, element_types
from gpusim.trace.roles import OPTIMIZER, lives, roles
from gpusim.trace.trace import ALLOC, FREE, I64, OP, Trace
from gpusim.trace.training import Update, updates


def optimizer(trace: Trace, to: str = "adamw") -> Trace:
    """Train with another optimizer: its state from the first step on, and its operators in every step.

    to  sgd, momentum, adam, adamw, lion, adafactor, adam8bit

    Operators are those of PyTorch's foreach implementations (2.13), with temporaries as large as the parameters where those
    have them; lion is its authors' code on lists, adam8bit the one kernel per parameter of bitsandbytes.  State has the
    parameters' type, but for adam8bit: a byte per element and moment, and a float per 256.  Adafactor keeps a row and a
    column of each matrix; shapes are not recorded, so a matrix counts as square.
    """
    if to not in _RECIPES:
        raise GpusimError(f"there is no optimizer '{to}'", hint=suggest(to, _RECIPES))
    role = roles(trace)
    steps = updates(trace, role)
    if any(not np.array_equal(step.parameters, steps[0].parameters) for step in steps):
        raise TraceError(f"{trace.name}: its optimizer steps are not all of the same parameters")
    edit = Edit(trace)
    inside = np.zeros(trace.events, bool)
    for step in steps:
        inside[step.begin + 1 : step.end] = True
    born, _ = lives(trace)
    old = (role == OPTIMIZER) | inside[born]  # state and temporaries
    edit.drop_tensors(old)
    edit.drop_operators(inside[trace.kind == OP])
    started = bool((born[role == OPTIMIZER] < steps[0].begin).any())  # the recording begins with state
    recipe = _RECIPES[to]
    place = int(born[steps[0].parameters].max()) + 1 if started else -1
    types, names = element_types(trace)
    dtype = edit.name("dtypes", names[types[steps[0].parameters[0]]])
    states = _states(edit, recipe, trace.size[steps[0].parameters], element_bytes(trace)[steps[0].parameters])
    if started:
        edit.insert(np.full(states.size, place), ALLOC, states.T.ravel())
    _run(edit, recipe, steps[:1], states, dtype, first=not started)
    _run(edit, recipe, steps[1:], states, dtype, first=False)
    return edit.finish()


@dataclass(frozen=True)
class Recipe:
    """One optimizer.

    step    its operators, "name: reads > writes": p parameters, g gradients, m and v state, t temporaries like the
            parameters, which the operator that writes them first allocates and the step's end frees
    first   the operators of the first step, where they are others
    state   what each of m and v is like: the parameter, "bytes" of 8 bits, or rows and columns ("sides")
    init    the operator that makes a state tensor; it reads what is named
    lists   one operator for all parameters, else one for each
    """

    step: tuple[str, ...]
    state: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    init: str = "aten.zeros_like.default: p"
    lists: bool = True


_MOMENTS = (
    "aten._foreach_lerp_.Scalar: m g > m", "aten._foreach_mul_.Scalar: v > v", "aten._foreach_addcmul_.Scalar: v g g > v",
    "aten._foreach_sqrt.default: v > t", "aten._foreach_div_.ScalarList: t > t", "aten._foreach_add_.Scalar: t > t",
    "aten._foreach_addcdiv_.ScalarList: p m t > p",
)  # fmt: skip
_DECAY = "aten._foreach_mul_.Scalar: p > p"
_DESCENT = "aten._foreach_add_.List: p {} > p"
_RECIPES: Mapping[str, Recipe] = {
    "sgd": Recipe((_DESCENT.format("g"),)),
    "momentum": Recipe(
        ("aten._foreach_mul_.Scalar: m > m", "aten._foreach_add_.List: m g > m", _DESCENT.format("m")), ("parameter",),
        first=(_DESCENT.format("m"),), init="aten.clone.default: g",
    ),
    "adam": Recipe(_MOMENTS, ("parameter", "parameter")),
    "adamw": Recipe((_DECAY, *_MOMENTS), ("parameter", "parameter")),
    "lion": Recipe(
        (_DECAY, "aten._foreach_mul.Scalar: m > t", "aten._foreach_add_.List: t g > t", "aten._foreach_sign_.default: t > t",
         _DESCENT.format("t"), "aten._foreach_lerp_.Scalar: m g > m"), ("parameter",),
    ),
    "adafactor": Recipe(
        ("aten._foreach_norm.Scalar: g > m", "aten._foreach_mul.List: m > t", "aten._foreach_mul_.List: t g > t", _DECAY,
         _DESCENT.format("t")), ("sides",),
    ),
    "adam8bit": Recipe(
        ("bitsandbytes.optimizer_update_8bit_blockwise: g p m v > p m v",), ("bytes", "bytes"), lists=False,
    ),
}  # fmt: skip
_BLOCK = 256  # elements of an 8-bit state that share one float


def _states(edit: Edit, recipe: Recipe, size: I64, element: I64) -> I64:
    """(states, parameters) new tensors."""
    count = size // np.maximum(element, 1)
    side = np.rint(np.sqrt(count)).astype(np.int64)
    sizes = {
        "parameter": size, "bytes": count + 4 * -(-count // _BLOCK),
        "sides": np.where(side * side == count, 2 * side, np.minimum(2 * side, count)) * np.maximum(element, 1),
    }  # fmt: skip
    made = [edit.add_tensors(sizes[kind], edit.name("categories", "opt")) for kind in recipe.state]
    return np.array(made, np.int64).reshape(len(recipe.state), len(size))


def _run(edit: Edit, recipe: Recipe, steps: list[Update], states: I64, dtype: int, first: bool) -> None:
    """The operators of these steps, in place of the recorded ones.  Tables of ids have a row for each step."""
    if not steps:
        return
    count, at = len(steps), np.array([step.begin + 1 for step in steps])
    table = {"p": steps[0].parameters, **dict(zip("mv", states, strict=False))}
    lists = {word: np.tile(ids, (count, 1)) for word, ids in table.items()}
    lists["g"] = np.stack([step.gradients for step in steps])
    if first and len(states):
        name, _, source = recipe.init.partition(": ")
        made = np.tile(states.T.ravel(), count)  # all state of the first parameter, then that of the second
        read = np.repeat(lists[source].ravel(), len(states))
        ops = _operators(edit, name, read[:, None], made[:, None], edit.sizes_of(read), edit.sizes_of(made), dtype)
        edit.insert(np.repeat(at, 2 * states.size), np.tile([ALLOC, OP], len(made)), np.stack([made, ops], 1).ravel())
    size = edit.sizes_of(steps[0].parameters)
    each = np.repeat(at, len(size))
    for line in recipe.first if first and recipe.first else recipe.step:
        name, _, operands = line.partition(": ")
        reads, _, writes = operands.partition(" > ")
        if "t" in writes and "t" not in lists:
            lists["t"] = edit.add_tensors(np.tile(size, count), edit.name("categories", "opt")).reshape(count, -1)
            edit.insert(each, ALLOC, lists["t"].ravel())
        # (steps, parameters, operands), an operand that is read twice once; and the bytes of each, twice
        ids = [np.stack([lists[word] for word in dict.fromkeys(words.split())], 2) for words in (reads, writes)]
        moved = [sum(edit.sizes_of(lists[word]) for word in words.split()) for words in (reads, writes)]
        if recipe.lists:
            flat = [side.swapaxes(1, 2).reshape(count, -1) for side in ids]
            done = _operators(edit, name, flat[0], flat[1], np.sum(moved[0], 1), np.sum(moved[1], 1), dtype)
            edit.insert(at, OP, done)
        else:
            flat = [side.reshape(len(each), -1) for side in ids]
            done = _operators(edit, name, flat[0], flat[1], np.ravel(moved[0]), np.ravel(moved[1]), dtype)
            edit.insert(each, OP, done)
    if "t" in lists:
        edit.insert(each, FREE, lists["t"].ravel())


def _operators(edit: Edit, name: str, reads: I64, writes: I64, read_bytes: I64, written_bytes: I64, dtype: int) -> I64:
    """One operator for each row of ids."""
    one = np.ones(len(reads), np.int64)
    return edit.add_operators(
        (one * reads.shape[1], reads.ravel()), (one * writes.shape[1], writes.ravel()), op=edit.name("op_names", name),
        dtype=dtype, read_bytes=read_bytes, written_bytes=written_bytes,
    )  # fmt: skip

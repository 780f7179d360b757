"""Another number format: of everything, or of what PyTorch's autocast runs in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError, TraceError, suggest
from gpusim.programs.transforms.retyping import FOLLOW, HIGH, LOW, MATCH, OTHER, Retyped, moved, retype
from gpusim.trace.edit import Edit, begun, issued, last_uses
from gpusim.trace.elements import BYTES, base_name, element_types
from gpusim.trace.roles import BACKWARD, FORWARD, PARAMETER, WORKSPACE, lives, phase_kinds, roles
from gpusim.trace.trace import ALLOC, FREE, I64, OP, Trace
from gpusim.trace.training import updates

_FORMATS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn"}
_PRODUCTS = (
    "mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "addbmm", "dot", "convolution", "cudnn_convolution", "linear",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
)  # fmt: skip
_LOSSES = (
    "_log_softmax", "nll_loss_forward", "nll_loss2d_forward", "binary_cross_entropy_with_logits", "mse_loss", "smooth_l1_loss",
    "huber_loss", "kl_div",
)  # fmt: skip
# Operators that autocast runs in fp32 (aten/src/ATen/autocast_mode.h, PyTorch 2.13), by what they are called in a trace.
_EXACT = (
    *_LOSSES, "native_layer_norm", "native_group_norm", "_softmax", "pow", "exp", "log", "log10", "log2", "log1p", "expm1",
    "reciprocal", "rsqrt", "softplus", "acos", "asin", "cosh", "sinh", "tan", "erfinv", "norm", "linalg_vector_norm", "cumsum",
    "cumprod", "prod", "logsumexp", "cdist", "renorm", "dist",
)  # fmt: skip


def precision(trace: Trace, to: str = "bf16", mode: str = "pure", master: bool = False) -> Trace:
    """Run in another number format.

    to      bf16, fp16, fp8 (one byte) or fp32
    mode    pure: parameters, activations, gradients and optimizer state, all but the loss, which is computed in fp32;
            autocast: parameters, gradients and state stay, products of matrices and convolutions run in the format, by
            PyTorch's rules, with its casts
    master  pure only: the optimizer works on fp32 copies of the parameters, with fp32 state and gradients cast for it

    What was recorded in another type than the parameters (masks, indices, an fp32 loss) stays.  Arithmetic is the same;
    recorded kernel times of operators that change are forgotten.
    """
    if to not in _FORMATS:
        raise GpusimError(f"there is no format '{to}'", hint=suggest(to, _FORMATS))
    if mode not in ("pure", "autocast"):
        raise GpusimError(f"there is no mode '{mode}' of precision", hint=suggest(mode, ("pure", "autocast")))
    if master and mode != "pure":
        raise GpusimError("autocast keeps the parameters as they are: master goes with mode=pure")
    role = roles(trace)
    types, names = element_types(trace)
    own = (role == PARAMETER) & (types >= 0)
    if not own.any() or not trace.ops:
        raise TraceError(f"{trace.name}: the type of its parameters cannot be told", hint="operators must say their dtype")
    base = int(np.bincount(types[own], trace.size[own]).argmax())
    if names[base] == _FORMATS[to]:
        raise TraceError(f"{trace.name}: its parameters already are {_FORMATS[to]}")
    autocast = mode == "autocast"
    if autocast and names[base] != "float32":
        hint = f"precision(to=fp32) | precision(to={to}, mode=autocast)"
        raise TraceError(f"{trace.name}: autocast starts from fp32 parameters, and these are {names[base]}", hint=hint)
    high = names[base] if autocast else max((_FORMATS[to], "float32"), key=BYTES.__getitem__)
    formats = {LOW: _FORMATS[to], HIGH: high}
    kinds = phase_kinds(trace)[issued(trace)]
    classes, key = _classes(trace, kinds, autocast)
    if formats[LOW] == formats[HIGH]:
        classes[:] = FOLLOW
    levels = {"before": HIGH if autocast else LOW, "state": HIGH if master else 0}
    found = retype(trace, types == base, role, kinds, classes, key, **levels)
    edit = _converted(trace, found, formats, kinds, names[base], role)
    if formats[LOW] == formats[HIGH]:
        _without_casts(edit, types, names, base)
    done = edit.finish()
    return _with_masters(done) if master else done


def _classes(trace: Trace, kinds: Any, autocast: bool) -> tuple[Any, I64]:
    """((O,) the class of each operator; (O,) a number that a forward operator and its backward share)."""
    forward = [base_name(name).removesuffix("_data").removesuffix("_backward") for name in trace.op_names]
    exact, products = _EXACT if autocast else _LOSSES, LOW if autocast else MATCH
    of_name = [HIGH if base in exact else products if base in _PRODUCTS else FOLLOW for base in forward]
    names = {base: number for number, base in enumerate(dict.fromkeys(forward))}
    number = np.array([names[base] for base in forward], np.int64)[trace.op]
    classes = np.array(of_name, np.int8)[trace.op]
    classes[(kinds != FORWARD) & (kinds != BACKWARD)] = FOLLOW
    if "sum" in names and "addmm" in names:  # backward sums the gradient of a product for its bias
        number[(number == names["sum"]) & (kinds == BACKWARD)] = names["addmm"]
    return classes, number * (len(trace.modules) + 1) + trace.module + 1


def _converted(trace: Trace, found: Retyped, formats: Mapping[int, str], kinds: Any, base: str, role: Any) -> Edit:
    """The trace with tensors of the levels that were found, and their casts."""
    edit, element = Edit(trace), BYTES[base]
    edit.retyped = True
    width = np.array([element, *(BYTES[formats[level]] for level in (LOW, HIGH))])
    edit["size"][:] = trace.size // element * width[found.level]
    edit["size"][found.level == OTHER] = trace.size[found.level == OTHER]
    category = np.where(kinds[found.at] == FORWARD, edit.name("categories", "fwd"), edit.name("categories", "bwd"))
    casts = edit.add_tensors(trace.size[found.source] // element * width[found.cast_level], category)
    edit["read_id"][:], edit["write_id"][:] = found.read_id, found.write_id
    old, new = np.where(role == WORKSPACE, 0, trace.size), edit.sizes()
    new[: trace.tensors][role == WORKSPACE] = 0
    for side, column in (("read", "read_bytes"), ("write", "written_bytes")):
        ids = getattr(trace, f"{side}_id")
        edit[column][:] = moved(getattr(trace, f"{side}_start"), ids, edit[f"{side}_id"], old, new, getattr(trace, column))
    number = np.array([-1, *(edit.name("dtypes", formats[level]) for level in (LOW, HIGH))])
    own = trace.dtype == trace.dtypes.index(base)
    edit["dtype"][own] = number[found.op_level[own]]
    edit["duration"][own] = -1
    _name_attention(edit, own & (found.op_level == LOW), formats[LOW])

    one = np.ones(len(casts), np.int64)
    source, target = np.where(found.result, (casts, found.source), (found.source, casts))
    level = np.where(found.result, found.level[found.source], found.cast_level)
    operators = edit.add_operators(
        (one, source), (one, target), op=edit.name("op_names", "aten._to_copy.default"), module=trace.module[found.at],
        dtype=number[level], read_bytes=new[source], written_bytes=new[target],
    )  # fmt: skip
    event, begin = issued(trace), begun(trace)
    stream = trace.stream[event[found.at]]
    before = ~found.result
    edit.insert(begin[found.at[found.result]], ALLOC, casts[found.result], stream[found.result])
    pairs = np.stack([casts[before], operators[before]], 1).ravel()
    edit.insert(np.repeat(begin[found.at[before]], 2), np.tile([ALLOC, OP], before.sum()), pairs, np.repeat(stream[before], 2))
    for kind, rows in ((OP, operators), (FREE, casts)):
        edit.insert(event[found.at[found.result]] + 1, kind, rows[found.result], stream[found.result])
    edit.insert(event[found.last[casts[before]]] + 1, FREE, casts[before], stream[before])

    # What only a cast needs any more dies after it.
    _, died = lives(trace)
    used = last_uses(trace)
    after = np.append(event, trace.events)[used + 1]
    last = found.last[: trace.tensors]
    not_saved = (kinds[used] == BACKWARD) & (kinds[last] == FORWARD)
    early = np.flatnonzero((last < used) & (not_saved | (died < after)) & (role != PARAMETER) & (died < trace.events))
    gone = np.zeros(trace.events, bool)
    gone[died[early]] = True
    edit.drop_events(gone)
    edit.insert(event[last[early]] + 1, FREE, early, trace.stream[died[early]])
    return edit


def _name_attention(edit: Edit, which: Any, to: str) -> None:
    """PyTorch's flash attention takes 16 bits, and in fp32 the memory-efficient one runs."""
    old, new = ("_flash_", "_efficient_") if to == "float32" else ("_efficient_", "_flash_")
    for number, name in enumerate(edit.trace.op_names):
        if f"{old}attention" in name:
            edit["op"][which & (edit.trace.op == number)] = edit.name("op_names", name.replace(old, new))


def _without_casts(edit: Edit, types: Any, names: tuple[str, ...], base: int) -> None:
    """A cast to the type that a tensor already has is none: PyTorch answers the tensor itself."""
    trace = edit.trace
    copies = np.array([base_name(name) == "_to_copy" for name in trace.op_names] or [False])[trace.op]
    single = copies & (np.diff(trace.read_start) == 1) & (np.diff(trace.write_start) == 1)
    alike = np.isin(types, (base, names.index("float32")))
    _, died = lives(trace)
    same = np.arange(trace.tensors)
    ends, gone = died.copy(), np.zeros(trace.ops, bool)
    for o in np.flatnonzero(single).tolist():
        source, target = int(trace.read_id[trace.read_start[o]]), int(trace.write_id[trace.write_start[o]])
        if alike[source] and alike[target] and source != target:
            root = int(same[source])
            same[target], gone[o] = root, True
            ends[root] = max(ends[root], died[target])
    replaced = same != np.arange(trace.tensors)
    edit.drop_operators(gone)
    edit.drop_tensors(replaced)
    for column in ("read_id", "write_id"):
        edit[column][:] = same[getattr(trace, column)]
    late = np.flatnonzero((ends > died) & ~replaced)
    frees = np.zeros(trace.events, bool)
    frees[died[late]] = True
    edit.drop_events(frees)
    late = late[ends[late] < trace.events]
    edit.insert(ends[late], FREE, late)


def _with_masters(trace: Trace) -> Trace:
    """The optimizer works on fp32 copies: gradients are cast before it, and the copies written back after it."""
    steps = updates(trace)
    parameters = np.unique(np.concatenate([step.parameters for step in steps]))
    types, names = element_types(trace)
    element = BYTES[names[types[parameters[0]]]]
    edit = Edit(trace)
    opt, fp32 = edit.name("categories", "opt"), edit.name("dtypes", "float32")
    own = edit.name("dtypes", names[types[parameters[0]]])
    born, _ = lives(trace)
    event = issued(trace)
    master = np.arange(trace.tensors)  # what the optimizer works on instead
    master[parameters] = edit.add_tensors(trace.size[parameters] // element * 4, opt)
    edit.insert(int(born[parameters].max()) + 1, ALLOC, master[parameters])
    for step in steps:
        casts = edit.add_tensors(trace.size[step.gradients] // element * 4, opt)
        one = np.ones(len(casts), np.int64)
        low, high = trace.size[step.gradients], trace.size[step.gradients] // element * 4
        ops = edit.add_operators((one, step.gradients), (one, casts), op=edit.name("op_names", "aten._to_copy.default"),
                                 dtype=fp32, read_bytes=low, written_bytes=high)  # fmt: skip
        edit.insert(step.begin + 1, np.tile([ALLOC, OP], len(casts)), np.stack([casts, ops], 1).ravel())
        back = edit.add_operators(
            (one[:1] * len(casts), master[step.parameters]), (one[:1] * len(casts), step.parameters),
            op=edit.name("op_names", "aten._foreach_copy_.default"), dtype=own, read_bytes=int(high.sum()),
            written_bytes=int(low.sum()),
        )  # fmt: skip
        first, last = np.searchsorted(event, (step.begin, step.end))
        edit.insert(event[last - 1] + 1, OP, back)
        edit.insert(event[last - 1] + 1, FREE, casts)
        master[step.gradients] = casts
        for side in ("read", "write"):
            part = slice(*getattr(trace, f"{side}_start")[[first, last]])
            edit[f"{side}_id"][part] = master[edit[f"{side}_id"][part]]
    return edit.finish()

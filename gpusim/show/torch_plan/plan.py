"""Which parts of PyTorch say what a run did: its transforms, its plan and its allocator; else why none does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpusim.base.calls import parse, split
from gpusim.base.errors import ResultError
from gpusim.base.units import BYTES
from gpusim.base.units import parse as quantity
from gpusim.programs import transforms
from gpusim.trace.iterations import iterations
from gpusim.trace.model_blocks import block_names
from gpusim.trace.roles import BACKWARD, FORWARD, phase_kinds
from gpusim.trace.trace import COPY_OUT, OP, Trace

MIB = 2**20


@dataclass
class TorchPlan:
    """What a program needs.

    parts      module of `parts` -> values of its constants
    apply      functions of the parts that change the model, in order
    around     context managers around forward and loss, in order: a call each
    notes      what the user does by hand
    simulated  numbers of one step of the simulation that the parts count as well
    """

    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    apply: list[str] = field(default_factory=list)
    around: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    simulated: dict[str, Any] = field(default_factory=dict)


def torch_plan(spec: Mapping[str, Any], metrics: Mapping[str, Any], trace: Trace) -> TorchPlan:
    """The plan of a run of this recorded trace.

    Raises ResultError, whose sentence says what PyTorch cannot do.
    """
    _refuse(spec, metrics)
    made = TorchPlan()
    place, given = parse(str(spec.get("place", "pytorch")))
    if place != "pytorch":
        raise _cannot(f"the allocator {place}", "PyTorch's own is another one", "run with place: pytorch")
    if conf := str(given.get("conf", "")):
        made.parts["allocator"] = {"ALLOCATOR": conf}
    chain = transforms.registry.steps(str(spec.get("transform", "none")))
    plan = str(spec.get("plan", "none"))
    for step in [*chain, *([plan] if plan != "none" else [])]:
        name, values = split(step, "a transform")
        say = _SAYS.get(name)
        if say is None:
            raise _cannot(f"'{step}'", _WHY_NOT.get(name, "nothing in PyTorch does that by itself"))
        after = transforms.apply(trace, step)
        say(made, values, trace, after)
        trace = after
    if not (made.parts or made.notes):
        raise ResultError("the run changes nothing of the program, so there is nothing to write")
    return made


def _cannot(what: str, why: str, hint: str = "") -> ResultError:
    return ResultError(f"{what} cannot be said in PyTorch: {why}", hint=hint)


def _refuse(spec: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
    """What a run did besides its transforms and its allocator."""
    if str(spec.get("unified", "none")) != "none":
        raise _cannot("unified memory", "its allocator has none")
    if swapped := int(metrics.get("swap_outs", 0)) + int(metrics.get("clean_drops", 0)):
        policy = str(spec.get("evict"))
        why = "its allocator evicts nothing, and hooks see what autograd saves alone, not single tensors at a time of their own"
        raise _cannot(f"the {swapped:,} evictions of {policy}", why, "save_on_host is a transform that hooks can carry out")
    for kind in ("defrag", "release"):
        if str(spec.get(kind, "none")) != "none":
            raise _cannot(f"the {kind} policy {spec[kind]}", "its allocator has no such hook")


# ------------------------------------------------------------------ what each transform becomes

Values = Mapping[str, str]


def _checkpointing(made: TorchPlan, values: Values, before: Trace, after: Trace) -> None:
    if values.get("every", "1") != "1":
        why = "torch.utils.checkpoint wraps a call, and the model calls its blocks one by one"
        raise _cannot(f"checkpointing in segments of {values['every']} blocks", why, "every=1")
    root, names = _blocks(before, values.get("modules", ""))
    keep = tuple(word.strip() for word in values.get("keep", "").split("+") if word.strip())
    made.parts["checkpointing"] = {"ROOT": root, "BLOCKS": names, "KEEP": keep}
    made.apply.append("checkpoint_blocks")
    own, again = (_backward(trace) for trace in (before, after))
    made.simulated["RECOMPUTED"] = dict(sorted((again - own).items()))


def _save_on_host(made: TorchPlan, values: Values, before: Trace, after: Trace) -> None:
    if "checkpointing" in made.parts:
        why = "torch.utils.checkpoint keeps the inputs of its blocks by itself, where hooks do not see them"
        raise _cannot("save_on_host behind checkpointing", why)
    for name, usual in (("modules", ""), ("ahead", "0")):
        if values.get(name, usual) != usual:
            said = "which module made a tensor" if name == "modules" else "which one backward needs next"
            raise _cannot(f"save_on_host({name}={values[name]})", f"a hook is not told {said}")
    if values.get("memory") == "fresh":
        raise _cannot("pinned memory anew for each tensor", "its allocator of the host keeps what it has pinned", "memory=grow")
    sizes, least = _left(after), int(quantity(values.get("least", "1 MiB"), BYTES))
    if most := int(values.get("most", "0")):
        least = int(sizes.min())
        stays = Counter(_left(transforms.apply(before, "save_on_host(least=0 B)")).tolist()) - Counter(sizes.tolist())
        if max(stays, default=0) >= least:
            raise _cannot(f"the {most} largest tensors", "others of their size stay, and a hook knows sizes only")
    made.parts["saved_on_host"] = {"LEAST": least, "PINNED": values.get("memory", "pool") != "pageable"}
    made.around.append("saved_on_host(model, *inputs)")
    made.simulated["MOVED"] = dict(sorted(Counter(sizes.tolist()).items()))


def _precision(made: TorchPlan, values: Values, before: Trace, after: Trace) -> None:
    formats = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
    to, mode = values.get("to", "bf16"), values.get("mode", "pure")
    if to not in formats or values.get("master", "no").lower() in ("yes", "true", "1"):
        raise _cannot("fp8" if to not in formats else "fp32 masters", "neither autocast nor Module.to does that")
    if mode == "autocast":
        made.parts["autocast"] = {"FORMAT": formats[to]}
        made.around.append("autocast()")
    else:
        made.parts["converted"] = {"PURE_FORMAT": formats[to]}
        made.apply.insert(0, "convert")


def _zero(made: TorchPlan, values: Values, before: Trace, after: Trace) -> None:
    stage, ranks = int(values.get("stage", "1")), int(values.get("ranks", "8"))
    if stage == 1:
        raise _cannot("stage 1 of ZeRO", "FSDP spreads gradients too", "stage=2, or ZeroRedundancyOptimizer by hand")
    _shards(made, before, {"RANKS": ranks, "RESHARD_AFTER_FORWARD": stage == 3})


def _offload(made: TorchPlan, values: Values, before: Trace, after: Trace) -> None:
    if values.get("to", "host") != "host":
        raise _cannot("an offload to disk", "FSDP's policy knows the host only")
    if values.get("what", "optimizer") == "optimizer":
        why = "FSDP's policy moves parameters with the optimizer's state"
        raise _cannot("an offload of the optimizer's state alone", why, "what=all, or torchao's CPUOffloadOptimizer by hand")
    _shards(made, before, {"ON_HOST": True, "PIN_MEMORY": values.get("memory", "pool") != "pageable"})


def _shards(made: TorchPlan, trace: Trace, values: dict[str, Any]) -> None:
    """FSDP, of one rank where nothing is spread."""
    known = made.parts.setdefault("sharded", {"UNITS": _blocks(trace, "")[1]})
    known.update(values)
    if "shard" not in made.apply:
        made.apply.append("shard")


def _data_parallel(made: TorchPlan, values: Values, before: Trace, after: Trace) -> None:
    size = int(quantity(values.get("bucket", "25 MiB"), BYTES))
    made.parts["data_parallel"] = {"BUCKET_MB": math.ceil(size / MIB)}
    made.notes.append(f"model = data_parallel(model), in {values.get('ranks', '8')} processes of torchrun")


def _batch(made: TorchPlan, values: Values, before: Trace, after: Trace) -> None:
    said = f"{float(values['factor']):g} times the samples" if "factor" in values else f"{values.get('to')} samples"
    made.notes.append(f"each batch that goes through the model has {said} (its loader, or parts_of)")


def _accumulate(made: TorchPlan, values: Values, before: Trace, after: Trace) -> None:
    parts = int(values.get("steps", "2"))
    made.parts["accumulated"] = {"PARTS": parts}
    made.notes.append(f"forward and backward run {parts} times before optimizer.step()")


def _optimizer(made: TorchPlan, values: Values, before: Trace, after: Trace) -> None:
    known: dict[str, tuple[str, dict[str, Any]]] = {
        "sgd": ("SGD", {}), "momentum": ("SGD", {"momentum": 0.9}), "adam": ("Adam", {}), "adamw": ("AdamW", {}),
        "adafactor": ("Adafactor", {}),
    }  # fmt: skip
    to = values.get("to", "adamw")
    if to == "adam8bit":
        made.parts["optimizer8bit"] = {}
        return
    if to not in known:
        raise _cannot(f"the optimizer {to}", "torch.optim has none of that name")
    made.parts["optimizer"] = dict(zip(("OPTIMIZER", "OPTIONS"), known[to], strict=True))


def _without_waits(made: TorchPlan, values: Values, before: Trace, after: Trace) -> None:
    where = f"at {values['line']}" if values.get("line") else "anywhere"
    made.notes.append(f"the host does not wait for the device {where}")


def _recorded_times(made: TorchPlan, values: Values, before: Trace, after: Trace) -> None:
    """Says something of the recording, and nothing of the program."""


_SAYS: dict[str, Callable[[TorchPlan, Values, Trace, Trace], None]] = {
    "checkpointing": _checkpointing, "save_on_host": _save_on_host, "precision": _precision, "zero": _zero,
    "offload": _offload, "data_parallel": _data_parallel, "batch": _batch, "accumulate": _accumulate,
    "optimizer": _optimizer, "without_waits": _without_waits, "recorded_times": _recorded_times,
}  # fmt: skip
_WHY_NOT = {
    "dtr": "it decides tensor by tensor while the program runs, by what is in memory",
    "capuchin": "it swaps and recomputes tensor by tensor, at kernels of one recorded step",
    "checkmate": "it recomputes single operators, and torch.utils.checkpoint whole calls",
    "lora": "adapters are layers of a library: peft.LoraConfig",
    "tensor_parallel": "which of its layers is split by columns or rows is for the model's author to say (parallelize_module)",
    "pipeline": "the model must be cut into stages by its author (torch.distributed.pipelining)",
    "sequence": "how long sequences are is a matter of the program's data",
    "data_loader": "loading is a matter of the program's data (DataLoader, pin_memory)",
}


# ------------------------------------------------------------------ what a trace says of one step

def _blocks(trace: Trace, pattern: str) -> tuple[str, tuple[str, ...]]:
    """The class of the model and the names of its blocks, as `get_submodule` takes them, in the order of forward."""
    ops = np.flatnonzero(phase_kinds(trace)[trace.kind == OP] == FORWARD)
    paths = block_names(trace, pattern)
    used = dict.fromkeys(paths[module] for module in trace.module[ops].tolist() if module >= 0 and paths[module])
    roots = {path.partition(".")[0] for path in used}
    if len(roots) != 1 or not all("." in path for path in used):
        raise _cannot("blocks of several models, or without a model", "the recording has no name for them in one module")
    return roots.pop(), tuple(path.partition(".")[2] for path in used)


def _last_step(trace: Trace) -> Any:
    """(O,) the operators of the last iteration."""
    of = iterations(trace)[trace.kind == OP]
    return of == of.max()


def _backward(trace: Trace) -> Counter[str]:
    """Operator -> how often the last iteration's backward pass runs it."""
    inside = _last_step(trace) & (phase_kinds(trace)[trace.kind == OP] == BACKWARD)
    return Counter(trace.op_names[op] for op in trace.op[inside].tolist())


def _left(trace: Trace) -> Any:
    """Bytes of each tensor that `save_on_host` moves in the last iteration."""
    names = np.array([name == "gpusim::copy_out" for name in trace.op_names])
    found = trace.read_bytes[_last_step(trace) & names[trace.op] & (trace.activity == COPY_OUT)]
    if not len(found):
        raise ResultError(f"{trace.name}: its last step moves no tensor", hint="record whole steps")
    return found

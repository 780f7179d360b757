"""What a user copies for a remedy: a line of Python for each transform, and what it changes besides memory and time."""

from __future__ import annotations

from gpusim.base.calls import split
from gpusim.programs.transforms.registry import steps
from gpusim.studies.capacity.remedies import FitRemedy
from gpusim.studies.fragmentation.candidates import CONF

_OFFLOADED = "fully_shard(model, offload_policy=CPUOffloadPolicy())"
# Transform as it is written -> its line.  Of a transform with other parameters none is known.
_LINES = {
    "checkpointing": "h = torch.utils.checkpoint.checkpoint(block, h, use_reentrant=False) for each block",
    "precision(to=bf16, mode=autocast)": 'with torch.autocast("cuda", torch.bfloat16): forward and loss',
    "optimizer(to=adam8bit)": "optimizer = bitsandbytes.optim.Adam8bit(model.parameters())",
    "save_on_host": "saved_tensors_hooks around forward and loss: gpusim export FOLDER --as torch --run ROW writes them",
    "offload": "optimizer = torchao.optim.CPUOffloadOptimizer(model.parameters(), type(optimizer))",
    "offload(what=parameters)": _OFFLOADED,
    "offload(what=all)": _OFFLOADED,
}
# Transform, its first parameter -> the line; {ranks} and {steps} are parameters.
_WITH = {
    "accumulate": {"": "optimizer.step() after every {steps} batches"},
    "zero": {
        "1": "optimizer = ZeroRedundancyOptimizer(model.parameters(), type(optimizer)) in {ranks} processes",
        "2": "fully_shard(block, reshard_after_forward=False) for each block, then the model, in {ranks} processes",
        "3": "fully_shard(block) for each block, then the model, in {ranks} processes",
    },
    "tensor_parallel": {"": "parallelize_module(model, mesh, plan), columns and rows in turn, in {ranks} processes"},
}
_KNOWN = {"accumulate": {"steps"}, "zero": {"stage", "ranks"}, "tensor_parallel": {"ranks"}}
_NUMBERS, _SAMPLES = "the numbers that are computed change", "another number of samples a step"
_NOTES = {"precision": _NUMBERS, "optimizer": _NUMBERS, "batch": _SAMPLES}
_FOR_WAITS = {
    "synchronize()": "leave the call out",
    "a value of the GPU is read": "keep the tensor (.detach()) and read it after the last step, or every hundredth",
    "a copy that blocks": "non_blocking=True, from pinned memory (.pin_memory())",
}
_NOT_TOGETHER = "PyTorch's checkpoint keeps the inputs of its blocks itself, where hooks do not see them"
NO_SWAPPING = "PyTorch swaps no tensors by itself: save_on_host is what its hooks can do"


def setting(conf: str) -> str:
    """The line for settings of the allocator."""
    return f"export {CONF}={conf}" if conf else f"unset {CONF}"


def of_wait(line: str, what: str) -> str:
    """What to do about a wait at this line of the script."""
    return f"{line}: {_FOR_WAITS.get(what, 'do not wait for the device')}"


def of_remedy(remedy: FitRemedy, samples: int = 0) -> str:
    """The lines of a chain; "" where one of its steps has none.

    samples  of a batch as recorded, 0: not known
    """
    made = [_line(step, samples) for step in steps(remedy.chain)]
    return "" if remedy.swap or _hides(remedy) or not all(made) else "; ".join(made)


def _hides(remedy: FitRemedy) -> bool:
    """Whether a checkpoint of PyTorch hides from hooks what they are to move."""
    return {"checkpointing", "save_on_host"} <= {split(step)[0] for step in steps(remedy.chain)}


def note(remedy: FitRemedy) -> str:
    """What it changes besides memory and time."""
    names = [split(step)[0] for step in steps(remedy.chain)]
    said = [NO_SWAPPING] if remedy.swap else [_NOT_TOGETHER] if _hides(remedy) else []
    if "batch" in names and "accumulate" in names:
        names.remove("batch")  # the step's samples stay
    return "; ".join(dict.fromkeys([*said, *(_NOTES[name] for name in names if name in _NOTES)]))


def changes(said: str) -> bool:
    """Whether a note tells that another computation is made."""
    return _NUMBERS in said or _SAMPLES in said


def _line(step: str, samples: int) -> str:
    name, given = split(step, "a transform")
    if name == "batch" and {*given} == {"factor"}:
        factor = float(given["factor"])
        share = f"{factor:.3g} of the samples in a batch"
        number = factor * samples
        return f"a batch of {number:g} sample{'s' if number != 1 else ''}, not {samples}" if samples else share
    if name in _WITH and {*given} == _KNOWN[name]:
        return _WITH[name].get(given.get("stage", ""), "").format(**given)
    return _LINES.get(step, "")

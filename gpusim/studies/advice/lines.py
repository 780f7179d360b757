"""What a user copies for a remedy: a line of Python for each transform, and what it changes besides memory and time."""

from __future__ import annotations

from gpusim.base.calls import split
from gpusim.programs.transforms.registry import steps
from gpusim.studies.capacity.remedies import FitRemedy
from gpusim.studies.fragmentation.candidates import CONF

# Transform -> the line; {names} are its parameters.
_LINES = {
    "checkpointing": "h = torch.utils.checkpoint.checkpoint(block, h, use_reentrant=False) for each block",
    "precision": 'with torch.autocast("cuda", torch.bfloat16): forward and loss',
    "optimizer": "optimizer = bitsandbytes.optim.Adam8bit(model.parameters())",
    "accumulate": "optimizer.step() after every {steps} batches",
    "tensor_parallel": "parallelize_module(model, mesh, plan) with ColwiseParallel and RowwiseParallel in turn",
}
_OFFLOADED = "fully_shard(model, offload_policy=CPUOffloadPolicy())"
# Transform -> the parameter that chooses the line, its default, the lines.
_CHOICES = {
    "offload": ("what", "optimizer", {
        "optimizer": "optimizer = torchao.optim.CPUOffloadOptimizer(model.parameters(), type(optimizer))",
        "parameters": _OFFLOADED, "all": _OFFLOADED,
    }),
    "zero": ("stage", "1", {
        "1": "optimizer = ZeroRedundancyOptimizer(model.parameters(), type(optimizer))",
        "2": "fully_shard(block, reshard_after_forward=False) for each block, then the model",
        "3": "fully_shard(block) for each block, then the model",
    }),
}  # fmt: skip
_NOTES = {
    "precision": "the numbers that are computed change",
    "optimizer": "the numbers that are computed change",
    "batch": "another number of samples a step",
}
_FOR_WAITS = {
    "synchronize()": "leave the call out",
    "a value of the GPU is read": "keep the tensor (.detach()) and read it after the last step, or every hundredth",
    "a copy that blocks": "non_blocking=True, from pinned memory (.pin_memory())",
}
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
    return "" if remedy.swap or not all(made) else "; ".join(made)


def note(remedy: FitRemedy) -> str:
    """What it changes besides memory and time."""
    names = [split(step)[0] for step in steps(remedy.chain)]
    said = [NO_SWAPPING] if remedy.swap else []
    if "batch" in names and "accumulate" in names:
        names.remove("batch")  # the step's samples stay
    return "; ".join(dict.fromkeys([*said, *(_NOTES[name] for name in names if name in _NOTES)]))


def _line(step: str, samples: int) -> str:
    name, given = split(step, "a transform")
    if name == "batch" and "factor" in given:
        factor = float(given["factor"])
        share = f"{factor:.3g} of the samples in a batch"
        return f"a batch of {factor * samples:g} samples, not {samples}" if samples else share
    if name in _CHOICES:
        parameter, usual, found = _CHOICES[name]
        return found.get(given.get(parameter, usual), "")
    try:
        return _LINES.get(name, "").format(**given)
    except KeyError:
        return ""

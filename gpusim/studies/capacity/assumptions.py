"""What an answer rests on, a line each: how the program does its work, the allocator, the libraries, the context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpusim.base.units import show_bytes
from gpusim.machine.profile import Profile
from gpusim.programs.zoo.catalogue import FAMILIES
from gpusim.programs.zoo.models import ENTRIES
from gpusim.studies.capacity.settings import AllocatorSettings
from gpusim.trace.trace import Trace

# How each choice of the zoo's options is done.
_MEANS: Mapping[str, Mapping[str, str]] = {
    "dtype": {
        "fp32": "parameters, gradients and activations in fp32", "bf16": "all of it in bf16", "fp16": "all of it in fp16",
        "autocast": "parameters, gradients and optimizer in fp32, operators by autocast in bf16",
        "autocast-fp16": "parameters, gradients and optimizer in fp32, operators by autocast in fp16",
    },
    "attention": {
        "sdpa": "scaled_dot_product_attention, the kernel that PyTorch chooses", "flash": "the flash kernel",
        "efficient": "the memory-efficient kernel", "math": "scaled_dot_product_attention's plain operators",
        "eager": "scores, softmax and dropout written out",
        "eager-1.10": "scores, softmax and dropout written out, by PyTorch up to 1.10",
    },
    "update": {
        "foreach": "all parameters at once, with temporaries of their size", "fused": "one kernel, no temporaries",
        "loop": "one parameter after the other", "backward": "within the backward pass, each gradient freed at once",
    },
    "gradients": {
        "cleared": "freed after the step (set_to_none=True)", "late": "freed after the next forward pass",
        "kept": "set to zero and never freed (set_to_none=False)",
    },
    "masters": {"false": "no further copy of the parameters", "true": "fp32 copies of the parameters"},
    "checkpointing": {"false": "every activation is kept", "true": "each block is computed again in the backward pass"},
    "outputs": {"released": "freed as soon as the loss is known", "held": "kept until the next step's replace them"},
}  # fmt: skip
_SHAPE = ("batch", "seq", "decode", "image", "accumulate")
_SAID = ("dtype", "attention", "optimizer", "update", "masters", "gradients", "outputs", "checkpointing")


@dataclass(frozen=True)
class Assumption:
    """what: its name; value: as asked for; means: in words; option: what changes it; usual: whether it is the default."""

    what: str
    value: str
    means: str
    option: str
    usual: bool

    def __str__(self) -> str:
        means = f", {self.means}" if self.means else ""
        return f"{self.what}: {self.value}{means}" + (f" (default; {self.option})" if self.usual else "")


def of_program(trace: Trace) -> list[Assumption]:
    """What the zoo's options say; of another recording, that it is as recorded."""
    name, asked = trace.meta.get("zoo"), trace.meta.get("asked")
    if not name or not isinstance(asked, Mapping):
        what = "attention, optimizer, gradients, types and checkpointing"
        return [Assumption("program", "as recorded", what, "", False)]

    family = next(entry.family for entry in ENTRIES if entry.name == name)
    usual = FAMILIES[family].options(str(asked["mode"]))
    shape = ", ".join(f"{key} {asked[key]}" for key in _SHAPE if key in asked)
    lines = [Assumption("shape", shape, "", "", False)]
    for key in (key for key in _SAID if key in asked):
        value = str(asked[key]).lower()
        lines.append(Assumption(key, value, _MEANS.get(key, {}).get(value, ""), f"--{key}", asked[key] == usual[key]))
    return lines


def of_machine(trace: Trace, settings: AllocatorSettings, profiles: Sequence[Profile]) -> list[Assumption]:
    """The allocator's settings, the libraries' workspaces, and the context."""
    contexts = sorted(int(p.context.value) for p in profiles)
    if settings.context is not None:
        context = show_bytes(settings.context)
    else:
        ends = dict.fromkeys(show_bytes(size) for size in (contexts[0], contexts[-1])) if contexts else {"": None}
        context = " to ".join(ends)
    lines = [
        Assumption("allocator", settings.conf or "default settings", "PyTorch's", "--allocator", not settings.conf),
        Assumption(
            "context", context, "of the driver and its libraries, taken off what a machine has", "--context",
            settings.context is None,
        ),
    ]  # fmt: skip
    if (gpu := trace.meta.get("gpu")) and trace.meta.get("format") == "record":
        cudnn = int(trace.meta.get("cudnn_workspace", 0))
        words = "cuBLAS's of that generation; cuDNN takes " + (show_bytes(cudnn) if cudnn else "none") + " for a convolution"
        option = "--gpu, --cudnn-workspace"
        lines.append(Assumption("workspaces", str(gpu), words, option, gpu == "ampere" and not cudnn))
    return lines


def values(assumed: Sequence[Assumption]) -> list[dict[str, Any]]:
    """All of it as JSON values."""
    return [asdict(one) for one in assumed]

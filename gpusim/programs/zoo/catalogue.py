"""What can be asked of each model of the zoo, and what is wrong with a question.  Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.base.calls import split
from gpusim.base.errors import GpusimError, suggest
from gpusim.programs.zoo.models import ENTRIES, ModelEntry

Value = int | str | bool

CHOICES: Mapping[str, tuple[str, ...]] = {
    "mode": ("train", "infer"),
    "dtype": ("fp32", "bf16", "fp16", "autocast", "autocast-fp16"),
    "attention": ("sdpa", "flash", "efficient", "math", "eager", "eager-1.10"),
    "optimizer": ("sgd", "momentum", "adam", "adamw", "adafactor", "adam8bit", "none"),
    "update": ("foreach", "fused", "loop", "backward"),
    "gradients": ("cleared", "late", "kept"),
    "loss": ("entropy", "sum"),
    "outputs": ("released", "held"),
}
OPTIONS: Mapping[str, str] = {
    "mode": "train: steps of forward, backward and optimizer; infer: requests, without gradients",
    "batch": "samples of one step",
    "seq": "tokens of one sample; of an inference, the prompt",
    "decode": "tokens that an inference generates after its prompt, one at a time",
    "image": "pixels (of a volume: voxels) along each side of a sample",
    "padding": "whether texts are padded, so that attention has a mask",
    "dtype": "fp32, bf16, fp16: of everything; autocast: fp32 parameters, operators by PyTorch's rules for bf16 (-fp16: fp16)",
    "attention": "sdpa: PyTorch chooses; flash, efficient, math: that kernel; eager: scores written out (-1.10: as up to then)",
    "optimizer": "sgd, momentum, adam, adamw, adafactor, adam8bit (bitsandbytes); none: gradients are all that is wanted",
    "update": "the optimizer's implementation: foreach, fused, loop (over parameters), or backward (as gradients are ready)",
    "masters": "the optimizer updates fp32 copies of the parameters",
    "gradients": "cleared: freed after the step; late: freed after the next forward pass; kept: set to zero, never freed",
    "accumulate": "batches whose gradients are summed before a step",
    "checkpointing": "activations inside a block are not kept but computed again in the backward pass",
    "loss": "entropy: cross entropy with labels; sum: of the model's outputs, as benchmarks do",
    "outputs": "held: the program keeps the model's outputs until the next step's replace them",
    "steps": "training steps, or requests",
}
MOST = 10**9


@dataclass(frozen=True)
class Family:
    """What the models of one file have in common: options with their defaults, and the grid that an image must fit.

    shared         options of both modes: the shape of a batch, and the type
    prompt         tokens of an inference's prompt, after which it goes on token by token; 0 where there is one pass
    optimizer      the one that such models are usually trained with
    image_multiple what `image` has to be a multiple of
    attention      the implementation by default; "" without attention
    logits         whether it answers scores of classes or tokens
    """

    shared: Mapping[str, Value]
    prompt: int = 0
    optimizer: str = "adamw"
    image_multiple: int = 1
    attention: str = "sdpa"
    logits: bool = True

    def options(self, mode: str) -> dict[str, Value]:
        """Every option of one mode with its default.  Of two training steps the first makes the optimizer's state."""
        attention: dict[str, Value] = {"attention": self.attention} if self.attention else {}
        if mode == "train":
            own: dict[str, Value] = {
                "optimizer": self.optimizer, "update": "foreach", "masters": False, "gradients": "cleared", "accumulate": 1,
                "checkpointing": False, **({"loss": "entropy", "outputs": "released"} if self.logits else {}), "steps": 2,
            }  # fmt: skip
        else:
            own = {"seq": self.prompt, "decode": 32, "steps": 1} if self.prompt else {"steps": 1}
        return {"mode": mode, **self.shared, **attention, **own}


_LANGUAGE = Family({"batch": 1, "seq": 2048, "dtype": "bf16"}, prompt=1024)
FAMILIES: Mapping[str, Family] = {
    "gpt2": Family({"batch": 8, "seq": 1024, "dtype": "bf16"}, prompt=512),
    "opt": Family({"batch": 1, "seq": 2048, "dtype": "fp16"}, prompt=512),
    "bloom": Family({"batch": 1, "seq": 2048, "dtype": "bf16"}, prompt=512, attention=""),
    "bert": Family({"batch": 16, "seq": 512, "padding": True, "dtype": "bf16"}),
    "llama": _LANGUAGE,
    "moe": _LANGUAGE,
    "gemma": _LANGUAGE,
    "deepseek": _LANGUAGE,
    "gpt_oss": Family(_LANGUAGE.shared, prompt=1024, attention="eager"),
    "t5": Family({"batch": 8, "seq": 512, "dtype": "bf16"}, attention="eager"),
    "whisper": Family({"batch": 8, "seq": 448, "dtype": "autocast"}),
    "vit": Family({"batch": 64, "dtype": "autocast"}),
    "resnet": Family(
        {"batch": 64, "image": 224, "dtype": "fp32"}, optimizer="momentum", image_multiple=32, attention=""
    ),
    "unet": Family({"batch": 4, "image": 512, "dtype": "autocast"}, image_multiple=64, logits=False),
    "dit": Family({"batch": 1, "image": 1024, "dtype": "bf16"}, image_multiple=16, logits=False),
    "unet3d": Family(
        {"batch": 2, "image": 128, "dtype": "fp32"}, optimizer="momentum", image_multiple=64, attention="", logits=False
    ),
    "dlrm": Family({"batch": 2048, "dtype": "fp32"}, optimizer="sgd", attention="", logits=False),
}  # fmt: skip


def options(entry: ModelEntry, mode: str = "train") -> dict[str, Value]:
    """Every option of one mode, "train" or "infer", of a model, with its default."""
    return FAMILIES[entry.family].options(mode)


@dataclass(frozen=True)
class Asked:
    """One model and all options, each as given or by default."""

    entry: ModelEntry
    options: Mapping[str, Value]

    @property
    def spec(self) -> str:
        """The text that asks for the same again; what has its default is left out."""
        usual = {**options(self.entry, str(self.options["mode"])), "mode": "train"}  # to infer is always said
        own = {k: v for k, v in self.options.items() if v != usual[k]}
        return self.entry.name + ("(" + ", ".join(f"{k}={v}" for k, v in own.items()) + ")" if own else "")


def entries() -> list[ModelEntry]:
    """All models, family by family, small before large."""
    return list(ENTRIES)


def ask(spec: str, more: Mapping[str, Value] | None = None) -> Asked:
    """The question that "name(option=value, ...)" and `more` options put, checked."""
    known = {e.name: e for e in ENTRIES}
    name, texts = split(spec, "a model")
    if name not in known:
        near = suggest(name, known)
        raise GpusimError(f"the zoo has no model '{name}'", hint=f"{near} `gpusim zoo` lists all {len(known)}".strip())
    entry = known[name]
    given = {**texts, **(more or {})}
    mode = str(_value(name, "mode", "train", given.get("mode", "train")))
    values = options(entry, mode)
    for key, value in given.items():
        if key not in values:
            raise GpusimError(*_unknown(entry, mode, key))
        values[key] = _value(name, key, values[key], value)
    _check(entry, values)
    return Asked(entry, values)


def _unknown(entry: ModelEntry, mode: str, key: str) -> tuple[str, str, str]:
    """What is wrong with an option that this model does not have in this mode: message, place, hint."""
    other = "infer" if mode == "train" else "train"
    if key in options(entry, other):
        return f"option '{key}' of model '{entry.name}' goes with mode={other}", "", ""
    known = options(entry, mode)
    return f"model '{entry.name}' has no option '{key}'", "", suggest(key, known) or "its options: " + ", ".join(known)


def _value(name: str, key: str, default: Value, given: Value) -> Value:
    """What was given, as its default's type."""
    text = str(given).strip()
    if isinstance(default, bool):
        if text.lower() in ("1", "true", "yes", "0", "false", "no"):
            return text.lower() in ("1", "true", "yes")
        wanted = "true or false"
    elif isinstance(default, int):
        if text.isdecimal() and (key == "decode" or int(text) > 0) and int(text) <= MOST:
            return int(text)
        wanted = f"a whole number from {int(key != 'decode')} to {MOST:,}"
    elif text in CHOICES[key]:
        return text
    else:
        raise GpusimError(f"option '{key}' of model '{name}' is '{text}'", hint=suggest(text, CHOICES[key]))
    raise GpusimError(f"option '{key}' of model '{name}' is '{text}', not {wanted}")


def _check(entry: ModelEntry, values: Mapping[str, Value]) -> None:
    """What only several options together, or the model's shape, can say."""
    family = FAMILIES[entry.family]
    if int(values.get("image", 0)) % family.image_multiple:
        wanted = f"not a multiple of {family.image_multiple}"
        raise GpusimError(f"option 'image' of model '{entry.name}' is {values['image']}, {wanted}")
    tokens = int(values.get("seq", 0)) + int(values.get("decode", 0))
    if entry.context and tokens > entry.context:
        has = f"{entry.context:,} positions" if "positions" in entry.config else f"a context of {entry.context:,} tokens"
        raise GpusimError(f"model '{entry.name}' has {has}; {tokens:,} tokens were asked for")
    _together(values)


def _together(values: Mapping[str, Value]) -> None:
    """Options that exclude each other."""
    dtype, update = values["dtype"], values.get("update")
    if values.get("attention") == "flash" and dtype == "fp32":
        raise GpusimError("flash attention computes in 16 bits, not in fp32", hint="dtype=bf16, fp16 or autocast")
    if values.get("masters") and dtype not in ("bf16", "fp16"):
        raise GpusimError(f"with dtype={dtype} the parameters are in fp32 themselves", hint="leave masters out")
    if update == "backward" and int(values["accumulate"]) > 1:
        raise GpusimError("update=backward frees each gradient at once, so none can be summed", hint="leave accumulate out")
    if update == "fused" and values["optimizer"] in ("adafactor", "adam8bit"):
        raise GpusimError(f"there is no fused implementation of {values['optimizer']}", hint="leave update out")

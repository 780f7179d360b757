"""Which models there are, what can be asked of each, and what is wrong with a question.  Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpusim.errors import GpusimError, suggest
from gpusim.policies.registry import split

Value = int | str | bool

CHOICES: Mapping[str, tuple[str, ...]] = {
    "mode": ("train", "infer"),
    "dtype": ("fp32", "bf16", "fp16", "autocast"),  # of parameters and all else; autocast: fp32 parameters, bf16 by autocast
    "optimizer": ("sgd", "momentum", "adam", "adamw", "adafactor"),
}
OPTIONS: Mapping[str, str] = {
    "mode": "train: steps of forward, backward and optimizer; infer: requests, without gradients",
    "batch": "samples of one step",
    "seq": "tokens of one sample; of an inference, the prompt",
    "decode": "tokens that an inference generates after its prompt, one at a time",
    "image": "pixels (of a volume: voxels) along each side of a sample",
    "dtype": "fp32, bf16, fp16: of everything; autocast: fp32 parameters, operators by PyTorch's rules for bf16",
    "optimizer": "sgd, momentum, adam, adamw or adafactor, in their foreach implementations",
    "checkpointing": "activations inside a block are not kept but computed again in the backward pass",
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
    """

    shared: Mapping[str, Value]
    prompt: int = 0
    optimizer: str = "adamw"
    image_multiple: int = 1

    def options(self, mode: str) -> dict[str, Value]:
        """Every option of one mode with its default.  Of two training steps the first makes the optimizer's state."""
        if mode == "train":
            own: dict[str, Value] = {"optimizer": self.optimizer, "checkpointing": False, "steps": 2}
        else:
            own = {"seq": self.prompt, "decode": 32, "steps": 1} if self.prompt else {"steps": 1}
        return {"mode": mode, **self.shared, **own}


FAMILIES: Mapping[str, Family] = {
    "gpt2": Family({"batch": 8, "seq": 1024, "dtype": "bf16"}, prompt=512),
    "bert": Family({"batch": 16, "seq": 512, "dtype": "bf16"}),
    "llama": Family({"batch": 1, "seq": 2048, "dtype": "bf16"}, prompt=1024),
    "mixtral": Family({"batch": 1, "seq": 2048, "dtype": "bf16"}, prompt=1024),
    "vit": Family({"batch": 64, "dtype": "autocast"}),
    "resnet": Family({"batch": 64, "image": 224, "dtype": "fp32"}, optimizer="momentum", image_multiple=32),
    "unet": Family({"batch": 4, "image": 512, "dtype": "autocast"}, image_multiple=64),
    "unet3d": Family({"batch": 2, "image": 128, "dtype": "fp32"}, optimizer="momentum", image_multiple=64),
    "dlrm": Family({"batch": 2048, "dtype": "fp32"}, optimizer="sgd"),
}


@dataclass(frozen=True)
class Entry:
    """One model.

    name        as asked for
    family      the file that has it, `gpusim/zoo/FAMILY.py`
    parameters  how many, tied ones once; a test counts them
    help        one line
    config      the arguments of the family's Model
    """

    name: str
    family: str
    parameters: int
    help: str
    config: Mapping[str, Any] = field(default_factory=dict)

    def options(self, mode: str = "train") -> dict[str, Value]:
        """Every option of one mode, "train" or "infer", with its default."""
        return FAMILIES[self.family].options(mode)


@dataclass(frozen=True)
class Asked:
    """One model and all options, each as given or by default."""

    entry: Entry
    options: Mapping[str, Value]

    @property
    def spec(self) -> str:
        """The text that asks for the same again; what has its default is left out."""
        usual = {**self.entry.options(str(self.options["mode"])), "mode": "train"}  # to infer is always said
        own = {k: v for k, v in self.options.items() if v != usual[k]}
        return self.entry.name + ("(" + ", ".join(f"{k}={v}" for k, v in own.items()) + ")" if own else "")


def _gpt2(name: str, parameters: int, layers: int, width: int, heads: int, positions: int = 1024) -> Entry:
    version = "3, all attention dense" if name.startswith("gpt3") else "2"
    text = f"GPT-{version}: {layers} layers of width {width}, {heads} heads, {positions:,} positions, tied embedding"
    return Entry(name, "gpt2", parameters, text, {"layers": layers, "width": width, "heads": heads, "positions": positions})


def _bert(name: str, parameters: int, layers: int, width: int, heads: int) -> Entry:
    text = f"BERT with its masked-language-model head: {layers} layers of width {width}, {heads} heads, 512 positions"
    return Entry(name, "bert", parameters, text, {"layers": layers, "width": width, "heads": heads, "positions": 512})


def _llama(name: str, parameters: int, version: str, layers: int, width: int, hidden: int, heads: int, tied: bool) -> Entry:
    text = f"Llama {version}: {layers} layers of width {width}, {heads} heads on 8 of keys and values" + ", tied" * tied
    config = {"layers": layers, "width": width, "hidden": hidden, "heads": heads, "tied": tied}
    return Entry(name, "llama", parameters, text, config)


def _resnet(layers: int, parameters: int, depths: tuple[int, ...]) -> Entry:
    return Entry(f"resnet{layers}", "resnet", parameters, f"ResNet-{layers} v1.5, 1,000 classes", {"depths": depths})


def _vit(name: str, parameters: int, layers: int, width: int, heads: int) -> Entry:
    text = f"Vision transformer, 224 x 224 in patches of 16: {layers} layers of width {width}, 1,000 classes"
    return Entry(name, "vit", parameters, text, {"layers": layers, "width": width, "heads": heads})


CRITEO_TERABYTE = (
    39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10,
    2208, 11938, 155, 4, 976, 14, 39979771, 25641295, 39664984, 585935, 12972, 108, 36,
)  # fmt: skip
CRITEO_KAGGLE = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip

_ENTRIES = (
    _gpt2("gpt2-small", 124_439_808, 12, 768, 12),
    _gpt2("gpt2-medium", 354_823_168, 24, 1024, 16),
    _gpt2("gpt2-large", 774_030_080, 36, 1280, 20),
    _gpt2("gpt2-xl", 1_557_611_200, 48, 1600, 25),
    _gpt2("gpt3-175b", 174_604_259_328, 96, 12288, 96, 2048),
    _bert("bert-base", 109_514_298, 12, 768, 12),
    _bert("bert-large", 335_174_458, 24, 1024, 16),
    _llama("llama-1b", 1_235_814_400, "3.2 1B", 16, 2048, 8192, 32, True),
    _llama("llama-8b", 8_030_261_248, "3 8B", 32, 4096, 14336, 32, False),
    _llama("llama-70b", 70_553_706_496, "3 70B", 80, 8192, 28672, 64, False),
    Entry("mixtral-8x7b", "mixtral", 46_702_792_704, "Mixtral 8x7B: Mistral 7B with 8 experts in each layer, 2 for each token"),
    _vit("vit-base", 86_567_656, 12, 768, 12),
    _vit("vit-large", 304_326_632, 24, 1024, 16),
    _resnet(50, 25_557_032, (3, 4, 6, 3)),
    _resnet(101, 44_549_160, (3, 4, 23, 3)),
    _resnet(152, 60_192_808, (3, 8, 36, 3)),
    Entry("sd15-unet", "unet", 859_520_964, "UNet of Stable Diffusion 1.5: one denoising step on latents, 77 tokens of text"),
    Entry("unet3d", "unet3d", 31_190_243, "3D-UNet of MLPerf training (KiTS19): 1 channel, 3 classes"),
    Entry(
        "dlrm-terabyte", "dlrm", 24_036_595_969, "DLRM of MLPerf training 0.7 (Criteo 1 TB): 26 tables of width 128",
        {"rows": CRITEO_TERABYTE, "width": 128, "bottom": (512, 256, 128), "top": (1024, 1024, 512, 256, 1)},
    ),
    Entry(
        "dlrm-kaggle", "dlrm", 540_677_217, "DLRM for Criteo Kaggle: 26 tables of width 16",
        {"rows": CRITEO_KAGGLE, "width": 16, "bottom": (512, 256, 64, 16), "top": (512, 256, 1)},
    ),
)  # fmt: skip


def entries() -> list[Entry]:
    """All models, family by family, small before large."""
    return list(_ENTRIES)


def ask(spec: str, options: Mapping[str, Value] | None = None) -> Asked:
    """The question that "name(option=value, ...)" and `options` put, checked."""
    known = {e.name: e for e in _ENTRIES}
    name, texts = split(spec, "a model")
    if name not in known:
        raise GpusimError(f"the zoo has no model '{name}'", hint=f"{suggest(name, known)} the zoo: {', '.join(known)}".strip())
    entry = known[name]
    given = {**texts, **(options or {})}
    mode = str(_value(name, "mode", "train", given.get("mode", "train")))
    values = entry.options(mode)
    for key, value in given.items():
        if key not in values:
            raise GpusimError(*_unknown(entry, mode, key))
        values[key] = _value(name, key, values[key], value)
    _check(entry, values)
    return Asked(entry, values)


def _unknown(entry: Entry, mode: str, key: str) -> tuple[str, str, str]:
    """What is wrong with an option that this model does not have in this mode: message, place, hint."""
    other = "infer" if mode == "train" else "train"
    if key in entry.options(other):
        return f"option '{key}' of model '{entry.name}' goes with mode={other}", "", ""
    known = entry.options(mode)
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


def _check(entry: Entry, values: Mapping[str, Value]) -> None:
    """What only several options together, or the model's shape, can say."""
    family = FAMILIES[entry.family]
    if int(values.get("image", 0)) % family.image_multiple:
        wanted = f"not a multiple of {family.image_multiple}"
        raise GpusimError(f"option 'image' of model '{entry.name}' is {values['image']}, {wanted}")
    positions = entry.config.get("positions")
    if positions:
        tokens = int(values["seq"]) + int(values.get("decode", 0))
        if tokens > positions:
            raise GpusimError(f"model '{entry.name}' has {positions:,} positions; {tokens:,} tokens were asked for")

"""The models of the zoo as data: family, number of parameters, and the arguments of the family's Model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ModelEntry:
    """One model.

    name        as asked for
    family      the file that has it, `gpusim/programs/zoo/FAMILY.py`
    parameters  how many, tied ones once; a test counts them
    help        one line
    config      the arguments of the family's Model
    context     tokens of the longest sequence; 0: it reads no tokens, or any number
    """

    name: str
    family: str
    parameters: int
    help: str
    config: Mapping[str, Any] = field(default_factory=dict)
    context: int = 0


def _gpt2(name: str, parameters: int, layers: int, width: int, heads: int, positions: int = 1024) -> ModelEntry:
    version = "3, all attention dense" if name.startswith("gpt3") else "2"
    text = f"GPT-{version}: {layers} layers of width {width}, {heads} heads, {positions:,} positions, tied embedding"
    config = {"layers": layers, "width": width, "heads": heads, "positions": positions}
    return ModelEntry(name, "gpt2", parameters, text, config, positions)


def _opt(name: str, parameters: int, layers: int, width: int, heads: int) -> ModelEntry:
    text = f"OPT {name[4:].upper()}: {layers} layers of width {width}, {heads} heads, 2,048 positions, tied embedding"
    return ModelEntry(name, "opt", parameters, text, {"layers": layers, "width": width, "heads": heads}, 2048)


def _bert(name: str, parameters: int, layers: int, width: int, heads: int, classes: int = 0) -> ModelEntry:
    head = f"{classes} classes" if classes else "its masked-language-model head"
    text = f"BERT with {head}: {layers} layers of width {width}, {heads} heads, 512 positions"
    config = {"layers": layers, "width": width, "heads": heads, "positions": 512, **({"classes": classes} if classes else {})}
    return ModelEntry(name, "bert", parameters, text, config, 512)


def _dense(
    name: str, parameters: int, called: str, context: int, layers: int, width: int, hidden: int, heads: int, *,
    groups: int = 8, **more: Any,
) -> ModelEntry:  # fmt: skip
    shared = "" if groups == heads else f" on {groups} of keys and values"
    text = f"{called}: {layers} layers of width {width}, {heads} heads{shared}" + ", tied" * bool(more.get("tied"))
    config = {"layers": layers, "width": width, "hidden": hidden, "heads": heads, "groups": groups, **more}
    return ModelEntry(name, "llama", parameters, text, config, context)


def _qwen(name: str, parameters: int, layers: int, width: int, hidden: int, heads: int, tied: bool) -> ModelEntry:
    more: dict[str, Any] = {"vocabulary": 151936, "size": 128, "theta": 1e6, "normed": True, "tied": tied}
    return _dense(name, parameters, f"Qwen 3 {name[6:].upper()}", 40960, layers, width, hidden, heads, **more)


def _gemma(
    name: str, parameters: int, layers: int, width: int, hidden: int, heads: int, groups: int, **more: Any
) -> ModelEntry:
    small = name.endswith("1b")
    config = {"window": 512 if small else 1024, **({"vocabulary": 262144} if small else {}), **more}
    text = f"Gemma 3 {name[7:].upper()}, its text part: {layers} layers of width {width}, one in six sees all tokens, tied"
    config = {"layers": layers, "width": width, "hidden": hidden, "heads": heads, "groups": groups, **config}
    return ModelEntry(name, "gemma", parameters, text, config, 32768 if small else 131072)


def _t5(name: str, parameters: int, layers: int, width: int, hidden: int, heads: int, size: int = 64) -> ModelEntry:
    text = f"T5 (1.0): {layers} layers each to read and to write, width {width}, tied"
    config = {"layers": layers, "width": width, "hidden": hidden, "heads": heads, "size": size}
    return ModelEntry(name, "t5", parameters, text, config)


def _whisper(name: str, parameters: int, layers: int, width: int, heads: int, **more: int) -> ModelEntry:
    writing = more.get("decoder", layers)
    text = f"Whisper: {layers} layers to listen, {writing} to write, width {width}; 30 s of sound, 448 positions"
    return ModelEntry(name, "whisper", parameters, text, {"layers": layers, "width": width, "heads": heads, **more}, 448)


def _resnet(layers: int, parameters: int, depths: tuple[int, ...]) -> ModelEntry:
    return ModelEntry(f"resnet{layers}", "resnet", parameters, f"ResNet-{layers} v1.5, 1,000 classes", {"depths": depths})


def _vit(name: str, parameters: int, layers: int, width: int, heads: int, patch: int = 16) -> ModelEntry:
    text = f"Vision transformer, 224 x 224 in patches of {patch}: {layers} layers of width {width}, 1,000 classes"
    return ModelEntry(name, "vit", parameters, text, {"layers": layers, "width": width, "heads": heads, "patch": patch})


CRITEO_TERABYTE = (
    39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10,
    2208, 11938, 155, 4, 976, 14, 39979771, 25641295, 39664984, 585935, 12972, 108, 36,
)  # fmt: skip
CRITEO_KAGGLE = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip

ENTRIES = (
    _gpt2("gpt2-small", 124_439_808, 12, 768, 12),
    _gpt2("gpt2-medium", 354_823_168, 24, 1024, 16),
    _gpt2("gpt2-large", 774_030_080, 36, 1280, 20),
    _gpt2("gpt2-xl", 1_557_611_200, 48, 1600, 25),
    _gpt2("gpt3-175b", 174_604_259_328, 96, 12288, 96, 2048),
    _opt("opt-6.7b", 6_658_473_984, 32, 4096, 32),
    _opt("opt-30b", 29_974_540_288, 48, 7168, 56),
    _opt("opt-175b", 174_604_468_224, 96, 12288, 96),
    ModelEntry(
        "bloom-176b", "bloom", 176_247_271_424, "BLOOM: 70 layers of width 14336, 112 heads, no table of positions, tied",
        {"layers": 70, "width": 14336, "heads": 112},
    ),
    _bert("bert-base", 109_514_298, 12, 768, 12),
    _bert("bert-large", 335_174_458, 24, 1024, 16),
    _bert("bert-large-classifier", 335_143_938, 24, 1024, 16, classes=2),
    _dense("llama2-7b", 6_738_415_616, "Llama 2 7B", 4096, 32, 4096, 11008, 32, groups=32, vocabulary=32000, theta=1e4),
    _dense("llama2-13b", 13_015_864_320, "Llama 2 13B", 4096, 40, 5120, 13824, 40, groups=40, vocabulary=32000, theta=1e4),
    _dense("llama2-70b", 68_976_648_192, "Llama 2 70B", 4096, 80, 8192, 28672, 64, vocabulary=32000, theta=1e4),
    _dense("llama-1b", 1_235_814_400, "Llama 3.2 1B", 131072, 16, 2048, 8192, 32, tied=True),
    _dense("llama-3b", 3_212_749_824, "Llama 3.2 3B", 131072, 28, 3072, 8192, 24, tied=True),
    _dense("llama-8b", 8_030_261_248, "Llama 3 and 3.1 8B", 131072, 32, 4096, 14336, 32),
    _dense("llama-70b", 70_553_706_496, "Llama 3, 3.1 and 3.3 70B", 131072, 80, 8192, 28672, 64),
    _dense("llama-405b", 405_853_388_800, "Llama 3.1 405B", 131072, 126, 16384, 53248, 128),
    ModelEntry(
        "llama4-scout", "moe", 107_769_861_120, "Llama 4 Scout, its text: 48 layers, 16 experts of which 1, and a shared one",
        {"layers": 48, "width": 5120, "hidden": 8192, "heads": 40, "size": 128, "vocabulary": 202048, "experts": 16,
         "chosen": 1, "theta": 5e5, "norm": "l2", "shared": 8192, "chunk": 8192}, 10_485_760,
    ),
    ModelEntry(
        "llama4-maverick", "moe", 400_711_848_960, "Llama 4 Maverick, its text part: 128 experts in every second of 48 layers",
        {"layers": 48, "width": 5120, "hidden": 8192, "heads": 40, "size": 128, "vocabulary": 202048, "experts": 128,
         "chosen": 1, "theta": 5e5, "shared": 8192, "every": 2, "dense": 16384, "chunk": 8192}, 1_048_576,
    ),
    _dense("mistral-7b", 7_241_732_096, "Mistral 7B", 32768, 32, 4096, 14336, 32, vocabulary=32000, theta=1e4),
    ModelEntry(
        "mixtral-8x7b", "moe", 46_702_792_704, "Mixtral 8x7B: Mistral 7B with 8 experts in each layer, 2 for each token",
        {"layers": 32, "width": 4096, "hidden": 14336, "heads": 32, "groups": 8, "vocabulary": 32000, "experts": 8,
         "chosen": 2}, 32768,
    ),
    _qwen("qwen3-0.6b", 596_049_920, 28, 1024, 3072, 16, True),
    _qwen("qwen3-1.7b", 1_720_574_976, 28, 2048, 6144, 16, True),
    _qwen("qwen3-4b", 4_022_468_096, 36, 2560, 9728, 32, True),
    _qwen("qwen3-8b", 8_190_735_360, 36, 4096, 12288, 32, False),
    _qwen("qwen3-14b", 14_768_307_200, 40, 5120, 17408, 40, False),
    _qwen("qwen3-32b", 32_762_123_264, 64, 5120, 25600, 64, False),
    ModelEntry(
        "qwen3-30b-a3b", "moe", 30_532_122_624, "Qwen 3 30B-A3B: 48 layers with 128 experts, 8 for each token",
        {"layers": 48, "width": 2048, "hidden": 768, "heads": 32, "groups": 4, "size": 128, "vocabulary": 151936,
         "experts": 128, "chosen": 8, "norm": "rms"}, 40960,
    ),
    ModelEntry(
        "qwen3-235b-a22b", "moe", 235_093_634_560, "Qwen 3 235B-A22B: 94 layers with 128 experts, 8 for each token",
        {"layers": 94, "width": 4096, "hidden": 1536, "heads": 64, "groups": 4, "size": 128, "vocabulary": 151936,
         "experts": 128, "chosen": 8, "norm": "rms"}, 40960,
    ),
    _gemma("gemma3-1b", 999_885_952, 26, 1152, 6912, 4, 1),
    _gemma("gemma3-4b", 3_880_263_168, 34, 2560, 10240, 8, 4),
    _gemma("gemma3-12b", 11_766_034_176, 48, 3840, 15360, 16, 8),
    _gemma("gemma3-27b", 27_009_346_304, 62, 5376, 21504, 32, 16, size=128, scaled_by=168),
    ModelEntry(
        "deepseek-v2-lite", "deepseek", 15_706_484_224, "DeepSeek-V2-Lite: latent attention, 6 of 64 experts, and 2 shared",
        {"layers": 27, "width": 2048, "hidden": 10944, "expert": 1408, "heads": 16, "experts": 64, "chosen": 6, "shared": 2,
         "dense": 1, "query_rank": 0, "vocabulary": 102400}, 163840,
    ),
    ModelEntry(
        "deepseek-v3", "deepseek", 671_026_404_352, "DeepSeek-V3 and R1: latent attention, 8 of 256 experts, and 1 shared",
        {"layers": 61, "width": 7168, "hidden": 18432, "expert": 2048, "heads": 128, "experts": 256, "chosen": 8, "shared": 1,
         "dense": 3, "query_rank": 1536, "vocabulary": 129280}, 163840,
    ),
    ModelEntry(
        "gpt-oss-20b", "gpt_oss", 20_914_757_184, "GPT-OSS 20B: 24 layers, 32 experts, 4 a token; sinks; here in 16 bits",
        {"layers": 24, "experts": 32}, 131072,
    ),
    ModelEntry(
        "gpt-oss-120b", "gpt_oss", 116_829_156_672, "GPT-OSS 120B: 36 layers, 128 experts, 4 a token; sinks; here in 16 bits",
        {"layers": 36, "experts": 128}, 131072,
    ),
    _t5("t5-small", 60_506_624, 6, 512, 2048, 8),
    _t5("t5-base", 222_903_552, 12, 768, 3072, 12),
    _t5("t5-large", 737_668_096, 24, 1024, 4096, 16),
    _t5("t5-3b", 2_851_598_336, 24, 1024, 16384, 32, 128),
    _t5("t5-11b", 11_307_321_344, 24, 1024, 65536, 128, 128),
    _whisper("whisper-tiny", 37_760_640, 4, 384, 6),
    _whisper("whisper-base", 72_593_920, 6, 512, 8),
    _whisper("whisper-small", 241_734_912, 12, 768, 12),
    _whisper("whisper-medium", 763_857_920, 24, 1024, 16),
    _whisper("whisper-large-v3", 1_543_490_560, 32, 1280, 20, mels=128, vocabulary=51866),
    _whisper("whisper-large-v3-turbo", 808_878_080, 32, 1280, 20, decoder=4, mels=128, vocabulary=51866),
    _vit("vit-base", 86_567_656, 12, 768, 12),
    _vit("vit-large", 304_326_632, 24, 1024, 16),
    _vit("vit-huge", 632_045_800, 32, 1280, 16, patch=14),
    _resnet(50, 25_557_032, (3, 4, 6, 3)),
    _resnet(101, 44_549_160, (3, 4, 23, 3)),
    _resnet(152, 60_192_808, (3, 8, 36, 3)),
    ModelEntry(
        "sd15-unet", "unet", 859_520_964, "UNet of Stable Diffusion 1.5: one denoising step on latents, 77 tokens of text"
    ),
    ModelEntry(
        "sdxl-unet", "unet", 2_567_463_684, "UNet of Stable Diffusion XL: one denoising step on latents, 77 tokens of text",
        {"widths": (320, 640, 1280), "depths": (0, 2, 10, 10), "heads": (5, 10, 20), "text": 2048, "linear": True,
         "added": True},
    ),
    ModelEntry(
        "flux-dev", "dit", 11_901_408_320, "transformer of Flux.1 dev: one step on latents, 512 tokens", {"guided": True}
    ),
    ModelEntry(
        "flux-schnell", "dit", 11_891_178_560, "transformer of Flux.1 schnell: one step on latents, 512 tokens",
        {"guided": False},
    ),
    ModelEntry("unet3d", "unet3d", 31_190_243, "3D-UNet of MLPerf training (KiTS19): 1 channel, 3 classes"),
    ModelEntry(
        "dlrm-terabyte", "dlrm", 24_036_595_969, "DLRM of MLPerf training 0.7 (Criteo 1 TB): 26 tables of width 128",
        {"rows": CRITEO_TERABYTE, "width": 128, "bottom": (512, 256, 128), "top": (1024, 1024, 512, 256, 1)},
    ),
    ModelEntry(
        "dlrm-kaggle", "dlrm", 540_677_217, "DLRM for Criteo Kaggle: 26 tables of width 16",
        {"rows": CRITEO_KAGGLE, "width": 16, "bottom": (512, 256, 64, 16), "top": (512, 256, 1)},
    ),
)  # fmt: skip

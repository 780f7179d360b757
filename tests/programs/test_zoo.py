"""The zoo: are its models the published ones, and what does it say to a wrong question?"""

import subprocess
import sys
from importlib import import_module

import pytest

from gpusim.base.errors import GpusimError
from gpusim.programs import zoo
from gpusim.programs.zoo.catalogue import CHOICES, FAMILIES, OPTIONS, ask
from gpusim.programs.zoo.models import CRITEO_KAGGLE, CRITEO_TERABYTE

PUBLISHED = {  # parameters, tied ones once; source
    "gpt2-small": 124_439_808,  # keras-hub's gpt2_presets.py; transformers' model.num_parameters()
    "gpt2-medium": 354_823_168,  # as above
    "gpt2-large": 774_030_080,  # as above
    "gpt2-xl": 1_557_611_200,  # as above
    "bloom-176b": 176_247_271_424,  # huggingface.co/bigscience/bloom, model card
    # OPT: transformers' configurations of facebook/opt-6.7b and opt-30b, counted by hand: layers * (12 w^2 + 13 w) + 52,324 w;
    # 175B, whose weights are not on the hub, by table 1 of Zhang et al., 2022: 96 layers, 96 heads, width 12,288
    "opt-6.7b": 6_658_473_984, "opt-30b": 29_974_540_288, "opt-175b": 174_604_468_224,
    "gpt3-175b": 174_604_259_328,  # Brown et al., 2020, table D.1: 174,600 million
    "bert-base": 109_514_298,  # transformers' BertForMaskedLM, bert-base-uncased
    "bert-large": 335_174_458,  # the header of the recording that `bert-large-train` is made from
    "llama-1b": 1_235_814_400,  # huggingface.co/meta-llama/Llama-3.2-1B, safetensors
    "llama-8b": 8_030_261_248,  # huggingface.co/meta-llama/Meta-Llama-3-8B, safetensors
    "llama-70b": 70_553_706_496,  # huggingface.co/meta-llama/Llama-3.3-70B-Instruct, safetensors
    "mixtral-8x7b": 46_702_792_704,  # huggingface.co/mistralai/Mixtral-8x7B-Instruct-v0.1, safetensors; keras-hub
    "vit-base": 86_567_656,  # torchvision, ViT_B_16_Weights.meta["num_params"]
    "vit-large": 304_326_632,  # torchvision, ViT_L_16_Weights.meta["num_params"]
    "resnet50": 25_557_032,  # torchvision, ResNet50_Weights.meta["num_params"]
    "resnet101": 44_549_160,  # torchvision, ResNet101_Weights.meta["num_params"]
    "resnet152": 60_192_808,  # torchvision, ResNet152_Weights.meta["num_params"]
    "sd15-unet": 859_520_964,  # diffusers' documentation of num_parameters(), stable-diffusion-v1-5
    # From here on: transformers 5.23 or diffusers 0.42.1 with the published configuration, on the meta device.
    "bert-large-classifier": 335_143_938,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama-3b": 3_212_749_824,
    "llama-405b": 405_853_388_800,
    "llama4-scout": 107_769_861_120,  # Llama4ForCausalLM: without the vision part
    "llama4-maverick": 400_711_848_960,  # the same
    "mistral-7b": 7_241_732_096,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gemma3-1b": 999_885_952,
    "gemma3-4b": 3_880_263_168,  # Gemma3ForCausalLM: without the vision part
    "gemma3-12b": 11_766_034_176,  # the same
    "gemma3-27b": 27_009_346_304,  # the same
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_404_352,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "whisper-tiny": 37_760_640,
    "whisper-base": 72_593_920,
    "whisper-small": 241_734_912,
    "whisper-medium": 763_857_920,
    "whisper-large-v3": 1_543_490_560,
    "whisper-large-v3-turbo": 808_878_080,
    "vit-huge": 632_045_800,
    "sdxl-unet": 2_567_463_684,
    "flux-dev": 11_901_408_320,
    "flux-schnell": 11_891_178_560,
}


def on_meta(family: str, **config: object) -> int:
    torch = pytest.importorskip("torch")
    with torch.device("meta"):
        model = import_module(f"gpusim.programs.zoo.{family}").Model(**config)
    return sum(p.numel() for p in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("entry", zoo.entries(), ids=lambda e: e.name)
def test_a_model_has_as_many_parameters_as_the_catalogue_says(entry):
    assert on_meta(entry.family, **entry.config) == entry.parameters


def test_published_numbers_of_parameters():
    assert {e.name: e.parameters for e in zoo.entries() if e.name in PUBLISHED} == PUBLISHED


@pytest.mark.parametrize(("layers", "width", "heads", "count"), [(12, 768, 12, 109_482_240), (24, 1024, 16, 335_141_888)])
def test_bert_with_its_pooler_has_the_published_size(layers, width, heads, count):
    """As transformers' BertModel (bert-base-uncased, bert-large-uncased); also in keras-hub's bert_presets.py."""
    torch = pytest.importorskip("torch")
    from gpusim.programs.zoo.bert import Encoder

    with torch.device("meta"):
        encoder = Encoder(layers, width, heads, positions=512, pooler=True)
    assert sum(p.numel() for p in encoder.parameters()) == count


@pytest.mark.hand_worked
def test_3d_unet_counted_by_hand():
    """Widths of github.com/mlcommons/training, image_segmentation/pytorch/model/unet3d.py; no exact number is published."""

    def pair(inside: int, outside: int) -> int:  # two convolutions of 3 x 3 x 3 without bias, each with a norm
        return 27 * (inside * outside + outside * outside) + 2 * 2 * outside

    def up(inside: int, outside: int) -> int:  # a transposed convolution of 2 x 2 x 2 with bias, then a pair on both halves
        return 8 * inside * outside + outside + pair(2 * outside, outside)

    down = pair(1, 32) + pair(32, 64) + pair(64, 128) + pair(128, 256) + pair(256, 320) + pair(320, 320)
    back = up(320, 320) + up(320, 256) + up(256, 128) + up(128, 64) + up(64, 32)
    assert down + back + 32 * 3 + 3 == on_meta("unet3d")


@pytest.mark.hand_worked
def test_dlrm_counted_by_hand():
    """Rows in all: 187,767,399 (HugeCTR's benchmarks for Criteo 1 TB), 33,762,577 (Criteo Kaggle)."""
    assert (sum(CRITEO_TERABYTE), sum(CRITEO_KAGGLE)) == (187_767_399, 33_762_577)
    bottom = 14 * 512 + 513 * 256 + 257 * 128
    top = (128 + 27 * 26 // 2 + 1) * 1024 + 1025 * 1024 + 1025 * 512 + 513 * 256 + 257
    assert {e.name: e.parameters for e in zoo.entries()}["dlrm-terabyte"] == 187_767_399 * 128 + bottom + top
    bottom = 14 * 512 + 513 * 256 + 257 * 64 + 65 * 16
    top = (16 + 27 * 26 // 2 + 1) * 512 + 513 * 256 + 257
    assert {e.name: e.parameters for e in zoo.entries()}["dlrm-kaggle"] == 33_762_577 * 16 + bottom + top


def test_listing_the_zoo_imports_no_torch():
    code = "import sys, gpusim.programs.zoo as z; assert len(z.entries()) > 15; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_option_is_explained_and_every_choice_is_an_option():
    used = {key for f in FAMILIES.values() for mode in ("train", "infer") for key in f.options(mode)}
    assert used == set(OPTIONS)
    assert set(CHOICES) <= used
    assert {e.family for e in zoo.entries()} == set(FAMILIES)


def test_options_come_from_text_and_arguments_and_the_spec_says_them_again():
    asked = ask("llama-8b(batch=4, seq=4096)", {"optimizer": "sgd", "checkpointing": True})
    assert asked.options == {
        "mode": "train", "batch": 4, "seq": 4096, "dtype": "bf16", "attention": "sdpa", "optimizer": "sgd", "update": "foreach",
        "masters": False, "gradients": "cleared", "accumulate": 1, "checkpointing": True, "loss": "entropy",
        "outputs": "released", "steps": 2,
    }  # fmt: skip
    assert asked.spec == "llama-8b(batch=4, seq=4096, optimizer=sgd, checkpointing=True)"
    assert ask(asked.spec) == asked
    infer = ask("llama-8b(mode=infer, decode=0)")
    assert (infer.options["seq"], infer.options["steps"], infer.options["decode"]) == (1024, 1, 0)
    assert ask(infer.spec) == infer


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lama-8b", r"the zoo has no model 'lama-8b' \(did you mean 'llama-8b'.*\? `gpusim zoo` lists all \d+\)"),
        ("qwen9", r"the zoo has no model 'qwen9' \(.*`gpusim zoo` lists all \d+\)"),
        ("llama2-7b(seq=8192)", r"model 'llama2-7b' has a context of 4,096 tokens; 8,192 tokens were asked for"),
        ("llama-8b(attention=flash, dtype=fp32)", r"flash attention computes in 16 bits, not in fp32 \(dtype=bf16"),
        ("llama-8b(masters=true, dtype=fp32)", r"with dtype=fp32 the parameters are in fp32 themselves"),
        ("llama-8b(update=backward, accumulate=2)", r"update=backward frees each gradient at once"),
        ("llama-8b(update=fused, optimizer=adam8bit)", r"there is no fused implementation of adam8bit"),
        ("resnet50(attention=eager)", r"model 'resnet50' has no option 'attention'"),
        ("llama-8b(bach=4)", r"model 'llama-8b' has no option 'bach' \(did you mean 'batch'\?\)"),
        ("resnet50(seq=4)", r"model 'resnet50' has no option 'seq' \(its options: mode, batch, image, dtype, .*steps\)"),
        ("llama-8b(decode=4)", r"option 'decode' of model 'llama-8b' goes with mode=infer"),
        ("llama-8b(mode=infer, optimizer=adam)", r"option 'optimizer' of model 'llama-8b' goes with mode=train"),
        (
            "llama-8b(optimizer=adamX)",
            r"option 'optimizer' of model 'llama-8b' is 'adamX' \(did you mean 'adam' or 'adamw'\?\)",
        ),
        ("llama-8b(batch=0)", r"option 'batch' of model 'llama-8b' is '0', not a whole number from 1"),
        ("llama-8b(batch=x)", r"option 'batch' of model 'llama-8b' is 'x', not a whole number from 1"),
        ("llama-8b(checkpointing=maybe)", r"option 'checkpointing' of model 'llama-8b' is 'maybe', not true or false"),
        ("gpt2-small(seq=2048)", r"model 'gpt2-small' has 1,024 positions; 2,048 tokens were asked for"),
        ("gpt2-small(mode=infer, seq=1000)", r"model 'gpt2-small' has 1,024 positions; 1,032 tokens were asked for"),
        ("sd15-unet(image=500)", r"option 'image' of model 'sd15-unet' is 500, not a multiple of 64"),
        ("llama-8b(", r"in 'llama-8b\(' a parenthesis is not closed"),
    ],
)
def test_what_it_says_to_a_wrong_question(spec, message):
    with pytest.raises(GpusimError, match=message):
        zoo.build(spec)

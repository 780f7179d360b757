"""The zoo: are its models the published ones, and what does it say to a wrong question?"""

import subprocess
import sys
from importlib import import_module

import pytest

from gpusim import zoo
from gpusim.errors import GpusimError
from gpusim.zoo.catalogue import CHOICES, CRITEO_KAGGLE, CRITEO_TERABYTE, FAMILIES, OPTIONS, ask

PUBLISHED = {  # parameters, tied ones once; source
    "gpt2-small": 124_439_808,  # keras-hub's gpt2_presets.py; transformers' model.num_parameters()
    "gpt2-medium": 354_823_168,  # as above
    "gpt2-large": 774_030_080,  # as above
    "gpt2-xl": 1_557_611_200,  # as above
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
}


def on_meta(family: str, **config: object) -> int:
    torch = pytest.importorskip("torch")
    with torch.device("meta"):
        model = import_module(f"gpusim.zoo.{family}").Model(**config)
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("entry", zoo.entries(), ids=lambda e: e.name)
def test_a_model_has_as_many_parameters_as_the_catalogue_says(entry):
    assert on_meta(entry.family, **entry.config) == entry.parameters


def test_published_numbers_of_parameters():
    assert {e.name: e.parameters for e in zoo.entries() if e.name in PUBLISHED} == PUBLISHED


@pytest.mark.parametrize(("layers", "width", "heads", "count"), [(12, 768, 12, 109_482_240), (24, 1024, 16, 335_141_888)])
def test_bert_with_its_pooler_has_the_published_size(layers, width, heads, count):
    """As transformers' BertModel (bert-base-uncased, bert-large-uncased); also in keras-hub's bert_presets.py."""
    torch = pytest.importorskip("torch")
    from gpusim.zoo.bert import Encoder

    with torch.device("meta"):
        encoder = Encoder(layers, width, heads, positions=512, pooler=True)
    assert sum(p.numel() for p in encoder.parameters()) == count


def test_3d_unet_counted_by_hand():
    """Widths of github.com/mlcommons/training, image_segmentation/pytorch/model/unet3d.py; no exact number is published."""

    def pair(inside: int, outside: int) -> int:  # two convolutions of 3 x 3 x 3 without bias, each with a norm
        return 27 * (inside * outside + outside * outside) + 2 * 2 * outside

    def up(inside: int, outside: int) -> int:  # a transposed convolution of 2 x 2 x 2 with bias, then a pair on both halves
        return 8 * inside * outside + outside + pair(2 * outside, outside)

    down = pair(1, 32) + pair(32, 64) + pair(64, 128) + pair(128, 256) + pair(256, 320) + pair(320, 320)
    back = up(320, 320) + up(320, 256) + up(256, 128) + up(128, 64) + up(64, 32)
    assert down + back + 32 * 3 + 3 == on_meta("unet3d")


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
    code = "import sys, gpusim.zoo as z; assert len(z.entries()) > 15; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_option_is_explained_and_every_choice_is_an_option():
    used = {key for f in FAMILIES.values() for mode in ("train", "infer") for key in f.options(mode)}
    assert used == set(OPTIONS)
    assert set(CHOICES) <= used
    assert {e.family for e in zoo.entries()} == set(FAMILIES)


def test_options_come_from_text_and_arguments_and_the_spec_says_them_again():
    asked = ask("llama-8b(batch=4, seq=4096)", {"optimizer": "sgd", "checkpointing": True})
    assert asked.options == {
        "mode": "train", "batch": 4, "seq": 4096, "dtype": "bf16", "optimizer": "sgd", "checkpointing": True, "steps": 2,
    }  # fmt: skip
    assert asked.spec == "llama-8b(batch=4, seq=4096, optimizer=sgd, checkpointing=True)"
    assert ask(asked.spec) == asked
    infer = ask("llama-8b(mode=infer, decode=0)")
    assert (infer.options["seq"], infer.options["steps"], infer.options["decode"]) == (1024, 1, 0)
    assert ask(infer.spec) == infer


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lama-8b", r"the zoo has no model 'lama-8b' \(did you mean 'llama-8b'.*\? the zoo: gpt2-small, .*dlrm-kaggle\)"),
        ("t5", r"the zoo has no model 't5' \(the zoo: gpt2-small, .*resnet50, .*dlrm-kaggle\)"),
        ("llama-8b(bach=4)", r"model 'llama-8b' has no option 'bach' \(did you mean 'batch'\?\)"),
        ("resnet50(seq=4)", r"model 'resnet50' has no option 'seq' \(known: mode, batch, image, dtype, .*steps\)"),
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
        ("llama-8b(", r"'llama-8b\(' is not a model"),
    ],
)
def test_what_it_says_to_a_wrong_question(spec, message):
    with pytest.raises(GpusimError, match=message):
        zoo.build(spec)

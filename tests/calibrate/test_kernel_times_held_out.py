"""What is left out of the fits of kernel times stays left out: the draw may not move."""

import hashlib

import pytest

from gpusim.calibrate.kernel_times.held_out import FAMILIES, family, family_held_out, gpu_kept_back, shape_held_out

pytestmark = pytest.mark.fast

SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
DRAWN = [  # of all pairs of SIZES
    (32, 512), (32, 2048), (64, 64), (64, 2048), (128, 64),
    (128, 128), (128, 512), (256, 512), (512, 4096), (1024, 32), (2048, 1024),
]
FAMILY_NAMES = ["resnet50", "vit_base", "swin_tiny", "convnext_base", "regnety_040", "deit_tiny", "dla34", "vgg16", "coatnet_0"]
FAMILIES_OUT = ["dla34", "vgg16"]


def test_one_shape_of_five_is_left_out() -> None:
    drawn = [shape_held_out("gemm", (n, k)) for n in range(32, 4096, 32) for k in range(32, 4096, 32)]
    assert 0.19 < sum(drawn) / len(drawn) < 0.21


def test_the_draw_of_shapes_is_the_hash_of_class_and_row_key() -> None:
    for what, key in (("gemm", (4096, 4096)), ("attention", (32, 8, 128)), ("gemm", (128, 64))):
        text = " ".join([what, *map(str, key)])
        wanted = int(hashlib.sha256(text.encode()).hexdigest()[:16], 16) % 5 == 0
        assert shape_held_out(what, key) is wanted


def test_the_draw_has_not_moved() -> None:
    drawn = [(n, k) for n in SIZES for k in SIZES if shape_held_out("gemm", (n, k))]
    assert drawn == DRAWN
    assert [name for name in FAMILY_NAMES if family_held_out(name)] == FAMILIES_OUT


def test_a_family_is_the_name_up_to_an_underscore_or_a_digit() -> None:
    names = ("resnet50", "vit_base_patch16_224", "convnextv2_base", "swin")
    assert [family(name) for name in names] == ["resnet", "vit", "convnextv", "swin"]


def test_all_networks_of_a_family_go_together() -> None:
    assert len({family_held_out(f"resnet{n}") for n in (18, 26, 34, 50, 101, 152)}) == 1


def test_kept_back_families_are_left_out_whatever_the_draw_says() -> None:
    assert all(family_held_out(f"{name}_x") for name in FAMILIES)


@pytest.mark.parametrize(
    ("gpu", "source", "kept"),
    [
    ("h200-sxm", "aiconfigurator", True),
    ("l4", "neusight", True),
    ("l40s", "aiconfigurator", False),
    ("rtx-4090", "timm", True),
    ("h100-sxm-80gb", "aiconfigurator", False),
    ("h100-sxm-80gb", "neusight", True),
    ("t4", "neusight", False),
    ("t4", "neusight conv", True),
    ("t4", "deepbench", True),
    ("b200-sxm", "aiconfigurator", False),
    ("gb200", "aiconfigurator", True),
    ],
)
def test_kept_back_gpus(gpu: str, source: str, kept: bool) -> None:
    assert gpu_kept_back(gpu, source) is kept



"""Operators by class, and their work by hand."""

from pathlib import Path

import numpy as np
import pytest

from gpusim.machine.kernels import store
from gpusim.machine.kernels.classes import base, class_of, kernels
from gpusim.trace.files import load_trace


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten.addmm.default", "gemm"),
        ("aten.convolution.default", "conv"),
        ("aten::cudnn_convolution", "conv"),
        ("conv2d", "conv"),
        ("aten.convolution_backward.default", "conv backward"),
        ("aten._scaled_dot_product_flash_attention.default", "attention"),
        ("aten._scaled_dot_product_flash_attention_backward.default", "attention backward"),
        ("aten.native_batch_norm_backward.default", "batch_norm backward"),
        ("aten.max_pool2d_with_indices_backward.default", "pool backward"),
        ("aten.add_.Tensor", "pointwise"),
        ("aten.gelu_backward.default", "special"),
        ("aten._to_copy.default", "cast"),
        ("aten.embedding_dense_backward.default", "scatter"),
        ("aten.embedding.default", "gather"),
        ("aten._foreach_add_.List", "optimizer"),
        ("aten.upsample_bicubic2d.default", "resize"),
        ("aten.zero_.default", "fill"),
        ("aten.nll_loss_forward.default", "reduce"),
        ("what_nobody_wrote", "other"),
    ],
)
def test_a_name_has_one_class(name, expected):
    assert class_of(name) == expected


def test_names_come_without_what_stands_around_them():
    assert [base(n) for n in ("aten.add_.Tensor", "aten::add_", "add_", "linear")] == ["add_", "add_", "add_", "linear"]


def what(name, text, dtype="float16"):
    return [k.what for k in kernels(name, dtype, text, 0.0, 64, 64)]


def test_a_linear_layer():
    text = "3072 50432x768 768x3072 -> 50432x3072 | layout=contiguous,contiguous,1x0,contiguous"
    (k,) = kernels("aten.addmm.default", "float16", text, 2.0 * 50432 * 768 * 3072, 80, 20)
    assert (k.what, k.rows, k.columns, k.loop, k.batch, k.moved) == ("gemm", 50432, 3072, 768, 1, 100)


def test_a_batched_product_keeps_its_batch():
    (k,) = kernels("aten.bmm.default", "float16", "24x197x64 24x64x197 -> 24x197x197", 0.0, 10, 10)
    assert (k.rows, k.columns, k.loop, k.batch) == (197, 197, 64, 24)
    assert k.flops == 2 * 24 * 197 * 197 * 64


_CONV = "2x64x56x56 128x64x3x3 128 -> 2x128x28x28 | stride=2x2 padding=1x1 groups=1 layout="


def test_a_convolution_in_nchw_is_converted_and_its_bias_is_added_apart():
    product, conversion, bias = kernels("aten.convolution.default", "float16", _CONV + "nchw", 0.0, 1, 1)
    assert product.what == "conv"
    assert product.flops == 2 * (2 * 28 * 28) * 128 * 64 * 9
    assert (product.rows, product.columns, product.loop, product.fast) == (2 * 28 * 28, 128, 64 * 9, 0)
    activations = 2 * (2 * 64 * 56 * 56 + 2 * 128 * 28 * 28)
    assert product.moved == activations + 2 * 128 * 64 * 9
    assert (conversion.what, conversion.moved) == ("conversion", 2 * activations)
    assert (bias.what, bias.moved) == ("pointwise", 2 * 2 * (2 * 128 * 28 * 28))


def test_tensor_cores_take_nhwc_as_it_is():
    assert what("aten.convolution.default", _CONV + "nhwc") == ["conv", "pointwise"]
    for dtype in ("float16", "float32"):
        assert what("aten.convolution.default", _CONV + "nchw", dtype) == ["conv", "conversion", "pointwise"]


def test_a_depthwise_convolution_computes_in_float32():
    text = "2x96x56x56 96x1x7x7 96 -> 2x96x56x56 | stride=1x1 padding=3x3 groups=96 layout=nhwc"
    (k,) = kernels("aten.convolution.default", "float16", text, 0.0, 1, 1)
    assert (k.what, k.dtype, k.loop) == ("conv depthwise nhwc", "float32", 49)
    assert k.flops == 2 * 2 * 96 * 56 * 56 * 49


def test_both_gradients_of_a_convolution_and_its_bias():
    text = "2x128x28x28 2x64x28x28 128x64x1x1 -> 2x64x28x28 128x64x1x1 128 | stride=1x1 groups=1 output_mask=1x1x1 layout=nhwc"
    data, weight, bias = kernels("aten.convolution_backward.default", "float16", text, 0.0, 1, 1)
    assert (data.what, data.rows, data.columns, data.loop) == ("conv dgrad pointwise", 2 * 28 * 28, 64, 128)
    assert (weight.what, weight.rows, weight.columns, weight.loop) == ("conv wgrad pointwise", 128, 64, 2 * 28 * 28)
    assert data.flops == weight.flops == 2 * (2 * 28 * 28) * 128 * 64
    assert (bias.what, bias.moved) == ("reduce", 2 * 2 * 128 * 28 * 28)
    first = text.replace("1x1x1 layout", "0x1x0 layout")
    assert what("aten.convolution_backward.default", first) == ["conv wgrad pointwise"]


def test_batch_norm_passes_twice_over_its_input_in_training():
    text = "8x4x2x2 4 4 4 4 -> 8x4x2x2 4 4 | training="
    (k,) = kernels("aten.native_batch_norm.default", "float16", text + "0", 0.0, 100, 40)
    assert (k.what, k.moved) == ("batch_norm", 140)
    (k,) = kernels("aten.native_batch_norm.default", "float16", text + "1 layout=nhwc", 0.0, 100, 40)
    assert (k.what, k.moved) == ("batch_norm train nhwc", 240)


def test_what_does_not_lie_as_it_is_written_is_strided():
    same, turned = "4x8 -> 4x8", "4x8 -> 4x8 | layout=1x0,contiguous"
    assert [what("aten.clone.default", text) for text in (same, turned)] == [["pointwise"], ["strided"]]
    norm = "4x8 8 8 -> 4x8 4x1 4x1 | layout=1x0,contiguous,contiguous,contiguous,contiguous,contiguous"
    assert what("aten.native_layer_norm.default", norm) == ["strided", "layer_norm"]


def test_attention_counts_pairs():
    text = "2x12x197x64 2x12x197x64 2x12x197x64 -> 2x12x197x64 | is_causal=0"
    (k,) = kernels("aten._scaled_dot_product_flash_attention.default", "float16", text, 0.0, 10, 10)
    assert (k.special, k.flops) == (2 * 12 * 197**2, 4 * 2 * 12 * 197**2 * 64)


def test_without_a_shape_flops_and_bytes_remain():
    (k,) = kernels("mm", "float16", "", 1e9, 100, 50)
    assert (k.what, k.flops, k.moved) == ("gemm", 1e9, 150)
    assert kernels("aten.relu_.default", "float16", "", 0.0, 100, 50)[0].moved == 150


def test_what_whole_steps_say_is_of_known_classes_and_physical():
    found = store.of_steps()
    assert {kind for _, kind in found} == {"half", "float32"}
    assert {"conv", "conv pointwise", "batch_norm nhwc", "pointwise", "softmax"} <= {what for what, _ in found}
    assert not {"gemm", "bmm"} & {what for what, _ in found}  # their kernels were measured
    for (what, _), c in found.items():
        if what not in ("conversion", "conversion pointwise"):  # of which some convolutions need none
            assert c.memory <= 1.3, what
    assert 0.8 < store.rates_of_steps()["rtx-3090"]["bandwidth"] / 936e9 < 1


def test_every_operator_of_the_shipped_traces_has_a_class():

    folder = Path(__file__).parents[2] / "traces"
    found = []
    for path in sorted(folder.glob("*.npz")):
        trace = load_trace(path)
        moved = np.bincount(trace.op, trace.read_bytes + trace.written_bytes, len(trace.op_names))
        other = sum(m for name, m in zip(trace.op_names, moved, strict=True) if class_of(name) == "other")
        found.append((path.name, other / max(moved.sum(), 1)))
    assert found
    assert [name for name, share in found if share > 0.01] == []


def test_a_scaled_shape_is_so_many_times_its_work() -> None:
    shape = "16x64x56x56 64x64x3x3 - -> 16x64x56x56 | stride=1x1 padding=1x1 dilation=1x1 transposed=0 groups=1"
    whole = kernels("aten.convolution.default", "float16", shape, 1e9, 10, 10)
    half = kernels("aten.convolution.default", "float16", f"{shape} scale=0.5", 5e8, 5, 5)
    assert [k.what for k in half] == [k.what for k in whole] and len(half) == 2
    for one, other in zip(half, whole, strict=True):
        assert (one.flops, one.moved, one.touched) == (other.flops / 2, other.moved / 2, other.touched / 2)
        assert (one.rows, one.columns, one.loop) == (other.rows, other.columns, other.loop)

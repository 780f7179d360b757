"""Which of PyTorch's kernels load elements one by one, and how long their longest thread block is, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gpusim.machine import catalogue
from gpusim.machine.kernels.classes import kernels
from gpusim.machine.kernels.measured import measured_gpu
from gpusim.machine.kernels.numbers import Numbers
from gpusim.machine.kernels.physics import ClassCoefficients, Rates, predict
from gpusim.machine.kernels.shapes import Work

pytestmark = pytest.mark.hand_worked
H100: Numbers = measured_gpu(catalogue.load("h100-sxm-80gb")).numbers


@pytest.mark.parametrize(
    ("name", "shape", "rate"),
    [
        ("aten.mul.Tensor", "16x1024x4096 16x1024x4096 -> 16x1024x4096", 0.0),
        ("aten.mul.Tensor", "16x1024x4096 - -> 16x1024x4096", 0.0),
        ("aten.mul.Tensor", "4096 16x1024x4096 -> 16x1024x4096", 1.5),  # a row for all
        ("aten.mul.Tensor", "16x1024x4096 16x1024x1 -> 16x1024x4096", 1.5),
        ("aten.add.Tensor", "8x4x16 8x4x16 -> 8x4x16 | layout=1x0x2,contiguous,1x0x2", 1.5),
        ("aten._to_copy.default", "64x64 -> 64x64 | from=bfloat16 to=float32", 1.5),
        ("aten._to_copy.default", "64x64 -> 64x64 | from=float32 to=bfloat16", 0.0),  # copied several at once
        ("aten.cat.default", "[8x4x16 8x4x16] -> 8x4x32 | dim=2", 0.0),
        ("aten.cat.default", "[8x4x16 8x4x16] -> 8x4x32 | dim=2 layout=1x0x2,contiguous", 0.9),
    ],
)
def test_what_is_loaded_one_by_one(name: str, shape: str, rate: float) -> None:
    (kernel,) = kernels(name, "float32" if "to=float32" in shape else "bfloat16", shape, 0.0, 1e6, 1e6)
    assert kernel.issue == rate
    assert kernel.flops == ((0.25e6 if kernel.dtype == "float32" else 0.5e6) if rate else 0.0)  # elements written


@pytest.mark.parametrize(
    ("name", "shape", "clocks"),
    [
        # 32 x 56 x 56 elements of a channel, and for two of them a clock, or 2.8 in the backward pass
        ("aten.cudnn_batch_norm.default", "32x64x56x56 64 64 64 64 -> 32x64x56x56 64 64 0 | training=1", 50_176.0),
        ("aten.cudnn_batch_norm_backward.default", "32x64x56x56 32x64x56x56 64 64 64 64 64 0 -> 32x64x56x56 64 64", 140_492.8),
        ("aten.cudnn_batch_norm.default", "32x64x56x56 64 64 64 64 -> 32x64x56x56 64 64 0 | training=1 layout=nhwc", 0.0),
        # 11.5 clocks for each of 16 x 1024 rows
        ("aten.native_layer_norm_backward.default",
         "16x1024x768 16x1024x768 16x1024x1 16x1024x1 768 768 -> 16x1024x768 768 768 | normalized_shape=768", 188_416.0),
        ("aten.sum.dim_IntList", "4096x1024 -> 1x1024 | dim=0", 13_000 + 3.4 * 4096),
        # a block of 512 threads has 8 elements each of the only row; a warp has each of 16 rows, 128 elements a thread
        ("aten.mean.dim", "1x1x4096 -> 1x1x1 | dim=2", 8 * 115.0),
        ("aten.mean.dim", "16x1x4096 -> 16x1x1 | dim=2", 128 * 115.0),
        ("aten.argmax.default", "16x1x128256 -> 16x1 | dim=2", 251 * 290.0),  # 16 warps share a row
        ("aten.embedding_dense_backward.default", "2x512x64 2x512 -> 1000x64", 65.0 * 1024),
        ("aten.embedding_dense_backward.default", "16x512x64 16x512 -> 1000x64", 110_000 + 30.0 * 8192),  # sorted
        ("aten.relu.default", "32x64x56x56 -> 32x64x56x56", 0.0),
    ],
)
def test_how_long_a_thread_block_is(name: str, shape: str, clocks: float) -> None:
    assert sum(kernel.longest for kernel in kernels(name, "bfloat16", shape, 0.0, 1e6, 1e6)) == pytest.approx(clocks)


@pytest.mark.parametrize(("flops", "issue", "longest", "us"), [(2.6136e8, 2.0, 0.0, 500.0), (0.0, 0.0, 990_000.0, 500.0)])
def test_the_bound_is_so_many_clocks(flops: float, issue: float, longest: float, us: float) -> None:
    """2.6136e8 elements at 2 a clock of 132 processors of 1.98 GHz; 990,000 clocks."""
    c = ClassCoefficients(floor=0, fill=0, tile=0, chain=0, blend=60)
    column = {name: np.array([value]) for name, value in {"issue": issue, "longest": longest}.items()}
    work = Work.of(np.array([flops]), np.array([1.0]), **column)
    assert float(predict(c, work, Rates.of(H100, "bf16"))[0]) == pytest.approx(us * 1e3, rel=1e-3)


def test_attention_that_reads_a_mask_is_bound_by_its_pairs() -> None:
    query, masked = "8x16x512x64 8x16x512x64 8x16x512x64", "8x1x512x512"
    name = "aten._scaled_dot_product_cudnn_attention.default"
    (plain,) = kernels(name, "bfloat16", f"{query} - -> 8x16x512x64 | is_causal=0", 0.0, 1e6, 1e6)
    (kernel,) = kernels(name, "bfloat16", f"{query} {masked} -> 8x16x512x64 | is_causal=0", 0.0, 1e6, 1e6)
    assert (plain.issue, kernel.issue) == (0.0, 4 * 64 * 1.6)

"""Does the recorder write the shape of each operator as its schema and its tensors have it?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import gpusim  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::gpusim.programs.record.where.RecordWarning")


def shapes(program: Callable[[], Any]) -> dict[str, list[str]]:
    """The shapes of what a program on the GPU does, by operator."""
    with gpusim.record(fake=True) as recording:
        kept = program()
    assert kept is not None
    trace, found = recording.trace, dict[str, list[str]]()
    assert (trace.shape >= 0).all()
    for op, shape in zip(trace.op, trace.shape, strict=True):
        found.setdefault(trace.op_names[op].removeprefix("aten.").split(".")[0], []).append(trace.shapes[shape])
    return found


def gpu(*dims: int, dtype: Any = None, grad: bool = False) -> torch.Tensor:
    return torch.empty(*dims, device="cuda", dtype=dtype, requires_grad=grad)


def test_a_convolution_and_its_backward() -> None:
    """64 filters of 3 x 7 x 7 in steps of 2 over 64 x 64 with 3 around it: (64 + 6 - 7) / 2 + 1 = 32."""
    done = shapes(lambda: nn.Conv2d(3, 64, 7, 2, 3)(gpu(4, 3, 64, 64)).backward(gpu(4, 64, 32, 32)) or True)
    how = "stride=2x2 padding=3x3 dilation=1x1 transposed=0 groups=1"
    assert done["convolution"] == [f"4x3x64x64 64x3x7x7 64 -> 4x64x32x32 | {how} layout=nchw"]
    assert done["convolution_backward"] == [
        f"4x64x32x32 4x3x64x64 64x3x7x7 -> - 64x3x7x7 64 | {how} output_mask=0x1x1 layout=nchw"
    ]


def test_channels_last() -> None:
    def program() -> Any:
        model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.BatchNorm2d(8), nn.MaxPool2d(2))
        return model.to(memory_format=torch.channels_last)(gpu(2, 8, 6, 6).to(memory_format=torch.channels_last))

    done = shapes(program)
    assert done["convolution"] == [
        "2x8x6x6 8x1x3x3 - -> 2x8x4x4 | stride=1x1 padding=0x0 dilation=1x1 transposed=0 groups=8 layout=nhwc"
    ]
    assert done["native_batch_norm"] == ["2x8x4x4 8 8 8 8 -> 2x8x4x4 8 8 | training=1 layout=nhwc"]
    assert done["max_pool2d_with_indices"] == [
        "2x8x4x4 -> 2x8x2x2 2x8x2x2 | kernel_size=2x2 stride=2x2 padding=0x0 dilation=1x1 ceil_mode=0 layout=nhwc"
    ]


def test_a_linear_layer() -> None:
    """The weight lies as 32 x 64 and is taken as 64 x 32: transposed.  Its gradient is 32 x 16 by 16 x 64."""
    done = shapes(lambda: nn.Linear(64, 32)(gpu(16, 64)).backward(gpu(16, 32)) or True)
    assert done["addmm"] == ["32 16x64 64x32 -> 16x32 | layout=contiguous,contiguous,1x0,contiguous"]
    assert done["mm"] == ["32x16 16x64 -> 32x64 | layout=1x0,contiguous,contiguous"]
    assert done["sum"] == ["16x32 -> 1x32 | dim=0"]


def test_attention_with_fewer_heads_of_keys() -> None:
    def program() -> Any:
        query, key = gpu(2, 8, 128, 64, dtype=torch.bfloat16), gpu(2, 2, 256, 64, dtype=torch.bfloat16)
        return F.scaled_dot_product_attention(query, key, key, is_causal=True, enable_gqa=True)

    text = "2x8x128x64 2x2x256x64 2x2x256x64 -> 2x8x128x64 2x8x128 - - - - 2 scalar 0 | dropout_p=0 is_causal=1"
    assert shapes(program)["_scaled_dot_product_flash_attention"] == [text]


def test_norms_reductions_and_lists() -> None:
    def program() -> Any:
        x = gpu(4, 16, 32)
        return [F.layer_norm(x, (16, 32)), torch.softmax(x, -2), x.sum((-1, 0)), x.mean(), torch.cat([x, x], -1),
                torch.stack([x, x, x], -1), x.argmax(1)]  # fmt: skip

    done = shapes(program)
    assert done["native_layer_norm"] == ["4x16x32 - - -> 4x16x32 4x1x1 4x1x1 | normalized_shape=16x32"]
    assert done["_softmax"] == ["4x16x32 -> 4x16x32 | dim=1"]
    assert done["sum"] == ["4x16x32 -> 16 | dim=2x0"] and done["mean"] == ["4x16x32 -> scalar"]
    assert done["cat"] == ["[4x16x32 4x16x32] -> 4x16x64 | dim=2"]
    assert done["stack"] == ["[4x16x32 4x16x32 4x16x32] -> 4x16x32x3 | dim=3"]
    assert done["argmax"] == ["4x16x32 -> 4x32 | dim=1 from=float32 to=int64"]


def test_embedding_and_pooling() -> None:
    def program() -> Any:
        rows = nn.Embedding(1000, 64)(torch.zeros(4, 16, dtype=torch.long, device="cuda"))
        rows.backward(gpu(4, 16, 64))
        return F.max_pool2d(gpu(1, 2, 8, 8), 3, 2, 1, ceil_mode=True)

    done = shapes(program)
    assert done["embedding"] == ["1000x64 4x16 -> 4x16x64"]
    assert done["embedding_dense_backward"] == ["4x16x64 4x16 -> 1000x64"]
    assert done["max_pool2d_with_indices"] == [  # (8 + 2 - 3) / 2, up, + 1 = 5
        "1x2x8x8 -> 1x2x5x5 1x2x5x5 | kernel_size=3x3 stride=2x2 padding=1x1 dilation=1x1 ceil_mode=1"
    ]


def test_an_optimizer_over_lists() -> None:
    """Five layers with weight and bias are ten tensors of 5 x (4 x 8 + 4) = 180 elements: too many to write out."""

    def program() -> Any:
        model = nn.ModuleList(nn.Linear(8, 4) for _ in range(5)).cuda()
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        torch.optim.Adam(model.parameters(), foreach=True).step()
        few = nn.Linear(8, 4).cuda()
        for parameter in few.parameters():
            parameter.grad = torch.ones_like(parameter)
        torch.optim.SGD(few.parameters(), foreach=True).step()
        return model, few

    done = shapes(program)
    assert done["_foreach_lerp_"] == ["[10: 180] [10: 180] ->"] and done["_foreach_sqrt"] == ["[10: 180] -> [10: 180]"]
    assert done["_foreach_addcdiv_"] == ["[10: 180] [10: 180] [10: 180] ->"]
    assert "[4x8 4] [4x8 4] ->" in done["_foreach_add_"]


def test_casts_and_copies_say_types_and_layouts() -> None:
    def program() -> Any:
        x = gpu(2, 3, 4)
        half = x.bfloat16()
        x.copy_(half)
        image = gpu(1, 3, 5, 5).contiguous(memory_format=torch.channels_last)
        return [half, image, x.permute(0, 2, 1).contiguous(), x.expand(5, 2, 3, 4).clone(memory_format=torch.contiguous_format),
                x[:, :, :2].contiguous(), x.transpose(0, 1) + x.transpose(0, 1), torch.where(x > 0, x, half)]  # fmt: skip

    done = shapes(program)
    assert done["_to_copy"][0] == "2x3x4 -> 2x3x4 | from=float32 to=bfloat16"
    assert done["copy_"] == ["2x3x4 2x3x4 -> 2x3x4 | from=bfloat16 to=float32"]
    assert done["clone"] == [
        "1x3x5x5 -> 1x3x5x5 | layout=contiguous,nhwc",
        "2x4x3 -> 2x4x3 | layout=0x2x1,contiguous",
        "5x2x3x4 -> 5x2x3x4 | layout=expanded,contiguous",
        "2x3x2 -> 2x3x2 | layout=0x1x2+gaps,contiguous",
    ]
    assert done["add"] == ["3x2x4 3x2x4 -> 3x2x4 | layout=1x0x2"]
    assert done["where"][0].startswith("2x3x4 2x3x4 2x3x4 -> 2x3x4") and done["gt"] == ["2x3x4 -> 2x3x4 | from=float32 to=bool"]

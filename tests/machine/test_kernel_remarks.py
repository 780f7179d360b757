"""Is it said how a machine computes what a program asks for?"""

from __future__ import annotations

import pytest

from gpusim.machine.catalogue import load
from gpusim.machine.kernels.remarks import emulated, remarks
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import Trace

pytestmark = [pytest.mark.fast, pytest.mark.hand_worked]


def products(*dtypes: str, **meta: object) -> Trace:
    build = TraceBuilder("types")
    build.meta = dict(meta)
    for dtype in dtypes:
        build.op("aten.mm", (), (), flops=1e9, dtype=dtype)
    return build.finish()


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ("v100-sxm2-32gb", {"bf16": "fp32", "fp8": "fp16"}),
        ("t4", {"bf16": "fp32", "fp8": "fp16"}),
        ("gtx-1080-ti", {"bf16": "fp32", "fp16": "fp32", "fp8": "fp32"}),
        ("a100-sxm4-80gb", {"fp8": "bf16"}),
        ("rtx-4090", {}),
        ("h100-sxm-80gb", {}),
    ],
)
def test_types_that_a_gpu_lacks(machine: str, expected: dict[str, str]) -> None:
    assert emulated(products("bfloat16", "float16", "float8_e4m3fn", "float64"), load(machine)) == expected


def test_the_sentences() -> None:
    assert remarks(products("float32", tf32=True, cudnn_tf32=True), load("a100-sxm4-80gb"))[0] == (
        "float32 runs in TF32 in matrix products and convolutions."
    )
    assert remarks(products("float32"), load("a100-sxm4-80gb"))[0] == (
        "float32 runs in TF32 in convolutions, not in matrix products."
    )
    l4 = remarks(products("bfloat16"), load("l4"))
    assert l4[0] == "l4 does not hold its clock within 72 W under load; its rates are lower by that."
    assert l4[1] == "Large products in bf16 were not measured on l4: their rate is a share of the vendor's peak."
    assert remarks(products("bfloat16"), load("a100-sxm4-80gb")) == []  # measured there, and the program has no fp32 product

"""Does a GPU's product name, as drivers write it, mean the one profile that fits, and none where several or no profile does?"""

from __future__ import annotations

import pytest

from gpusim.machine.product import profile_of

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"), ("Tesla T4", "t4"), ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"), ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"), ("NVIDIA L4", "l4"), ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("a100-pcie-40gb", "a100-pcie-40gb"),
    ],
)  # fmt: skip
def test_one_profile_fits(product: str, name: str) -> None:
    found = profile_of(product)
    assert found is not None and found.name == name


@pytest.mark.parametrize(
    "product", ["", "NVIDIA", "NVIDIA H200", "NVIDIA A100", "NVIDIA A10G", "Tesla V100-DGXS-32GB", "AMD Radeon Graphics"]
)
def test_several_or_none_fit(product: str) -> None:
    assert profile_of(product) is None

"""What no fit of kernel times may see: shapes, families of networks, GPUs and networks.

Two sets are drawn here by hashes, before the first fit; two more are kept back by the publisher of the rows and named here, so
that a row of them that turns up by accident is refused.

    shapes     one fifth, by the dimensions that the class's row key names (a GEMM's n and k: all its m go with them)
    families   one quarter of the timm networks' name families (the name up to the first "_" or digit)
    GPUs       kept back everywhere, or in one source only
    networks   kept back by source
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

GPUS = ("h200", "gb200", "rtx-pro-6000", "rtx-4090", "l4")
"""Kept back in every source; a longer name of the same GPU (h200-sxm) counts as it."""

GPUS_OF_SOURCE = {
    "neusight": ("h100",),
    "neusight conv": ("h100", "t4"),
    "deepbench": ("t4", "titan-xp", "m40"),
}
"""Kept back in one source, visible in others."""

_KEPT_BACK = """
bat cait coat convformer convit cs cspdarknet darknetaa densenet eca ecaresnext efficientformer efficientformerv efficientnet
efficientvit ese fastvit fbnetv flexivit gcresnet gcresnext hgnetv hrnet lcnet levit mambaout maxvit nasnetalarge nest pnasnet
poolformer pvt rdnet regnetv regnetx repvit resmlp resnetblur rexnetr samvit sebotnet sedarknet selecsls senet seresnet
seresnetaa ssl swsl test tf tnt visformer xception"""
FAMILIES = frozenset(_KEPT_BACK.split())
"""Name families of timm networks that are kept back."""

NETWORKS = {
    "neusight": ("gpt3_27", "opt_13", "switch4"),
    "gavel": ("ResNet-18", "Transformer"),
    "nvidia-dle": (
        "ResNet-50", "EfficientNet", "SSD", "MoFlow", "BERT", "Transformer-XL", "DLRM", "MaskRCNN", "Jasper", "FastPitch",
    ),
    "llm-foundry": ("350m", "3b", "13b"),
}  # fmt: skip
"""Networks kept back, by source; llm-foundry keeps back all of its A100 40 GB as well."""

_SHAPES, _FAMILIES = 5, 4


def shape_held_out(what: str, key: Iterable[int]) -> bool:
    """Whether the shapes of class `what` with this row key are left out of fits: one key of five."""
    return _drawn(f"{what} {' '.join(str(int(n)) for n in key)}", _SHAPES)


def family(network: str) -> str:
    """The name family of a timm network."""
    found = re.match(r"[^_0-9]*", network)
    return found.group() if found else ""


def family_held_out(network: str) -> bool:
    """Whether the network's name family is left out of fits: drawn here, or kept back."""
    name = family(network)
    return name in FAMILIES or _drawn(f"timm {name}", _FAMILIES)


def gpu_kept_back(gpu: str, source: str) -> bool:
    """Whether no row of this GPU in this source may be fitted."""
    names = (*GPUS, *GPUS_OF_SOURCE.get(source, ()))
    return any(gpu == name or gpu.startswith(f"{name}-") for name in names)


def _drawn(text: str, of: int) -> bool:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % of == 0

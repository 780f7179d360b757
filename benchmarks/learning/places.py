"""Where policies learn, and where they are judged: no program is in both."""

from __future__ import annotations

from collections.abc import Iterator

MACHINE = "a100-pcie-40gb"
MEMORIES = ("80 %", "60 %")
TRAINED_ON = ("resnet50-train", "gpt2-small-train", "gpt2-small-train-fp32")
JUDGED_ON = ("bert-large-train", "llama-1b-train", "unet3d-train", "gpt-medium-train", "llama-1b-decode")
SEEDS = 5


def places(programs: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(program, memory)"""
    for program in programs:
        for memory in MEMORIES:
            yield program, memory

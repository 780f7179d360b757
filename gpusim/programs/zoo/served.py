"""Models of the zoo as they are served: their widths without PyTorch, for step times."""

from __future__ import annotations

from typing import Any

from gpusim.base.errors import GpusimError, suggest
from gpusim.machine.serving.shape import ServedModel
from gpusim.programs.zoo.models import ENTRIES, ModelEntry

_UNUSUAL = {
    "window": "attention within a window", "chunk": "attention within chunks", "every": "experts in some layers only",
    "dense": "layers of several kinds",
}  # fmt: skip

_LIKE: dict[str, dict[str, Any]] = {"opt": {"vocabulary": 50272}}
"""Families with as many heads of keys and values as of queries, and four widths inside a feed-forward part, not gated."""


_ALL_HEADS = {"gpt2": 50257, "bloom": 250880}
"""Families whose steps are not modelled and whose shape is: keys and values of all heads, two matrices; and their words."""


def served(name: str, weights: str = "bf16", cache: str = "bf16", *, timed: bool = True) -> ServedModel:
    """A decoder of the zoo with weights, keys and values of these types (`ServedModel`).

    timed  its steps are to be modelled, too

    Raises GpusimError for a model that is not in the zoo, and for one whose steps are not modelled, with the reason.
    """
    known = {entry.name: entry for entry in ENTRIES}
    if name not in known:
        raise GpusimError(f"the zoo has no model '{name}'", hint=suggest(name, known))
    entry = known[name]
    if entry.family in _ALL_HEADS and not timed:
        layers, width, heads = (int(dict(entry.config)[key]) for key in ("layers", "width", "heads"))
        return ServedModel(
            name, layers, width, heads, heads, width // heads, 4 * width, _ALL_HEADS[entry.family], gated=False,
            context=entry.context, weights=weights, cache=cache,
        )  # fmt: skip
    why = _unmodelled(entry)
    if why:
        names = ", ".join(e.name for e in ENTRIES if not _unmodelled(e))
        raise GpusimError(f"the steps of '{name}' have {why}, which step times do not model", hint=f"modelled are {names}")
    config: dict[str, Any] = {**_LIKE.get(entry.family, {}), **entry.config}
    config.setdefault("hidden", 4 * config["width"])
    config.setdefault("groups", config["heads"] if entry.family in _LIKE else 8)
    experts = int(config.get("experts", 0))
    return ServedModel(
        name, config["layers"], config["width"], config["heads"], config["groups"],
        config.get("size") or config["width"] // config["heads"], config["hidden"], config.get("vocabulary", 128256),
        gated=entry.family not in _LIKE, experts=experts, chosen=int(config.get("chosen", 0)),
        shared=int(config.get("shared", 0)), context=entry.context, weights=weights, cache=cache,
    )  # fmt: skip


def weight_tensors(model: ServedModel, ways: int = 1) -> tuple[int, ...]:
    """Bytes of each weight as a serving engine has it on one of so many GPUs: products that are fused are one tensor.

    Embedding and head are one where the zoo has them tied.
    """
    size = {"bf16": 2, "fp8": 1, "fp8_block": 1}
    sizes = [shape.n * shape.k * size[shape.dtype] for shape in model.matrices(ways) for _ in range(shape.layers)]
    if model.experts:
        both = model.expert_bytes(ways)
        sizes += [part for _ in range(model.layers) for part in (both // 3 * 2, both // 3)]
    tied = {entry.name: dict(entry.config).get("tied", False) for entry in ENTRIES}
    return (*sizes, *([model.head_bytes(ways)] * (1 if tied.get(model.name, False) else 2)))


def _unmodelled(entry: ModelEntry) -> str:
    """What of its steps has no times; "" when all have."""
    if entry.family not in ("llama", "moe", *_LIKE):
        return {"deepseek": "latent attention", "gpt_oss": "attention within a window, and sinks"}.get(
            entry.family, f"the layers of {entry.family}"
        )
    return next((why for key, why in _UNUSUAL.items() if entry.config.get(key)), "")

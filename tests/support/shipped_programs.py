"""The programs behind those recorded traces that a library or plain PyTorch ran, to be recorded again.

    python tests/support/shipped_programs.py gpt2-small-train new.npz           records it
    python tests/support/shipped_programs.py gpt2-small-train new.npz --shapes  the shipped trace, with the new one's shapes

Needs torch 2.13 and transformers 5.23 (`gpt-medium-*`: torch alone), the versions of the shipped traces.  A first recorder
made those; it did not note shapes, listed scalars of the host and added gradients into new tensors.  Their tensors and events
stay as they are: `with_shapes` pairs their operators with the new recording's, one by one in their order, by name, type, flops
and bytes, and refuses what does not pair.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gpusim
from gpusim.trace.build import make_trace
from gpusim.trace.files import load_trace, save_trace
from gpusim.trace.shapes import TensorList, parse, shape_text
from gpusim.trace.trace import HOST_WORK, NAME_TABLES, Trace, columns

TRACES = Path(__file__).parents[2] / "traces"

# What the first recorder listed and no GPU runs: scalars of the host, and memory that nothing is written to.
ON_HOST = {
    "aten.lift_fresh.default", "aten._local_scalar_dense.default", "aten._foreach_add_.Tensor", "aten.empty.memory_format",
    "aten.new_empty_strided.default",
}  # fmt: skip
# Of these it counted other bytes as read: of a table all rows, of a copy the target as well.
READS = {"aten.embedding.default", "aten.index.Tensor", "aten.gather.default", "aten.copy_.default"}


def train(model: Any, **inputs: Any) -> None:
    optimizer = torch.optim.Adam(model.train().parameters(), foreach=True)
    for _ in range(2):
        loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del loss


def tokens(vocabulary: int, batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, length))


def gpt2(checkpointing: bool = False) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config())
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    train(model, input_ids=tokens(50257, 8, 1024), labels=tokens(50257, 8, 1024), use_cache=False)


def bert() -> None:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    mask = torch.ones(16, 512, dtype=torch.int64)
    train(BertForMaskedLM(config), input_ids=tokens(30522, 16, 512), labels=tokens(30522, 16, 512), attention_mask=mask)


def llama() -> Any:
    """Llama 3.2 1B."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, max_position_embeddings=131072, tie_word_embeddings=True, rms_norm_eps=1e-5,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def llama_train() -> None:
    train(llama(), input_ids=tokens(128256, 2, 2048), labels=tokens(128256, 2, 2048), use_cache=False)


def llama_decode() -> None:
    model, ids, cache = llama().eval(), tokens(128256, 1, 1024), None
    with torch.no_grad():
        for phase in ("prefill", *(f"decode{i}" for i in range(32))):
            gpusim.record.phase(phase)
            out = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache, ids = out.past_key_values, out.logits.argmax(-1)
            del out


def resnet() -> None:
    from transformers import ResNetConfig, ResNetForImageClassification

    images, labels = torch.randn(64, 3, 224, 224), torch.randint(0, 1000, (64,))
    train(ResNetForImageClassification(ResNetConfig(num_labels=1000)), pixel_values=images, labels=labels)


def medium_train() -> None:
    """Two steps, of which the shipped trace has the second."""
    from plain_transformer import AdamW, Transformer, cross_entropy

    model = Transformer()
    optimizer = AdamW(model.parameters())
    ids, targets = tokens(10_000, 4, 128), tokens(10_000, 4, 128)
    for _ in range(2):
        optimizer.zero_grad()
        cross_entropy(model(ids), targets).backward()
        optimizer.step()


def medium_infer() -> None:
    """Twice, as the shipped trace is the second."""
    from plain_transformer import Transformer

    model, ids = Transformer(), tokens(10_000, 4, 256)
    with torch.no_grad():
        for phase in ("first", "second"):
            gpusim.record.phase(phase)
            model(ids)


# name -> the program, the type of its parameters, and the phase with which the shipped trace begins
PROGRAMS: dict[str, tuple[Callable[[], None], torch.dtype, str]] = {
    "gpt2-small-train": (gpt2, torch.bfloat16, "step0.fwd"),
    "gpt2-small-train-ckpt": (partial(gpt2, checkpointing=True), torch.bfloat16, "step0.fwd"),
    "gpt2-small-train-fp32": (gpt2, torch.float32, "step0.fwd"),
    "bert-large-train": (bert, torch.bfloat16, "step0.fwd"),
    "llama-1b-train": (llama_train, torch.bfloat16, "step0.fwd"),
    "llama-1b-decode": (llama_decode, torch.bfloat16, "prefill"),
    "resnet50-train": (resnet, torch.float32, "step0.fwd"),
    "gpt-medium-train": (medium_train, torch.float32, "step1.fwd"),
    "gpt-medium-infer": (medium_infer, torch.float32, "second"),
}


def record(name: str) -> Trace:
    """The program's recording by today's recorder."""
    program, dtype, _ = PROGRAMS[name]
    if not name.startswith("gpt-medium"):
        from transformers import masking_utils

        # It looks at positions for several texts in one row; values that are not there would say that there are.
        masking_utils.find_packed_sequence_indices = lambda position_ids: None
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with gpusim.record(name=name, fake=True) as recording:
            program()
    finally:
        torch.set_default_dtype(default)
    return recording.trace


def with_shapes(shipped: Trace, made: Trace, begin: str) -> Trace:
    """The shipped trace with the shapes of the operators that `made` has from the phase `begin` on.

    Raises ValueError with the first operators that do not pair.
    """
    where = np.flatnonzero(made.phase == made.phases.index(begin)).tolist()
    at = next((i for i in where if _pair(shipped, 0, made, i)), made.ops)  # behind what makes the inputs
    texts: dict[str, int] = {}
    shape = np.full(shipped.ops, -1, np.int32)
    activity, read, written = shipped.activity.copy(), shipped.read_bytes.copy(), shipped.written_bytes.copy()
    for i in range(shipped.ops):
        name = shipped.op_names[shipped.op[i]]
        if not _pair(shipped, i, made, at):
            if name not in ON_HOST:
                new = f"{_operator(made, at)} in the new recording" if at < made.ops else "not in the new recording"
                raise ValueError(f"operator {i} of {shipped.name} is {_operator(shipped, i)}, and {new}")
            activity[i] = HOST_WORK
            written[i] = 0 if name == "aten.new_empty_strided.default" else written[i]
            continue
        text = made.shapes[made.shape[at]]
        if name == "aten.cat.default" and made.op_names[made.op[at]] == "aten.stack.default":
            text = _as_joined(text)
        shape[i] = texts.setdefault(text, len(texts))
        read[i] = made.read_bytes[at] if name == "aten.copy_.default" else read[i]
        at += 1
    tables = {name: getattr(shipped, name) for name in NAME_TABLES} | {"shapes": tuple(texts)}
    found = dict(columns(shipped)) | {"shape": shape, "activity": activity, "read_bytes": read, "written_bytes": written}
    said = {"recorded": "the same program again, by tests/support/shipped_programs.py", "torch": made.meta["torch"]}
    meta = shipped.meta | {"shapes": said, "filled": {"times": made.meta["filled"]["times"]}}
    return make_trace(shipped.name, found, tables, meta)


def _pair(shipped: Trace, i: int, made: Trace, at: int) -> bool:
    """Whether operator i of the one is operator `at` of the other."""
    if at >= made.ops:
        return False
    old, new = _operator(shipped, i), _operator(made, at)
    return old[:-1] == new[:-1] and (old[-1] == new[-1] or old[0] in READS)


def _operator(trace: Trace, i: int) -> tuple[str, str, float, int, int]:
    """What one is known by; a stack is the cat that the first recorder saw."""
    name = trace.op_names[trace.op[i]].replace("aten.stack.", "aten.cat.")
    dtype = trace.dtypes[trace.dtype[i]] if trace.dtype[i] >= 0 else ""
    return name, dtype, float(trace.flops[i]), int(trace.written_bytes[i]), int(trace.read_bytes[i])


def _as_joined(text: str) -> str:
    """A stack along a new last dimension, as the cat of tensors that have it."""
    shape = parse(text)
    (joined,) = shape.inputs
    assert isinstance(joined, TensorList) and joined.tensors
    wide = tuple((*dims, 1) for dims in joined.tensors if dims is not None)
    return shape_text([replace(joined, tensors=wide)], shape.outputs, shape.parameters)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("output", type=Path)
    parser.add_argument("--shapes", action="store_true", help="write the shipped trace with the new one's shapes")
    given = parser.parse_args()
    trace = record(given.name)
    if given.shapes:
        trace = with_shapes(load_trace(TRACES / f"{given.name}.npz"), trace, PROGRAMS[given.name][2])
    save_trace(trace, given.output)


if __name__ == "__main__":
    main()

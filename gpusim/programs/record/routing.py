"""Which experts a small model chooses for real values, on the CPU: `record_routing` watches its gates.

A causal model's choices for a token do not depend on the tokens behind it, so that one pass over a text has the choices for its
prompt and for what was decoded, as if tokens had come one by one.  The guess of a layer's experts is what its gate makes of the
hidden state that the gate before reads (Eliseev and Mazur, arXiv:2312.17238).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpusim.base.errors import GpusimError
from gpusim.programs.serving.routing import ExpertRouting


def record_routing(
    model: nn.Module, gates: Sequence[nn.Linear], texts: Iterable[Tensor], *, chosen: int, prompt: int, source: str
) -> ExpertRouting:
    """The choices of `model(text[None])` for each text, (T,) token ids of which the first `prompt` are its prompt.

    gates   the linear layers whose `chosen` largest outputs name a token's experts, in the order of the layers
    source  what the file says of the model
    Raises GpusimError for gates that are not called once each in a pass, or disagree in their numbers of experts.
    """
    experts = {gate.out_features for gate in gates}
    if len(experts) != 1 or not gates:
        raise GpusimError(f"gates have {sorted(experts)} experts: one number is needed", hint="name each layer's gate once")
    read: list[tuple[nn.Module, Tensor]] = []
    handles = [gate.register_forward_pre_hook(lambda module, given: read.append((module, given[0]))) for gate in gates]
    choices, guesses, sequence, decoded = [], [], [], []
    try:
        for number, text in enumerate(texts):
            read.clear()
            with torch.no_grad():
                model(text[None])
            if [module for module, _ in read] != list(gates):
                raise GpusimError(f"a pass has called {len(read)} gates, not each of the {len(gates)} once, in their order")
            hidden = [state.reshape(-1, state.shape[-1]) for _, state in read]
            if len(hidden[0]) != len(text):
                raise GpusimError(f"a gate has read {len(hidden[0])} tokens of a text of {len(text)}")
            choices.append(np.stack([_best(gate, state, chosen) for gate, state in zip(gates, hidden, strict=True)], 1))
            guesses.append(np.stack([_best(gate, state, chosen) for gate, state in zip(gates[1:], hidden, strict=False)], 1))
            sequence.append(np.full(len(text), number, np.int32))
            decoded.append(np.arange(len(text)) >= prompt)
    finally:
        for handle in handles:
            handle.remove()
    return ExpertRouting(
        experts.pop(), (np.concatenate(choices),), (np.concatenate(sequence),), (np.concatenate(decoded),),
        np.concatenate(guesses) if len(gates) > 1 else None, source, recorded=True,
    )  # fmt: skip


def _best(gate: nn.Linear, state: Tensor, chosen: int) -> Any:
    with torch.no_grad():
        return gate.forward(state).topk(chosen, dim=-1).indices.numpy().astype(np.int16)

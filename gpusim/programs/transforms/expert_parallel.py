"""Expert parallelism: the experts of each layer are divided over ranks, and tokens travel to theirs and back."""

from __future__ import annotations

import numpy as np

from gpusim.programs.transforms.expert_groups import (
    EXPERT,
    ExpertGroups,
    all_to_alls,
    expert_groups,
    expert_numbers,
    own_experts,
)
from gpusim.programs.transforms.parts import drop_part
from gpusim.trace.edit import Edit, issued
from gpusim.trace.roles import phase_kinds
from gpusim.trace.trace import I64, Trace


def expert_parallel(trace: Trace, ranks: int = 8) -> Trace:
    """One of `ranks` GPUs, each with a batch like the recorded one and with its part of the experts of each layer.

    Every rank sends each expert its tokens (all-to-all) and gets back what the expert made of them; so it does in backward.
    Its own experts work on the tokens of all ranks: as many in all as before, since the recording routes evenly.  Routers, and
    what is not an expert, stay whole.  Experts are modules like `layers.3.mlp.experts.5`.
    Source: Lepikhin et al., GShard, ICLR 2021, section 2.2; Megatron-LM, megatron/core/transformer/moe/token_dispatcher.py.
    """
    own = own_experts(trace, ranks)
    groups = expert_groups(trace, *_experts(trace), own)
    edit = Edit(trace)
    gone = drop_part(edit, phase_kinds(trace)[issued(trace)].astype(np.int64), groups.elsewhere)
    _grow(edit, groups, ranks)
    all_to_alls(edit, groups, gone, ranks)
    return edit.finish()


def _experts(trace: Trace) -> tuple[I64, I64]:
    """(O,) the number of each operator's expert, and of the layer that it is of; -1 for none."""
    names = [match[1] if (match := EXPERT.match(path)) else "" for path in trace.modules]
    known = {name: i for i, name in enumerate(dict.fromkeys(names))}
    layer = np.array([known[name] for name in names] + [-1], np.int64)
    return expert_numbers(trace)[trace.module], layer[trace.module]


def _grow(edit: Edit, groups: ExpertGroups, ranks: int) -> None:
    """The rank's own experts work on the tokens of all ranks."""
    trace = edit.trace
    edit["size"][groups.inner] = trace.size[groups.inner] * ranks
    grown = groups.inner | groups.into | groups.out
    touches = np.zeros(trace.ops, bool)
    for side, column in (("read", "read_bytes"), ("write", "written_bytes")):
        start, ids = getattr(trace, f"{side}_start"), getattr(trace, f"{side}_id")
        of = np.repeat(np.arange(trace.ops), np.diff(start))
        before = np.bincount(of, trace.size[ids].astype(float), trace.ops)
        after = np.bincount(of, trace.size[ids] * np.where(grown[ids], ranks, 1.0), trace.ops)
        share = np.divide(after, before, out=np.ones(trace.ops), where=before > 0)
        edit[column][groups.own] = (getattr(trace, column) * share)[groups.own]
        touches[of[grown[ids]]] = True
    edit["flops"][groups.own & touches] *= ranks

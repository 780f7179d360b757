"""Data parallelism: every rank holds all and trains on a batch of its own; gradients are summed over the ranks."""

from __future__ import annotations

from gpusim.programs.transforms.expert_groups import expert_numbers
from gpusim.programs.transforms.gradients import gradients, reduce
from gpusim.programs.transforms.parameters import side_stream
from gpusim.trace.edit import Edit
from gpusim.trace.trace import Trace


def data_parallel(
    trace: Trace, ranks: int = 8, bucket: str = "25 MiB", once: bool = True, reduced: str = "made", expert: int = 1
) -> Trace:
    """One of `ranks` GPUs, each with a batch like the recorded one.

    bucket   gradients are reduced when so many bytes are complete, while backward goes on
    once     of several backward passes before an optimizer step only the last one's are reduced, which are the sums; no: those
             of each, as without `no_sync`
    reduced  type in which gradients are exchanged: fp32, bf16, fp16, or made: as it is
    expert   so many of the ranks have different experts (`expert_parallel`), whose gradients are summed over the others, in
             buckets of their own

    A ring's all-reduce sends 2 (n - 1) / n of the bytes.  The buckets of the real one are tensors of their own, which are not
    modelled.  Source: Li et al., PyTorch Distributed: Experiences on accelerating data parallel training, VLDB 2020.
    """
    edit, stream = Edit(trace), side_stream(trace)
    of_experts = expert_numbers(trace) >= 0
    for group, count, modules in (
        ("data", ranks, ~of_experts if expert > 1 else None), ("expert_data", ranks // expert if expert > 1 else 1, of_experts),
    ):  # fmt: skip
        if count > 1:
            g = gradients(trace, bucket, once, reduced, modules)
            reduce(edit, g, "gpusim::all_reduce", 2 * (count - 1) / count, stream, group)
    return edit.finish()

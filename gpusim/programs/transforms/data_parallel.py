"""Data parallelism: every rank holds all and trains on a batch of its own; gradients are summed over the ranks."""

from __future__ import annotations

from gpusim.programs.transforms.gradients import gradients, reduce
from gpusim.programs.transforms.parameters import side_stream
from gpusim.trace.edit import Edit
from gpusim.trace.trace import Trace


def data_parallel(trace: Trace, ranks: int = 8, bucket: str = "25 MiB", once: bool = True, reduced: str = "made") -> Trace:
    """One of `ranks` GPUs, each with a batch like the recorded one.

    bucket   gradients are reduced when so many bytes are complete, while backward goes on
    once     of several backward passes before an optimizer step only the last one's are reduced, which are the sums; no: those
             of each, as without `no_sync`
    reduced  type in which gradients are exchanged: fp32, bf16, fp16, or made: as it is

    A ring's all-reduce sends 2 (n - 1) / n of the bytes.  The buckets of the real one are tensors of their own, which are not
    modelled.  Source: Li et al., PyTorch Distributed: Experiences on accelerating data parallel training, VLDB 2020.
    """
    edit = Edit(trace)
    g = gradients(trace, bucket, once, reduced)
    reduce(edit, g, "gpusim::all_reduce", 2 * (ranks - 1) / ranks, side_stream(trace))
    return edit.finish()

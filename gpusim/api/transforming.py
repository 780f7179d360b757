"""The same program run another way, from Python: `gpusim transform`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.base.errors import TraceError
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.programs.transforms.registry import Chain, apply

if TYPE_CHECKING:
    from gpusim.trace.trace import Trace


def transform(trace: Trace | str | Path, chain: Chain, own: Registry = SHIPPED) -> Trace:
    """The trace after these transforms, checked; what was done stands in `meta["transforms"]`.

    trace   a trace, a shipped one by name, or a file
    chain   "precision(to=bf16) | checkpointing(every=2)", a list of such, or "none"
    own     a user's own transforms

    Raises GpusimError for what does not exist or comes too late, TraceError for a trace that lacks what a transform needs.

    >>> import gpusim
    >>> gpusim.transform("gpt2-small-train", "checkpointing").ops
    2736
    """
    from gpusim.api.inputs import load_trace  # numba, which naming the function does without
    from gpusim.trace.trace import Trace

    program = load_trace(trace) if isinstance(trace, str | Path) else trace
    if not isinstance(program, Trace):
        raise TraceError(f"{trace} is no trace of one GPU", hint="transforms change recorded programs")
    return apply(program, chain, own)

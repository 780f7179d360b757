"""The first experiment on a trace, as commented YAML: axes that the trace can answer, and no others."""

from __future__ import annotations

import json
from collections.abc import Sequence

from gpusim.trace.answers import Answers, unanswered

MACHINE = "a100-pcie-40gb"

_HEAD = """# {title}
# Every list is an axis of the grid.  `gpusim run FILE --set KEY=VALUE` changes a key, `gpusim run FILE --dry-run` counts runs.
question: {question}
trace: {trace}
profile: {profile}  # `gpusim profiles` lists machines; "NAME(link.h2d=50 GB/s)" changes a number of one
"""
_MEMORY = """memory: [100 %, 80 %, 60 %]  # of the most bytes alive at once; or sizes, as 24 GiB; or capacity: all there is
"""
_MOVING = """policies:                # `gpusim policies` lists them; `gpusim policies NAME` explains one
  place: pytorch         # the allocator
  evict: [lru, belady]   # what leaves when memory is short; belady reads the future
  prefetch: [none, next_k]  # what comes back before it is needed
"""
_BELOW = """# tiers: host > nvme     # what lies below the device's memory
# grain: 2 MiB           # in which pieces tensors move; absent: whole
# transform: [none, checkpointing]  # the same program run another way; `gpusim transforms` lists them
"""
_PLACING = """policies:                # `gpusim policies` lists them; `gpusim policies NAME` explains one
  place: [pytorch, best_fit, bfc]  # the allocator
  evict: none            # {why}
"""
_UNIFIED = """unified: [driver, "driver(prefetch=none)"]  # page faults as the driver serves them: docs/unified_memory.md
"""
_TAIL = """options: {log: true}     # keep event logs: `gpusim check FOLDER` recomputes the results from them
"""


def recorded(trace: str, machines: Sequence[str], can: Answers) -> str:
    """The experiment on a recorded trace; `can` is what it answers."""
    if can.accesses:
        axes = _MEMORY + _MOVING + (_BELOW if can.flops else "\n".join(_BELOW.splitlines()[:2]) + "\n")
        question = f"What does {_short(trace)} lose as memory shrinks, and which policies lose least?"
    else:
        axes = _PLACING.format(why="the trace does not say which tensors operators use: nothing can be evicted")
        question = f"Which allocator holds least memory for {_short(trace)}?"
    said = unanswered(_short(trace), can.missing)
    return _head(trace, machines, question) + (f"# {said}.\n" if said else "") + axes + _TAIL


def managed(trace: str, machines: Sequence[str]) -> str:
    """The experiment on a managed program."""
    question = f"What does oversubscription cost {_short(trace)} under unified memory, and what does the prefetcher save?"
    return _head(trace, machines, question) + _MEMORY.replace("of the most bytes alive at once", "of its footprint") + (
        _UNIFIED + _TAIL
    )


def _head(trace: str, machines: Sequence[str], question: str) -> str:
    words = [json.dumps(word, ensure_ascii=False) for word in machines]
    profile = words[0] if len(words) == 1 else f"[{', '.join(words)}]"
    return _HEAD.format(title=question, question=json.dumps(question, ensure_ascii=False),
                        trace=json.dumps(trace, ensure_ascii=False), profile=profile)  # fmt: skip


def _short(trace: str) -> str:
    return trace.rpartition("/")[2].rpartition(".npz")[0] or trace.rpartition("/")[2]

"""A process that leaves a GPU and comes back: what it costs by vLLM's sleep levels and cuda-checkpoint."""

from __future__ import annotations

from typing import Any

from gpusim.api.words import spec_words
from gpusim.studies.suspend.answer import SuspendAnswer, SuspendSpec, answer


def suspend(model: str, machine: str, **words: Any) -> SuspendAnswer:
    """What `gpusim suspend` prints.

    model, machine  qwen3-8b, a profile
    words   the fields of `studies.suspend.answer.SuspendSpec`: how, cycles, memory, weights, gpus, buffers, files, pin, drain

    Raises GpusimError, each with its reason.

    >>> import gpusim
    >>> found = gpusim.suspend("qwen3-8b", "a100-sxm4-80gb", how=("sleep(level=1)", "sleep(level=2)"))
    >>> [(cycles, way.name) for cycles, way in found.changes()]
    [(1, 'sleep(level=2)'), (4, 'sleep(level=1)')]
    """
    words = spec_words(words, SuspendSpec, "a suspend has")
    how = words.get("how")
    return answer(SuspendSpec(model=model, machine=machine, **words | ({"how": (how,)} if isinstance(how, str) else {})))

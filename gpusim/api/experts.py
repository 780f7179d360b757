"""A model whose experts do not fit the GPU: time per token, hits, bytes over the link, what limits it."""

from __future__ import annotations

from typing import Any

from gpusim.api.words import spec_words
from gpusim.base.yaml import find
from gpusim.studies.experts.questions import ExpertQuestion, points, read
from gpusim.studies.experts.setup import ExpertAnswer, ExpertSpec, answered
from gpusim.studies.experts.setup import like as words_of
from gpusim.studies.questions import QuestionPoint


def experts(model: str, machine: str, *, like: str = "", **words: Any) -> ExpertAnswer:
    """What `gpusim experts` prints.

    model, machine  mixtral-8x7b, a profile
    like    a system whose words are taken where `words` has none: mixtral-offloading, moe-infinity, pre-gated, fiddler, ...
    words   the fields of `studies.experts.setup.ExpertSpec`: routing, batch, cache, evict, start, guess, cpu, bits, swaps, ...;
            evict may also be a policy of your own, decorated with `gpusim.policy.evict`

    Raises GpusimError, each with its reason.

    >>> import gpusim
    >>> found = gpusim.experts("mixtral-8x7b", "rtx-4090", bits=4, cache="50 %", routing="drawn(sequences=1, output=16)")
    >>> 0 < found.metrics()["hit_share"] < 1
    True
    """
    words = spec_words(words, ExpertSpec, "a cache of experts has", "evict")
    return answered(ExpertSpec(**words_of(like) | {"model": model, "machine": machine} | words))


def expert_question(word: str) -> tuple[ExpertQuestion, list[QuestionPoint[ExpertAnswer]]]:
    """The question of a file, or of one that ships, and all combinations of its axes.

    Raises ConfigError with file:line:col.
    """
    asked = read(find.find("expert question", word, None))
    return asked, points(asked)

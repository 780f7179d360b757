"""Many models on few GPUs: first tokens of requests that wait for a load and of those that do not, loads, GPUs."""

from __future__ import annotations

from typing import Any

from gpusim.api.words import spec_words
from gpusim.base.yaml import find
from gpusim.studies.models.answer import ModelsAnswer
from gpusim.studies.models.questions import ModelsQuestion, points, read
from gpusim.studies.models.setup import ModelsSpec, answered
from gpusim.studies.questions import QuestionPoint


def models(models: str, machine: str, requests: str = "", **words: Any) -> ModelsAnswer:
    """What `gpusim models` prints.

    models, machine  llama-8b x 16, llama-70b(tensor=4) x 2; 4 x l40s
    requests  a file of arrivals, or drawn(prompt=512, output=128, requests=1000)
    words     the fields of `studies.models.setup.ModelsSpec`: rate, skew, loader, pool, evict, keep, placement, servers, ...;
              evict may also be a policy of your own, decorated with `gpusim.policy.evict`

    Raises GpusimError, each with its reason.

    >>> import gpusim
    >>> found = gpusim.models("llama-8b x 4", "l40s", "drawn(requests=50)", rate=0.2)
    >>> 0 < found.metrics()["cold_share"] <= 1
    True
    """
    words = spec_words(words, ModelsSpec, "many models have", "evict")
    words |= {"models": models, "machine": machine} | ({"requests": requests} if requests else {})
    return answered(ModelsSpec(**words))


def models_question(word: str) -> tuple[ModelsQuestion, list[QuestionPoint[ModelsAnswer]]]:
    """The question of a file, or of one that ships, and all combinations of its axes.

    Raises ConfigError with file:line:col.
    """
    asked = read(find.find("question of many models", word, None))
    return asked, points(asked)

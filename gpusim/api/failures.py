"""A long training run on machines that fail: how long it takes, and how often to save it."""

from __future__ import annotations

from typing import Any

from gpusim.api.words import spec_words
from gpusim.base.errors import GpusimError
from gpusim.base.yaml import find as find_file
from gpusim.studies.failures.answer import CLOSE, RUNS, LongRunAnswer, answer, prepare
from gpusim.studies.failures.questions import TrainingQuestion, points, read
from gpusim.studies.failures.setup import LongRunSpec
from gpusim.studies.questions import QuestionPoint


def endure(
    machine: str, state: str, *, runs: int = RUNS, close: float = CLOSE, seed: int = 0, find: str = "", **words: Any
) -> LongRunAnswer:
    """What `gpusim failures` prints.

    machine  a whole machine: "128 x hgx-h100"
    state    what a checkpoint saves: a model of the zoo (14 bytes a parameter), or a size
    runs, close  so many runs at a time, until the mean time is known to this share of itself 99 times out of 100
    find     "interval": the best of several around Daly's
    words    the fields of `studies.failures.setup.LongRunSpec`: work, failures, checkpoint, every, storage, spare, least, ...;
             every may also be a policy of your own, decorated with `gpusim.policy.checkpoint`

    Raises GpusimError, each with its reason.

    >>> import gpusim
    >>> found = gpusim.endure("16 x hgx-h100", "llama-70b", storage="20 GB/s", work="10 d", runs=20, close=1.0)
    >>> 0.9 < found.values()["effective"] < 1.0
    True
    """
    if find not in ("", "interval"):
        raise GpusimError(f"'{find}' is not searched for", hint="interval")
    if runs < 1:
        raise GpusimError(f"{runs} runs tell nothing", hint="1 at least")
    words = spec_words(words, LongRunSpec, "a long run has", "every")
    run = prepare(LongRunSpec(machine=machine, state=state, **words))
    return answer(run, runs=runs, close=close, seed=seed, search=find == "interval")


def training_question(word: str) -> tuple[TrainingQuestion, list[QuestionPoint[LongRunAnswer]]]:
    """The question of a file, or of one that ships, and all combinations of its axes.

    Raises ConfigError with file:line:col.
    """
    asked = read(find_file.find("training question", word, None))
    return asked, points(asked)

"""Jobs that arrive at a cluster: when they end, by scheduler, and how many GPUs they need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpusim.api.words import spec_words
from gpusim.base.yaml import find
from gpusim.policies.registry import entry_of
from gpusim.studies.cluster.answer import ClusterAnswer, answer
from gpusim.studies.cluster.questions import ClusterQuestion, read
from gpusim.studies.cluster.setup import ClusterStudySpec, prepare


def cluster(gpus: str, arrivals: str, schedulers: Any = ("first_come",), *, goal: str = "", **words: Any) -> ClusterAnswer:
    """What `gpusim cluster` prints.

    gpus  nodes: "16 x 8 v100", "8 v100, 4 x 4 p100", a table of nodes; "? x 8 v100": so many that the goal is kept
    arrivals  a trace (.trace, .csv), or drawn: "poisson(jobs=1000, rate=20)"
    schedulers  policies of kind jobs by name, or of your own, decorated with `gpusim.policy.jobs`
    goal  "wait p90 1 h", "jct mean 5 h", "missed 0.01"
    words  the fields of `studies.cluster.setup.ClusterStudySpec`: rates, round, restart, seed, use; failures, every, save,
           detect, repair, spare

    Raises GpusimError, each with its reason.

    >>> import gpusim
    >>> found = gpusim.cluster("2 x 8 v100", "poisson(jobs=100, rate=5)", ["first_come", "shortest_first"])
    >>> len(found.values()["schedulers"])
    2
    """
    words = spec_words(words, ClusterStudySpec, "a cluster has")
    named = [schedulers] if isinstance(schedulers, str) or not isinstance(schedulers, Sequence) else list(schedulers)
    own = [each for each in named if entry_of(each) is not None]
    words |= {"use": (*words.get("use", ()), *own), "schedulers": tuple(named)}
    return answer(prepare(ClusterStudySpec(gpus=gpus, arrivals=arrivals, **words)), goal)


def cluster_question(word: str, use: tuple[str, ...] = ()) -> tuple[ClusterQuestion, ClusterAnswer]:
    """The question of a file, or of one that ships, and its answer.  Raises GpusimError."""
    asked, spec = read(find.find("cluster question", word, None), use)
    return asked, answer(prepare(spec), asked.goal)

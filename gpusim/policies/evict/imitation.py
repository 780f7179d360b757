from __future__ import annotations

from gpusim.policies import decorators as policy
from gpusim.policies.evict.parts.imitation_weights import WEIGHTS
from gpusim.policies.evict.parts.log_facts import log_facts
from gpusim.policies.network import answer

LIMITS = {"seed": 4}
TRAINED = ("resnet50-train", "gpt2-small-train", "gpt2-small-train-fp32")


@policy.evict
def imitation(size, last_use, uses, arrived, born, now, stage, dirty, seed=0):  # type: ignore[no-untyped-def]
    """What a network of 8 hidden units takes for Belady's choice leaves first.

    seed  which of five trainings decides

    Learned by benchmarks/learning/imitate.py with 80 % and 60 % of the memory.

    Source: imitation of Belady, E. Liu et al., "An imitation learning approach for cache replacement", ICML 2020, there with an
    LSTM over addresses.
    """
    return -answer(WEIGHTS, int(seed), log_facts(size, last_use, uses, arrived, born, now, stage, dirty))

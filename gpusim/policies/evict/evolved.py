from __future__ import annotations

from gpusim.policies import decorators as policy
from gpusim.policies.evict.parts.evolved_weights import WEIGHTS
from gpusim.policies.evict.parts.log_facts import log_facts

LIMITS = {"seed": 4}
TRAINED = ("resnet50-train", "gpt2-small-train", "gpt2-small-train-fp32")


@policy.evict
def evolved(size, last_use, uses, arrived, born, now, stage, dirty, seed=0):  # type: ignore[no-untyped-def]
    """The lowest weighted sum of facts in logarithms leaves first; the weights are those under which runs took least time.

    seed  which of five trainings decides

    Learned by benchmarks/learning/evolve.py with 80 % and 60 % of the memory.

    Source: the cross-entropy method, R. Rubinstein, "The cross-entropy method for combinatorial and continuous optimization",
    Methodology and Computing in Applied Probability 1, 1999.
    """
    facts = log_facts(size, last_use, uses, arrived, born, now, stage, dirty)
    sum_ = 0.0
    for i in range(WEIGHTS.shape[1]):
        sum_ += WEIGHTS[int(seed), i] * facts[i]
    return sum_

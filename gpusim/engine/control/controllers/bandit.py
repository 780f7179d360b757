import math

import numpy as np

from gpusim.engine.control.arms import ARMS
from gpusim.engine.control.bandit_prior import PRIOR
from gpusim.engine.control.controller import Controller

EQUAL = 0.01  # times of one choice that differ by less say that nothing has changed
FLAT = 0.1    # spread where nothing has been learned


def bandit(seed: int = 0, learned: bool = True) -> Controller:
    """Tune the marks of early release and the depth of prefetching from round to round: Thompson sampling.

    seed     of its draws
    learned  begin with what other programs have taught (resnet50-train, gpt2-small-train and gpt2-small-train-fp32 at 80 % and
             60 % of the memory, by benchmarks/learning/prior.py); no: with nothing

    Of each pair of a mark and a depth it believes how long a round takes, as a normal distribution of the logarithm; it draws
    from each and takes the shortest.  When a pair takes another time than before, the memory has changed: it begins anew.

    Source: W. R. Thompson, "On the likelihood that one unknown probability exceeds another in view of the evidence of two
    samples", Biometrika 25, 1933.
    """
    rng = np.random.default_rng(seed)
    mean, spread = PRIOR if learned else (np.zeros(len(ARMS)), np.full(len(ARMS), FLAT))
    known: dict[int, float] = {}  # pair -> logarithm of the time that it took
    level = 0.0                   # of times here, over what has been learned
    while True:
        drawn = level + mean + spread * rng.standard_normal(len(ARMS))
        for arm, took in known.items():
            drawn[arm] = took
        arm = int(np.argmin(drawn))
        seen = yield ARMS[arm]
        took = math.log(max(1, seen.time_ns)) if seen.finished else math.inf
        if arm in known and not abs(took - known[arm]) < EQUAL:
            known.clear()
        known[arm] = took
        finite = [took - mean[a] for a, took in known.items() if took < math.inf]
        level = sum(finite) / len(finite) if finite else level

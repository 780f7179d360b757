"""Does the referee refuse faults that no sum tells, and name something at each?

`python tests/support/consistent_faults.py 0 100` tries all kinds in a hundred runs, with `shipped` in shipped experiments.
"""

from __future__ import annotations

import pytest
from consistent_faults import KINDS, score
from faultless_runs import run

pytestmark = pytest.mark.conformance

RUNS = (0, 3, 5, 12)
NOT_IN_THE_LOG = {  # no sentence is asked for
    "block on free addresses",  # which of the free addresses a block takes is the place policy's
    "bound of another run edited",  # a folder's references have them, and nothing else
    "metric of free blocks edited", "oracle hidden",  # they are not recomputed
}  # fmt: skip


@pytest.mark.slow
def test_faults_are_refused_and_named() -> None:
    scores, alarms = score(((seed, run(seed)) for seed in RUNS), [name for name in KINDS if name not in NOT_IN_THE_LOG])
    assert alarms == []
    assert {name: of.missed for name, of in scores.items() if of.found < of.tried} == {}
    tried, named = (sum(getattr(of, word) for of in scores.values()) for word in ("tried", "named"))
    assert tried > 150 and named >= 0.99 * tried
    assert sum(of.tried > 0 for of in scores.values()) >= 40

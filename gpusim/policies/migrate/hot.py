from __future__ import annotations

from gpusim.policies import decorators as policy


@policy.migrate
def hot(here, accesses, idle, promote=256.0, demote=1e9):  # type: ignore[no-untyped-def]
    """A block comes once the GPU has read it `promote` times where it is, and leaves when it has not been used for `demote` ns.

    Source: the rule of access counters in the open driver's uvm_gpu_access_counters.c, which promotes at 256 accesses; demotion
    by age as in Linux's memory tiering (mm/vmscan.c).
    """
    return idle < demote if here else accesses >= promote

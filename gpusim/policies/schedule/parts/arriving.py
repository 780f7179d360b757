"""A request comes: what no engine takes, and what all note of a request that waits or is refused."""

from __future__ import annotations

from gpusim.base.compiled import kernel
from gpusim.policies.schedule.parts.tables import (
    EMPTY,
    LONG_OUTPUT,
    LONG_PROMPT,
    N_WAITING,
    NO_OUTPUT,
    REFUSED,
    REJECTED,
    WAITING,
    RequestTable,
    StepTable,
)


@kernel
def misfit(requests: RequestTable, r: int, most: int, cuts: bool) -> int:
    """Why the request is no sequence of at most so many tokens; 0: it is.

    cuts  an output that is too long is cut
    """
    prompt = requests.prompt[r]
    if prompt < 1:
        return EMPTY
    if requests.output[r] < 1:
        return NO_OUTPUT
    if prompt >= most:
        return LONG_PROMPT
    return LONG_OUTPUT if prompt + requests.output[r] > most and not cuts else 0


@kernel
def note_arrival(step: StepTable, r: int, reason: int) -> int:
    """The request is refused for this reason, or waits where it is 0."""
    if reason:
        step.status[r] = REJECTED
        step.word[REFUSED] += 1
    else:
        step.status[r] = WAITING
        step.word[N_WAITING] += 1
    return reason

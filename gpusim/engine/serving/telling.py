"""What the loop of a service tells schedulers and the log."""

from __future__ import annotations

from gpusim.base.compiled import function_at, kernel
from gpusim.engine.serving.tables import DECODE, HAS_COME, Service
from gpusim.policies.schedule.parts.running import ScheduleVerbs
from gpusim.policies.schedule.parts.tables import VERB, requests_at
from gpusim.policies.verb_table import signatures

as_verb = function_at(VERB)
V_ARRIVE, V_COMPOSE, V_OVER, V_LEAVE, V_LOADED = range(len(signatures(ScheduleVerbs)))  # rows of `Service.verbs`


@kernel
def call(s: Service, e: int, verb: int, r: int) -> int:
    """The scheduler of engine e is told, or asked."""
    at = s.verbs[e, verb]
    answer: int = as_verb(at[0], at[1])(s.engine[e].own, r, s.clock[0].now)
    return answer


@kernel
def note(s: Service, kind: int, request: int, engine: int, value: int) -> None:
    """A record of the log; there is room for it."""
    c = s.course[0]
    if c.log_on:
        row = s.log[c.logged]
        c.logged += 1
        row.t, row.kind, row.request, row.engine, row.value = s.clock[0].now, kind, request, engine, value


@kernel
def has_come(s: Service, r: int) -> None:
    """All that request r waited for is on the device."""
    x = s.outcome[r]
    e = x.engine
    x.waited += s.clock[0].now - x.asked
    call(s, e, V_LOADED, r)
    s.engine[e].woken = 1
    note(s, HAS_COME, r, e, 0)


@kernel
def owed_for(s: Service, r: int) -> int:
    """Tokens that the engine of a request owes for it."""
    x = s.outcome[r]
    whole = x.made == 0 and s.engine[x.engine].role != DECODE
    return int(requests_at(s.requests[0]).prompt[r]) + 1 if whole else 1

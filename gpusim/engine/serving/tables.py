"""The tables of a service: engines that serve the same requests on one clock, over links that they share.

    requests ──arrive──▶ an engine's scheduler ──compose──▶ a step under way ──over──▶ tokens, ended requests
                              │  ▲
                              ▼  │ loaded
                         flows on links: keys and values between memories

Times are int64 ns, sizes int64 bytes, rates float64 bytes/ns.  What flows does so as on an island: `clock`, `fluid`, `link`,
`route` and `flow` are those of `engine.state`.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numba import types

from gpusim.base.compiled import by_pointer
from gpusim.base.tables import record, signature
from gpusim.engine.state import CLOCK, FLOW, FLUID, LINK, NEVER, TRAFFIC

i4, i8, f8 = np.int32, np.int64, np.float64

# Why `serve_until` came back.
REACHED, FINISHED, ASK, LOG_FULL, STUCK, STOPPED = range(6)

# What a step costs: the time of the step whose composition stands in the StepTable at an address, ns, at least 1.
COST = types.int64(types.int64, types.int64)

# Parts of a step that need something of links: products, attention and other kernels of the device's memory, collectives of the
# wires between devices.  What they need: (its tables, StepTable, ns and bytes/ns of each part) -> 0.
PRODUCTS, ATTENTION, OTHER, COLLECTIVES = range(4)
PARTS = 4
NEEDS = types.int64(types.int64, types.int64, types.float64[::1])
SLOWED = NEVER - 1  # of `ends`: the step ends when its flow does

# How a request finds its engine.
GIVEN, ROUND_ROBIN, LEAST_BUSY, LEAST_TOKENS, MIXED_POOL = range(5)

# What an engine computes of a request: all; its prompt, which it hands over; what comes after a prompt that it is handed.
WHOLE, PREFILL, DECODE = range(3)

ENGINE = record(
    [("role", i8),
     ("own", i8), ("step", i8),   # addresses of its scheduler's tables and of its StepTable
     ("cost", i8),                # address of the tables of its step times
     ("ends", i8),                # of the step under way, NEVER: there is none, or it does not run
     ("began", i8), ("took", i8),  # when it began, and what it takes if nothing slows it down
     ("known", i8),               # what it needs stands in `needs`
     ("slowed", i8),              # ns by which copies have made steps longer
     ("ahead", i8),               # its scheduler composes a step while the one before is under way
     ("tried", i8),               # it has been asked for that one
     ("next_takes", i8), ("next_rows", i8),  # ns and requests of that one, 0: there is none
     ("each", i8),                # blocks of its device in a chunk of the tiers
     ("swap_latency", i8), ("swap_out", f8), ("swap_in", f8),  # ns of a step's swaps, and of each block
     ("owed", i8),                # ns of swaps that its next step begins with
     ("wakes", i8),               # ns: its scheduler is asked again though nothing has happened, NEVER: it is not
     ("woken", i8),               # something has changed since its scheduler last found nothing to run
     ("under_way", i8),           # requests that it has and that have not ended
     ("owes", i8),                # tokens of their prompts that it has not computed, and one for each of them
     ("working", i8),             # it has a step under way
     ("service", i8),             # whose requests it takes
     ("device", i8),              # GPUs that it shares with engines of other services, -1: it has its own
     ("slice", i8),               # ns of a turn there
     ("left", f8), ("part", f8), ("since", i8),  # ns of its step, and the part of the device that it has had since when
     ("fresh", i8),               # its step has not begun to run
     ("steps", i8), ("busy", i8),  # so far; ns of its steps, as they take alone
     ("prompt_tokens", i8), ("output_tokens", i8)]  # computed, and made, so far
)  # fmt: skip

# GPUs that engines of several services have together.
ALONE, BY_TURNS, AT_ONCE = range(3)
DEVICE = record(
    [("mode", i8),
     ("changed", i8),               # an engine has a step that it had not, or none any more; or a turn is over
     ("turn", i8), ("next", i8),    # place in the runlist, -1 before the first; ns: when the turn, or the switch, is over
     ("switching", i8),
     ("fixed", f8), ("state", f8),  # ns of a switch, and to save or restore what a step has there
     ("switches", i8), ("switched", i8)]  # so far; ns
)  # fmt: skip
# A link that copies share with the steps of an engine.
SHARED = record([("engine", i8), ("link", i8)])

# Where the service stands.
COURSE = record(
    [("arrived", i8), ("left", i8),   # of the requests, and of `leaving`, that have
     ("at_once", i8),                 # clients that each wait for an answer before they send again; 0: any number
     ("in_flight", i8),               # requests that have arrived and not ended
     ("routing", i8), ("split", i8),  # split: prompts are computed by engines of their own
     ("asking", i8),                  # 1 + the engine whose scheduler is to be heard in Python, 0: none
     ("shares", i8),                  # copies and steps share links
     ("log_on", i8), ("logged", i8),
     ("rows", i8), ("width", i8),     # of the samples: of each engine; ns of a row
     ("sampled", i8)]                 # ns: up to when they speak
)  # fmt: skip

# What became of a request; times in ns, NEVER where it did not happen.
OUTCOME = record(
    [("engine", i8), ("came", i8), ("admitted", i8), ("first", i8), ("last", i8), ("ended", i8), ("made", i8), ("refused", i8),
     ("sent_for", i8),   # tokens that came from tiers below
     ("handed", i8),     # tokens that came from the engine that computed the prompt
     ("asked", i8), ("waited", i8),  # since when it waits for such tokens, and ns in which it did
     ("service", i8), ("nth", i8),  # whose it is, and its number there
     ("prefilled", i8),  # the engine that computed the prompt, -1: it is the same
     ("stopped", i8)]    # it has been preempted and does not run again yet
)  # fmt: skip

# Sums over the time of a row: of each, its value times ns, but tokens as they are.
SAMPLE = record(
    [("blocks", f8), ("running", f8), ("waiting", f8), ("prompt_tokens", i8), ("output_tokens", i8), ("preemptions", i8)]
)  # fmt: skip

# Records of the log: what happened to a request of an engine, and a number.
(
    ARRIVED, REJECTED, ADMITTED, FIRST_TOKEN, PREEMPTED, SENT_FOR, HAS_COME, ENDED, WENT_AWAY,
    STEP,  # `request` rows of it, `value` ns
    RESUMED,
    LATER,  # the step that ends took `value` ns longer, because of copies
) = range(12)  # fmt: skip
SERVED = record([("t", i8), ("kind", i8), ("request", i8), ("engine", i8), ("value", i8)])

PER_OCTAVE, OCTAVES = 64, 48  # classes of times between tokens: from 2**k ns on, 64 of each octave


@by_pointer
class Service(NamedTuple):
    """E engines, n requests, D devices."""

    clock: Annotated[Any, CLOCK, 1]
    fluid: Annotated[Any, FLUID, 1]
    link: Annotated[Any, LINK, "links"]
    route: Annotated[Any, i8, "route"]
    flow: Annotated[Any, FLOW, "flows"]
    traffic: Annotated[Any, TRAFFIC, 1]         # none of its flows has a row
    course: Annotated[Any, COURSE, 1]
    engine: Annotated[Any, ENGINE, "E"]
    device: Annotated[Any, DEVICE, "D"]
    turns: Annotated[Any, i8, "D", "turns"]     # the runlist of each device: engines
    verbs: Annotated[Any, i8, "E", "verbs", 2]  # addresses of the scheduler's verbs
    cost: Annotated[Any, i8, "E", 2]            # address of what its steps cost
    need: Annotated[Any, i8, "E", 2]            # and of what they need of links
    needs: Annotated[Any, f8, "E", 2 * PARTS]   # of the step under way: ns and bytes/ns of each part
    needs_next: Annotated[Any, f8, "E", 2 * PARTS]  # of the step that is composed ahead
    shared: Annotated[Any, SHARED, "shared"]
    times: Annotated[Any, i8, "shared", PARTS]  # how often each part of a step passes the link
    full: Annotated[Any, f8, "links"]           # rates of links; in `link`, less what steps take that are under way
    sharers: Annotated[Any, i8, "links"]        # copies, and engines with steps under way
    requests: Annotated[Any, i8, 1]             # address of the RequestTable, and of the same in chunks of the tiers
    chunked: Annotated[Any, i8, 1]
    leaving: Annotated[Any, i8, "leaving"]      # requests whose clients go away, in order of time
    tiers: Annotated[Any, i8, 1]                # address of the TierTables
    pool: Annotated[Any, i8, 1]                 # address of the PoolTables
    outcome: Annotated[Any, OUTCOME, "n"]
    gaps: Annotated[Any, i8, "services", "gaps"]  # how many times between tokens fall into each class
    samples: Annotated[Any, SAMPLE, "samples"]   # the rows of each engine, one engine after the other
    log: Annotated[Any, SERVED, "log"]


SERVICE = signature(Service)


"""The tables of what is between devices: which programs share links, and where their activities meet."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer
from gpusim.base.tables import record, signature
from gpusim.engine.state import ARRIVAL

f8, i8 = np.float64, np.int64

# Activities of several programs that go on together, a collective or a pair of send and receive: when the last has started,
# and the latency is over, their bytes flow along one route; when these have arrived, all of them end.
RENDEZVOUS = record(
    [("expected", i8), ("arrived", i8),
     ("first", i8),        # row of `members`
     ("begins", i8),       # ns: when its bytes begin to flow, NEVER before all are there
     ("latency", i8),      # ns
     ("size", f8),         # bytes along each link of the route
     ("cap", f8),          # bytes/ns that it reaches alone, whatever the links let through
     ("route", i8), ("route_end", i8)]
)  # fmt: skip

DECIDE = 100  # why `run_coupled` came back, beside those of `engine.state`: a policy is to say whose turn is next
MOVES = -2    # the way of programs' memory that leaves or comes back as a whole
RESTS, WANTS, ENDED = range(3)
NEVER_KEEPS, ALWAYS, TO_LAST_BLOCKS = range(3)  # in the order of `machine.tenancy.YIELDS`
NOTHING_MOVES, LEAVES, COMES, SHEDS = range(4)
SEAT_OF = 2  # see `changed`
# A device that all programs have together, and what each has of it: see `fabric.tenants`.
GPU = record(
    [("mode", i8),         # APART, BY_TURNS, AT_ONCE
     ("changed", i8),      # something has begun or ended to run there, or to want to: 1, or SEAT_OF + the only program
     ("tight", i8),        # the memory's bandwidth did not suffice for all when it was shared last
     ("paced", i8),        # programs have other parts since then
     ("next", i8),         # ns: when a turn ends, or begins while it is `switching`; NEVER while no tenant has work
     ("turn", i8),         # place in `turns`, -1 before the first
     ("switching", i8),
     ("fixed", f8), ("of_a_processor", f8),  # ns that a switch costs, and for each multiprocessor whose state leaves or comes
     ("switches", i8), ("switched", i8),  # so far, and what they took, ns
     ("fills", i8), ("filled", i8),  # rank and arrival of the first program that wants all of each multiprocessor; behind it
                           # nothing is left.  NEVER: none does
     ("soon", i8),         # ns: when the last blocks of a kernel will have begun, NEVER: of none
     ("apart", i8),        # clients have multiprocessors of their own
     ("keeps", i8),        # until when kernels in waves give nothing back, and go in order: NEVER_KEEPS, ALWAYS: to their ends,
                           # TO_LAST_BLOCKS: until these have begun
     ("asks", i8),         # a policy says whose turn is next: it is asked ...
     ("asking", i8),       # ... now
     ("ordered", i8),      # it has said so: 1 + the program
     ("over", i8),         # the turn has lasted its time
     ("moving", i8),       # NOTHING_MOVES, or which way memory of programs moves for the turn that comes
     ("to", i8)]           # the program of that turn, while SHEDS: others evict what is above their new limits
)  # fmt: skip
SEAT = record(
    [("slice", i8),        # ns
     ("priority", i8),     # of the client; lower goes first
     ("cap", i8),          # multiprocessors that it may have, the first ones
     ("dense", f8),        # share of each that its kernels want
     ("rank", i8),         # of its best kernel
     ("since", i8),        # ns: when its oldest kernel came that has blocks to begin, where these come in order; else 0
     ("own", i8), ("came", i8),  # both by its own kernels; NEVER: all blocks have begun, and share with the first in line
     ("had", f8), ("at", i8),  # ns of its part of the time so far, and until when that is
     ("gives", f8),        # what it will have had when the last blocks of the first of its kernels have begun
     ("soon", i8),         # ns: when they will have begun, NEVER: not before its part changes
     ("stale", i8),        # all of these are to be found anew
     ("seen", i8),         # it has done nothing since it was seen that
     ("flows", i8),        # ... all its kernels that run flow, and
     ("needs", f8),        # what those that do not take of the memory's bandwidth, bytes/ns
     ("part", f8),         # that it has of the time of its multiprocessors
     ("wanted", i8),       # RESTS, WANTS, ENDED: whether it had something to run when the policy was asked last
     ("leave", i8), ("come", i8),  # bytes that move before the turn that comes
     ("limit", i8),        # bytes of blocks from that turn on, 0: as before
     ("sheds", i8),        # it has to come down to that first: 1, then 1 + the number of the first activity that may go on
     ("stop", i8),         # the operator with which its turn ends, 0: none
     ("began", i8),        # ns: when its turn began
     ("held", f8), ("kept", f8),  # of `dense` what kernels want that give nothing back before their ends, and what they have
     ("first", f8)]        # what it has of the first multiprocessor, which all have
)  # fmt: skip


@by_pointer
class Fabric(NamedTuple):
    """P programs on the devices of one machine, which share what flows (`Island.fluid, link, route, flow, arrived`)."""

    programs: Annotated[Any, i8, "P"]      # addresses of the `Processes` that run each alone
    run: Annotated[Any, i8, 1, 2]          # address of `run_until`
    rendezvous: Annotated[Any, RENDEZVOUS, "K"]
    members: Annotated[Any, ARRIVAL, "members"]  # of each rendezvous, in the order of their coming
    meetings: Annotated[Any, i8, "members"]  # the rendezvous of each operator, one after the other: see `Instructions.meets`
    beginning: Annotated[Any, i8, "K + 1"]  # how many have all there and begin later, and which
    gpu: Annotated[Any, GPU, 1]
    seats: Annotated[Any, SEAT, "P"]
    turns: Annotated[Any, i8, "turns"]     # programs, as they take turns
    away: Annotated[Any, i8, "P"]          # of each, how many turns it is until it has one


FABRIC = signature(Fabric)

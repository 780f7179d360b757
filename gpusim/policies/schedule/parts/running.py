"""A scheduler at work: its tables in one place of memory, and its verbs for Python and for a compiled loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import Placed, direct
from gpusim.base.errors import GpusimError, PolicyError
from gpusim.base.tables import filled
from gpusim.policies.schedule.parts.tables import (
    MOST_LOADS,
    NEVER,
    REQUESTS,
    STEP,
    STOPPED,
    UNKNOWN,
    VERB,
    RequestTable,
    StepTable,
)
from gpusim.policies.verb_table import addresses

I64 = npt.NDArray[np.int64]
STOPS = {
    "vllm_v0": ("the engine stops: a preempted request finds no room in the host's memory", "", "raise num_cpu_blocks"),
    "slora": ("the engine stops: adapters leave no room in the pool for the next tokens", "", "raise pool_size_lora"),
}
"""What it means where `compose` says STOPPED, by scheduler."""
LEAST = {"blocks": 2, "block_size": 1, "max_seqs": 1, "max_tokens": 1, "max_len": 2}


@dataclass(frozen=True)
class EngineLimits:
    """What an engine was started with.

    blocks      KV blocks, block 0 among them, which holds nothing
    block_size  tokens of a block
    max_seqs    requests that run at once
    max_tokens  tokens of a step
    max_len     tokens of the longest sequence, prompt and output
    """

    blocks: int
    block_size: int = 16
    max_seqs: int = 256
    max_tokens: int = 2048
    max_len: int = 4096

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise PolicyError(f"{name} of a serving engine is {getattr(self, name)}, which is below {least}")


class ScheduleVerbs(NamedTuple):
    """The verbs of a scheduler as a compiled loop calls them."""

    arrive: Annotated[Any, VERB]
    compose: Annotated[Any, VERB]
    over: Annotated[Any, VERB]
    leave: Annotated[Any, VERB]
    loaded: Annotated[Any, VERB]


class InCommon(NamedTuple):
    """The tables that scheduler and loop have in common, and their addresses."""

    requests: RequestTable
    step: StepTable
    requests_at: int
    step_at: int


def request_table(
    arrival: Any, prompt: Any, output: Any, *, priority: Any = 0, adapter: Any = 0, leaves: Any = NEVER,
    known: Any = 0, start: Any = None, identity: Any = None, piece: int = 1,
) -> RequestTable:  # fmt: skip
    """Requests from columns (int64, or one number for all); see `RequestTable`.

    Identities of requests with different adapters are told apart: keys and values depend on the adapter.

    Raises GpusimError for columns of unequal length, arrivals that go back, an output below 0 tokens, and identities that
    are too few.
    """
    arrival = np.array(arrival, np.int64)
    n = arrival.size
    columns = {"prompt": prompt, "output": output, "priority": priority, "adapter": adapter, "leaves": leaves, "known": known}
    made = {name: np.array(np.broadcast_to(c, _length(name, c, n)), np.int64) for name, c in columns.items()}
    start = np.zeros(n + 1, np.int64) if start is None else np.array(start, np.int64)
    identity = np.zeros(1, np.int64) if identity is None else np.array(identity, np.int64)
    if (back := np.flatnonzero(np.diff(arrival) < 0)).size:
        i = int(back[0]) + 1
        raise GpusimError(f"request {i} arrives at {arrival[i]} ns, before request {i - 1} at {arrival[i - 1]} ns")
    if (none := np.flatnonzero(made["output"] < 0)).size:
        raise GpusimError(f"request {none[0]} has an output of {made['output'][none[0]]} tokens", hint="0: it asks for none")
    if (few := np.flatnonzero(made["known"] > np.diff(start) * piece)).size:
        said = f"request {few[0]} has identities of {start[few[0] + 1] - start[few[0]]} pieces of {piece} tokens"
        raise GpusimError(f"{said}, which is less than the {made['known'][few[0]]} tokens they are said to cover")
    if (below := np.flatnonzero(made["adapter"] < 0)).size:
        said = f"request {below[0]} wants adapter {made['adapter'][below[0]]}"
        raise GpusimError(said, hint="adapters count from 1; 0: none")
    if start[-1] and made["adapter"].any():
        identity = _apart(identity, start, made["adapter"])
    return RequestTable(
        arrival=arrival, **made, start=start, identity=identity if identity.size else np.zeros(1, np.int64),
        piece=np.array([piece], np.int64),
    )  # fmt: skip


def _apart(identity: I64, start: I64, adapter: I64) -> I64:
    """Identities (pieces,) that are equal only where those before are and the adapters are."""
    among, dense = np.unique(identity, return_inverse=True)
    return np.asarray(dense + np.repeat(adapter, np.diff(start)) * among.size, np.int64)


def _length(name: str, column: Any, n: int) -> tuple[int]:
    if np.ndim(column) and len(column) != n:
        raise GpusimError(f"there are {n} arrivals, and {len(column)} values of {name}")
    return (n,)


def most_holders(requests: int, limits: EngineLimits) -> int:
    """How many requests have blocks at once: those that run, and those whose keys and values have been sent for."""
    return limits.max_seqs + min(requests, limits.blocks, MOST_LOADS)


def step_table(requests: int, limits: EngineLimits) -> StepTable:
    """The state of so many requests, none of which has come."""
    blocks_of_a_step = limits.max_tokens // limits.block_size + 2 * limits.max_seqs
    lengths = {
        "requests": requests, "rows": limits.max_seqs, "loads": most_holders(requests, limits), "swaps": 2 * limits.max_seqs,
        "evictions": 2 * min(blocks_of_a_step, limits.blocks),
    }  # fmt: skip
    step = filled(StepTable, lengths)
    step.cached[:], step.below[:] = -1, UNKNOWN
    return step


class Running:
    """A scheduler at work on requests.

    step   what it has decided (`StepTable`)
    tables what `state` made: its tables, its own first
    verbs  (5, 2) addresses of its compiled verbs, in the order of `ScheduleVerbs`; `own` is what they take first
    """

    def __init__(self, policy: Any, requests: RequestTable, limits: EngineLimits) -> None:
        """Raises PolicyError for limits with which the engine would not start, or block sizes that do not divide."""
        piece = int(requests.piece[0])
        if requests.identity.size > 1 and piece % limits.block_size:
            said = f"the requests' prompts are identified by {piece} tokens, which blocks of {limits.block_size} do not divide"
            raise PolicyError(said, hint=f"choose a block size that divides {piece}")
        self.policy, self.requests, self.limits = policy, requests, limits
        self.step = step_table(requests.arrival.size, limits)
        self._placed = [Placed(requests, REQUESTS), Placed(self.step, STEP)]
        shared = InCommon(requests, self.step, self._placed[0].address, self._placed[1].address)
        self.tables = policy.state(shared, limits, policy.params)
        self.own = self.tables[0].address
        self._asked = policy.asked(self)
        self._verbs = ScheduleVerbs(policy.arrive, policy.compose, policy.over, policy.leave, policy.loaded)
        self._arrive, self._compose, self._over, self._leave, self._loaded = (direct(each) for each in self._verbs)

    @property
    def verbs(self) -> I64:
        return addresses(self._verbs)

    @property
    def step_at(self) -> int:
        """The address of `step`."""
        return self._placed[1].address

    def arrive(self, r: int, now: int = 0) -> int:
        """0, or why request r is refused: an index of `REFUSALS`."""
        return int(self._arrive(self.own, r, now))

    def compose(self, now: int = 0) -> int:
        """The next step: rows of `step.request`, `tokens` and `before`; ASK_TIER when `below` has to be written first.

        Raises PolicyError where the real engine would end with an error.
        """
        rows = int(self._compose(self.own, 0, now))
        if rows == STOPPED:
            raise PolicyError(*STOPS[self.policy.name])
        return rows

    def answer(self, now: int = 0) -> None:
        """Have the scheduler's Python heard, after `compose` has said ASK; then `compose` goes on."""
        self._asked.answer(now)

    def over(self, now: int = 0) -> int:
        """The step is over; how many requests have ended."""
        return int(self._over(self.own, 0, now))

    def leave(self, r: int, now: int = 0) -> None:
        """The client of request r goes away."""
        self._leave(self.own, r, now)

    def loaded(self, r: int, now: int = 0) -> None:
        """step.below[r] tokens that request r waited for are on the device."""
        self._loaded(self.own, r, now)

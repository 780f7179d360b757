"""Services that share GPUs: the requests of all as one table, and how the devices pass among their engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError
from gpusim.machine.tenancy import MPS, Tenancy, runlist
from gpusim.policies.schedule.parts.running import request_table
from gpusim.policies.schedule.parts.tables import RequestTable

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ServicesOnGpus:
    """How each device passes among the services, a tenant each in order.

    state  ns of each device to save, or to restore, what a step has on its multiprocessors
    """

    tenancy: Tenancy
    state: tuple[float, ...]

    @property
    def by_turns(self) -> bool:
        """Time slices; else steps of all run at once."""
        return self.tenancy.way != MPS

    @property
    def turns(self) -> tuple[int, ...]:
        """The runlist, as numbers of services."""
        return runlist([tenant.level for tenant in self.tenancy.tenants])


@dataclass(frozen=True)
class MergedRequests:
    """Requests of several services in the order of their arrival; of each its service, and its number there."""

    requests: RequestTable
    service: I64
    nth: I64


def together(each: Sequence[RequestTable]) -> MergedRequests:
    """Requests of all services; at equal times those of the first go first.  No prompt of two services has anything in common.

    Raises GpusimError where the pieces of prompts differ in length.
    """
    pieces = {int(requests.piece[0]) for requests in each if requests.start[-1]}
    if len(pieces) > 1:
        said = " and ".join(map(str, sorted(pieces)))
        raise GpusimError(f"prompts of services side by side are told apart by pieces of {said} tokens: they have to be alike")
    service = np.repeat(np.arange(len(each)), [len(requests.arrival) for requests in each])
    nth = np.concatenate([np.arange(len(requests.arrival)) for requests in each])
    column = {name: np.concatenate([getattr(requests, name) for requests in each])
              for name in ("arrival", "prompt", "output", "priority", "adapter", "leaves", "known")}  # fmt: skip
    order = np.argsort(column["arrival"], kind="stable")
    own = [requests.identity[: requests.start[-1]] for requests in each]
    above = np.cumsum([0, *(int(identity.max(initial=-1)) + 1 for identity in own)])
    identity = np.concatenate([identity + high for identity, high in zip(own, above[:-1], strict=True)])
    length = np.concatenate([np.diff(requests.start) for requests in each])
    first = np.cumsum(length) - length
    start = np.concatenate([[0], np.cumsum(length[order])]).astype(np.int64)
    within = np.arange(start[-1]) - np.repeat(start[:-1], length[order])
    made = request_table(
        **{name: values[order] for name, values in column.items() if name != "adapter"}, start=start,
        identity=identity[np.repeat(first[order], length[order]) + within], piece=pieces.pop() if pieces else 1,
    )  # fmt: skip
    return MergedRequests(made._replace(adapter=column["adapter"][order]), service[order], nth[order])

"""A second service on the same GPUs, in words: llama-1b(memory=0.3, requests=drawn(prompt=256, output=32), rate=4).

    memory     its share of each GPU; with that of the first no more than 1
    requests   as of any service
    rate       requests a second, from the first on again until those of the other service have all come; 0: as `requests` says
    weights, cache, engine, block, max_seqs, max_tokens, max_len   as of any service
Its replicas have the GPUs of the first one's, as many for each; how these pass between both says `tenancy`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpusim.base.calls import listed, value_of
from gpusim.base.errors import GpusimError, suggest
from gpusim.base.text import join
from gpusim.base.yaml.values import policy
from gpusim.engine.serving.beside import ServicesOnGpus, together
from gpusim.engine.serving.run import ServiceRun
from gpusim.engine.serving.tiering import dense
from gpusim.machine import tenancy
from gpusim.machine.profile import Profile
from gpusim.policies.schedule.parts.tables import RequestTable
from gpusim.programs.serving.drawn import SECOND
from gpusim.programs.serving.requests import at_rate

if TYPE_CHECKING:
    from gpusim.studies.serving.setup import PreparedService

WORDS: dict[str, type] = {
    "memory": float, "rate": float, "block": int, "max_seqs": int, "max_tokens": int, "max_len": int,
    "weights": str, "cache": str, "engine": str, "requests": str,
}  # fmt: skip
EXAMPLE = "llama-1b(memory=0.3, requests=drawn(prompt=256, output=32), rate=4)"
_CALL = re.compile(r"\s*([\w.@-]+)\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True)
class BesideWord:
    """A model, the fields of its `ServiceSpec` that are said, its requests, and how many a second."""

    model: str
    words: dict[str, Any]
    requests: str
    rate: float


def beside_of(text: str) -> BesideWord | None:
    """What the word says; None for "".  Raises GpusimError."""
    if not text.strip():
        return None
    match = _CALL.fullmatch(text)
    if match is None:
        raise GpusimError(f"'{text}' is no service beside another", hint=f"write {EXAMPLE}")
    found: dict[str, Any] = {}
    for part in filter(None, listed(match[2])):
        name, _, value = (x.strip() for x in part.partition("="))
        if name not in WORDS:
            raise GpusimError(f"a service beside another has no '{name}'", hint=suggest(name, WORDS) or join(tuple(WORDS)))
        found[name] = value if WORDS[name] is str else _number(name, value)
    for name in ("memory", "requests"):
        if name not in found:
            raise GpusimError(f"the service beside has no {name}", hint=f"write {EXAMPLE}")
    return BesideWord(match[1], found, found.pop("requests"), float(found.pop("rate", 0.0)))


def _number(name: str, text: str) -> int | float:
    """From 0 on, whole where the field is.  Raises GpusimError."""
    value = value_of(text)
    if isinstance(value, str) or not value >= 0 or (WORDS[name] is int and not isinstance(value, int)):
        raise GpusimError(f"{name}={text} of a service beside another is no number", hint=f"write {EXAMPLE}")
    return value


def shared_by(way: str, devices: Sequence[Profile]) -> ServicesOnGpus:
    """How GPUs pass between two services: `time_slices(slice=2 ms, others_slice=200 us)` or `mps`.  Raises GpusimError.

    devices  the profiles of the GPUs of each replica
    """
    spec = policy(way) if way.strip() else policy(tenancy.SLICES)
    if spec.name not in tenancy.WAYS:
        raise GpusimError(f"services do not share GPUs by '{spec.name}'", hint=join(tenancy.WAYS))
    if spec.name == tenancy.MPS and spec.params:
        said = f"mps({spec.params[0][0]}) of services is not modelled: a step fills all multiprocessors"
        raise GpusimError(said, hint="write mps")
    found = tenancy.way(spec).tenancy(1, tenancy.switch_of(devices[0]) if devices else tenancy.Switch())
    assert found is not None
    return ServicesOnGpus(found, tuple(map(_state, devices)))


def _state(gpu: Profile) -> float:
    """ns to move the state of all multiprocessors through the memory, in one direction."""
    return tenancy.switch_of(gpu).of_a_processor * int(gpu.gpu.sm_count.value)


def as_long_as(requests: RequestTable, rate: float, other: RequestTable) -> RequestTable:
    """The requests at a rate, from the first on again until the last of the other service has come."""
    if not rate:
        return requests
    lasts = float(other.arrival[-1] - other.arrival[0]) / SECOND
    return at_rate(requests, rate, count=max(len(requests.arrival), math.ceil(rate * lasts)))


def check_beside(word: BesideWord, way: str, memory: float, *, below: str, pooled: bool) -> None:
    """What a service cannot have beside it.  Raises GpusimError.

    way, memory  how the GPUs pass between both, and the first one's share of each
    """
    shared_by(way, ())
    for asked, what in ((below, "weights below the GPU"), (pooled, "a mixed pool")):
        if asked:
            raise GpusimError(f"{what} and a service beside another are not modelled together")
    if memory + word.words["memory"] > 1.0 + 1e-9:
        said = f"{memory:g} and {word.words['memory']:g} of each GPU's memory are more than there is"
        raise GpusimError(said, hint="a smaller share for one of both: --memory 0.5")


def started(
    first: PreparedService, other: PreparedService, theirs: RequestTable, rate: float, requests: RequestTable, *, at_once: int,
    log: bool,
) -> ServiceRun:  # fmt: skip
    """A run of both services.

    theirs, rate  requests of the other one, and how many of them come a second
    Raises GpusimError for clients that wait for answers, and for a log.
    """
    for asked, what in ((at_once, "clients that wait for their answers"), (log, "a log")):
        if asked:
            raise GpusimError(f"{what} and a service beside another are not modelled together")
    among = together([requests, as_long_as(theirs, rate, requests)])
    named = dense(among.requests)
    engines = [
        replace(engine, device=i, service=k, name=f"{engine.name} of {service.spec.model}")
        for k, service in enumerate((first, other)) for i, engine in enumerate(service.engines(named, among.service == k))
    ]  # fmt: skip
    shared = shared_by(first.spec.tenancy, [first.topology.profile(group[0]) for group in first.groups])
    store, routing = first.store(len(engines)), first.spec.routing
    return ServiceRun(named, engines, routing=routing, store=store, shared=shared, among=among)

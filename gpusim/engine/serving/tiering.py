"""Tiers below the devices of a service, from sizes, evict policies and routes to the tables of `tiers`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpusim.base.compiled import Placed
from gpusim.base.errors import GpusimError
from gpusim.base.tables import filled, table
from gpusim.base.units import BYTES, write
from gpusim.engine.serving import tiers as t
from gpusim.policies.forms import EvictPolicy
from gpusim.policies.schedule.parts.managers import CHUNKS, HostManager
from gpusim.policies.schedule.parts.offload_tables import OWN
from gpusim.policies.schedule.parts.tables import NEVER, RequestTable
from gpusim.policies.verb_table import addresses
from gpusim.trace.reuse import next_uses

WHEN = {
    "write_through": t.WRITE_THROUGH, "selective": t.SELECTIVE, "write_back": t.WRITE_BACK, "write_all": t.WRITE_ALL,
}  # fmt: skip


MOST_STORES = 1 << 20  # that an engine's manager has under way


@dataclass(frozen=True)
class CopyWay:
    """How bytes go: ns until they flow, bytes/ns at most, the links that they pass, one that they pass twice twice.

    wire  bytes that flow for each byte of keys and values, where a codec makes them fewer
    """

    latency: int
    rate: float
    links: tuple[str, ...]
    wire: float = 1.0


@dataclass(frozen=True)
class KvTier:
    """A memory below the device.

    capacity  bytes
    evict     which of its chunks leaves; time is the place among all uses of chunks, so it may foresee; or an engine's manager
    into      from the device, or from the tier above when it is not the nearest; out_of: to the device
    ratio     bytes of keys and values for each byte that lies here
    pool      a name: tiers of one name are one memory, to which each chain has ways of its own
    """

    name: str
    capacity: int
    evict: EvictPolicy | HostManager
    into: CopyWay
    out_of: CopyWay
    ratio: float = 1.0
    pool: str = ""


@dataclass(frozen=True)
class KvStore:
    """Tiers of each engine, nearest first; equal objects in two chains, and those of one pool, are one tier that both share.

    when     write_through, selective (what has been computed before), write_back (what the device gives up), or write_all: as
             write_through, and what has come into a tier goes on to the next
    token    bytes of a token's keys and values that one way carries: of one GPU of a group, as all of them copy at once
    passed   of an engine and a link that copies share with its steps: how often each part of a step (`costs.PARTS`) passes it
    """

    chains: tuple[tuple[KvTier, ...], ...]
    token: float
    when: str = "write_through"
    rates: Mapping[str, float] = field(default_factory=dict)  # of links, bytes/ns
    hands: Mapping[tuple[int, int], CopyWay] = field(default_factory=dict)  # between the devices of two engines
    passed: Mapping[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)

    @property
    def manager(self) -> HostManager | None:
        """The engine's manager that the tiers have, all the same one; GpusimError where it is not alone."""
        found = {tier.evict if isinstance(tier.evict, HostManager) else None for tier in self.tiers}
        if found <= {None}:
            return None
        if len(found) > 1 or max(map(len, self.chains)) > 1 or any(tier.pool for tier in self.tiers):
            raise GpusimError("an engine's manager has one memory of its own", hint="host(64 GiB, vllm_lru@0.33)")
        if self.when != "write_through":
            raise GpusimError(f"an engine's manager stores what is computed, not '{self.when}'", hint="--when write_through")
        return found.pop()

    @property
    def tiers(self) -> tuple[KvTier, ...]:
        """Each memory once; of a pool the tier of the first chain that has it."""
        found: dict[Any, KvTier] = {}
        for chain in self.chains:
            for tier in chain:
                found.setdefault(tier.pool or tier, tier)
        return tuple(found.values())


def dense(requests: RequestTable) -> RequestTable:
    """The same requests with identities from 0 on, without gaps."""
    return requests._replace(identity=np.unique(requests.identity, return_inverse=True)[1].astype(np.int64))


def chunked(requests: RequestTable, tokens: int) -> RequestTable:
    """The same requests with identities of chunks of so many tokens, the whole ones of a prompt.

    GpusimError where such chunks and the pieces that are known do not divide each other.
    """
    piece = int(requests.piece[0])
    if piece == tokens or not requests.identity.size:
        return requests._replace(piece=np.array([tokens], np.int64))
    if max(piece, tokens) % min(piece, tokens):
        said = f"what requests have in common is known in pieces of {piece} tokens, which chunks of {tokens} do not divide"
        raise GpusimError(said, hint=f"chunk={piece}")
    count = requests.known // tokens
    start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    within = np.arange(start[-1]) - np.repeat(start[:-1], count)
    last = ((within + 1) * tokens - 1) // piece  # the piece in which a chunk ends: equal ones are equal up to there
    identity = requests.identity[np.repeat(requests.start[:-1], count) + last]
    if tokens < piece:
        identity = identity * (piece // tokens) + within % (piece // tokens)
    return dense(requests._replace(start=start, identity=identity, piece=np.array([tokens], np.int64), known=count * tokens))


def check_room(requests: RequestTable, store: KvStore | None) -> None:
    """Raises GpusimError where a tier has no room for one chunk."""
    piece = int(requests.piece[0])
    for tier in store.tiers if store is not None else ():
        least = math.ceil(store.token * piece / tier.ratio) if store is not None else 0
        if tier.capacity < least:
            said = f"{tier.name} has no room for a chunk of {piece} tokens"
            raise GpusimError(said, hint=f"give it {write(least, BYTES)} at least")


def tier_tables(requests: RequestTable, store: KvStore | None, engines: int) -> tuple[t.TierTables, dict[str, int], Any]:
    """(tables, links by name, what all routes pass); identities are dense.  GpusimError for what cannot be a tier."""
    chains = store.chains if store is not None else ((),) * engines
    rows = store.tiers if store is not None else ()
    place = {tier.pool or tier: i for i, tier in enumerate(rows)}
    depth = max(1, max(map(len, chains)))
    chunks = int(requests.identity.max()) + 1 if requests.identity.size else 1
    piece = int(requests.piece[0])
    ways: list[CopyWay] = []
    lengths = {"T": max(1, len(rows)), "E": engines, "D": depth, "n": len(requests.arrival)}
    lengths["pieces"] = max(1, requests.identity.size)
    count = 1 + len(requests.arrival) * (depth + 1)
    count = count + chunks * (len(rows) + 1) if rows else count if store is not None else 1
    manager = store.manager if store is not None else None
    if manager is not None:
        chunks, count = 1, 1 + 2 * len(requests.arrival) + min(requests.identity.size, MOST_STORES)
        lengths["memory"] = requests.identity.size + OWN * len(requests.arrival)
    lengths |= {"chunks": chunks if rows else 1, "transfers": count, "spare": count + 1}
    size = store.token * piece if store is not None else 1.0
    room = [int(tier.capacity * tier.ratio // size) for tier in rows]
    policies = [tier.evict for tier in rows if isinstance(tier.evict, EvictPolicy)]
    states = [evict.state(chunks, most, evict.params, 0) for evict, most in zip(policies, room, strict=False)]
    made = filled(
        t.TierTables, lengths, way=table(0, t.WAY), chunk=requests.identity.astype(np.int32),
        state=_stacked([s for s, _ in states], np.int64), keys=_stacked([x for _, x in states], np.float64),
        params=_stacked([evict.params for evict in policies], np.float64),
    )  # fmt: skip
    for name in ("chain", "into", "out_of", "down"):
        getattr(made, name)[:] = -1
    made.spare[0], made.spare[1:] = count, np.arange(count)
    if store is None:
        return made, {}, np.zeros(1, np.int64)
    made.bytes[:], made.when[0] = (store.token, size), WHEN[store.when]
    if rows and manager is None:
        _foresee(made, requests)
    elif manager is not None:
        made.managed[0] = manager.kind
    for i, tier in enumerate(rows):
        made.tier[i]["capacity"], evict = room[i], tier.evict
        if isinstance(evict, HostManager):
            continue
        if evict.form not in ("none", "ordered", "score"):
            raise evict.error(f"cannot manage a tier of a service: it needs the timed engine (form '{evict.form}')")
        row = made.tier[i]
        row["scored"] = evict.form == "score"
        row["reload"] = tier.out_of.latency + size * tier.out_of.wire / tier.out_of.rate
        made.verbs[i] = addresses(t.TierVerbs(evict.insert, evict.touch, evict.remove, evict.victim, evict.score))
    for e, chain in enumerate(chains):
        for d, tier in enumerate(chain):
            made.chain[e, d] = place[tier.pool or tier]
            made.out_of[e, d], made.into[e, d] = len(ways), len(ways) + 1
            if d:
                made.down[e, d - 1] = len(ways) + 1
            ways += [tier.out_of, tier.into]
    for (source, e), way in store.hands.items():
        made.hand[source, e] = len(ways)
        ways.append(way)
    return _routed(made, ways, store.rates)


def _foresee(made: t.TierTables, requests: RequestTable) -> None:
    """When chunks are used, when next, and how deep they are in their prompts."""
    starts, lengths = requests.start[:-1], np.diff(requests.start)
    count = int(requests.start[-1])
    if not count:
        return
    made.next_use[:] = _next_places(requests.identity)
    within = np.arange(count) - np.repeat(starts, lengths)
    made.turn[:count] = np.repeat(starts + requests.start[1:] - 1, lengths) - np.arange(count)
    made.depth[requests.identity[:count]] = within * int(requests.piece[0])


def placed_managers(made: t.TierTables, store: KvStore | None) -> list[Placed]:
    """The tables of engines' managers, whose addresses are entered; they live as long as these."""
    kept: list[Placed] = []
    for i, tier in enumerate(store.tiers if store is not None else ()):
        if isinstance(tier.evict, HostManager):
            kept += [Placed(each, CHUNKS) for each in tier.evict.tables(int(made.tier[i]["capacity"]))]
            made.manager[i], made.counts[i] = kept[-2].address, kept[-1].address
    return kept


def _stacked(rows: Sequence[Any], dtype: Any) -> Any:
    width = max([1, *map(len, rows)])
    out = np.zeros((max(1, len(rows)), width), dtype)
    for row, values in zip(out, rows, strict=False):
        row[: len(values)] = values
    return out


def _next_places(identity: Any) -> Any:
    """For each place the next one with the same number, -1: none."""
    return np.asarray(next_uses(identity.astype(np.int32), int(identity.max()) + 1), np.int64).astype(np.int32)


def _routed(
    made: t.TierTables, ways: Sequence[CopyWay], rates: Mapping[str, float]
) -> tuple[t.TierTables, dict[str, int], Any]:
    names = {name: i for i, name in enumerate(dict.fromkeys(link for way in ways for link in way.links))}
    missing = [name for name in names if name not in rates]
    if missing:
        raise GpusimError(f"the machine has no link '{missing[0]}'")
    rows, route = table(len(ways), t.WAY), list[int]()
    for row, way in zip(rows, ways, strict=True):
        row["latency"], row["rate"], row["wire"], row["begins"] = way.latency, way.rate, way.wire, NEVER
        row["route"] = len(route)
        route += [names[link] for link in way.links]
        row["route_end"] = len(route)
    return made._replace(way=rows), names, np.array(route or [0], np.int64)

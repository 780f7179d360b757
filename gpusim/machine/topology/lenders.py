"""Memories of a machine that programs on other devices use: other GPUs', other hosts', and the ways to and from there.

    peer(any)     GPUs of the same host, and those that are linked to this one
    remote(rdma)  memory of other hosts over the network cards; a host lends what the ranks on it have no part of
    remote(gpus)  memory of other hosts' GPUs over the network cards

A device with a program takes its memory back when it needs it: the bytes go to a tier further down, over the lender's own link
to the host.  A copy that is staged in the host passes all links of its way at once, at the rate that copies of its size reach
alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpusim.base.errors import GpusimError, ProfileError
from gpusim.machine import chain, tiers
from gpusim.machine.chain import READY, Wanted
from gpusim.machine.profile import Profile
from gpusim.machine.tiers import Fall, Tier, TierLink
from gpusim.machine.topology import routes, transfers
from gpusim.machine.topology.connections import Lender
from gpusim.machine.topology.routes import TransferRoute
from gpusim.machine.topology.sharing import SharedLink, SharedLinks, shared
from gpusim.machine.topology.topology import DIRECT, Topology

_SIZES = tuple(float(1 << k) for k in range(9, 37))
_OWN = ("h2d", "d2h", "both")  # links of a GPU to its host, which a copy from another one does not pass


@dataclass(frozen=True)
class Below:
    """What lies below the devices of a machine whose memories are lent; as in `Connections`."""

    tiers: tuple[tuple[Tier, ...], ...]
    beyond: tuple[Mapping[str, tuple[SharedLink, ...]], ...]
    lenders: Mapping[str, Lender]


def below(machine: Topology, gpus: Sequence[str], profiles: Sequence[Profile], text: str) -> Below | None:
    """The tiers of the program on each of these GPUs, where some are lent; None where each program has its own.

    profiles  of the GPUs, with the part of its host's memory that each program has

    Raises ProfileError for lenders that the machine lacks, and for chains in which a lender has nowhere to evict to.
    """
    check(text)
    if not chain.lends(text):
        return None
    links = shared(machine, gpus)
    names = list(dict.fromkeys(name for gpu in gpus for w in chain.read(text) for name in _lenders(machine, gpu, w)))
    lenders = {name: _lender(machine, name, gpus, profiles, chain.read(text)) for name in names}
    made = [_of(machine, gpu, profile, text, links, p) for p, (gpu, profile) in enumerate(zip(gpus, profiles, strict=True))]
    below_each = tuple(
        tuple(replace(t, capacity=lenders[t.lender].lends) if t.lender else t for t in each) for each, _ in made
    )  # fmt: skip
    return Below(below_each, tuple({**links.beyond[i], **ways} for i, (_, ways) in enumerate(made)), lenders)


def check(text: str) -> None:
    """Raises ProfileError for a chain that no machine can have whose memories are lent."""
    wanted = chain.read(text)
    for i, w in enumerate(wanted):
        if w.kind in chain.LENDERS and not w.of:
            written = " or ".join(f"{w.kind}({word})" for word in chain.LENDERS[w.kind])
            said = f"tier '{w.kind}' is an exclusive memory, and ranks share their machine"
            raise ProfileError(said, hint=f"write {written}")
        if w.of and all(later.of for later in wanted[i:]):
            said = f"no tier of its own stands behind {w.kind}({w.of}): a lender that needs its memory has nowhere to evict to"
            raise ProfileError(said, hint=f"write {w.kind}({w.of}) > host")
        if not w.of and chain.lends(text) and (w.pageable or w.pool != READY):
            said = f"what a lender evicts goes to '{w.kind}' without the borrower's call: its memory is pinned beforehand"
            raise ProfileError(said, hint="leave out pageable and pool")


def _lenders(machine: Topology, gpu: str, w: Wanted) -> list[str]:
    """Names of the memories that a tier means for the program of this GPU; none for a tier of its own."""
    others = [name for name in machine.gpus if name != gpu]
    if w.of == "any":
        return [name for name in others if machine.host[name] == machine.host[gpu] or _linked(machine, gpu, name)]
    if w.of == "gpus":
        return [name for name in others if machine.host[name] != machine.host[gpu]]
    if w.of == "rdma":
        return [name for name in machine.of_kind("socket") if machine.host[name] != machine.host[gpu]]
    return []


def _linked(machine: Topology, a: str, b: str) -> bool:
    return routes.walk(machine, a, b, lambda link: link.kind in DIRECT, ("nvswitch",)) is not None


def _lender(
    machine: Topology, name: str, gpus: Sequence[str], profiles: Sequence[Profile], wanted: Sequence[Wanted]
) -> Lender:
    node = machine.nodes[name]
    most = [w.capacity for w in wanted if w.of and w.capacity is not None and (w.of == "rdma") == (node.kind == "socket")]
    if node.kind == "gpu":
        profile = machine.profile(name)
        capacity = int(profile.memory.capacity.value - profile.context.value)
        return Lender(capacity, min([capacity, *most]), list(gpus).index(name) if name in gpus else -1)
    sockets = [other for other in machine.of_kind("socket") if machine.host[other] == machine.host[name]]
    taken = sum(
        int(profile.host.capacity.value)
        for gpu, profile in zip(gpus, profiles, strict=True) if machine.host[gpu] == machine.host[name]
    )  # fmt: skip
    free = max(0, _host_memory(machine, name) - taken) // len(sockets)
    return Lender(free, min([free, *most]))


def _host_memory(machine: Topology, socket: str) -> int:
    """Bytes of the memory of a host: what its sockets say, else what the profile of a GPU in it does."""
    number = machine.host[socket]
    said = [machine.nodes[other].capacity for other in machine.of_kind("socket") if machine.host[other] == number]
    if None not in said:
        return sum(size for size in said if size is not None)
    inside = [machine.profile(gpu) for gpu in machine.gpus if machine.host[gpu] == number]
    return max((int(profile.host.capacity.value) for profile in inside), default=0)


def _of(
    machine: Topology, gpu: str, profile: Profile, text: str, links: SharedLinks, program: int
) -> tuple[tuple[Tier, ...], dict[str, tuple[SharedLink, ...]]]:
    """The tiers of the program on a GPU, and the links of the machine behind each link of its lenders."""
    parts = [part.strip() for part in text.split(">")]
    wanted = chain.read(text)
    own = iter(tiers.parse(" > ".join(part for part, w in zip(parts, wanted, strict=True) if not w.of), profile))
    made: list[Tier] = []
    beyond: dict[str, tuple[SharedLink, ...]] = {}
    for place, w in enumerate(wanted, 1):
        if not w.of:
            made.append(replace(next(own), place=place))
            continue
        names = _lenders(machine, gpu, w)
        if not names:
            raise ProfileError(f"{w.kind}({w.of}) of {gpu} of machine '{machine.name}' names no memory: {_NONE[w.of]}")
        if w.kind == "remote" and (machine.network is None or machine.network.rdma is None):
            network = machine.network_name or "no network"
            raise ProfileError(f"{w.kind}({w.of}): machine '{machine.name}' has {network}, without RDMA", hint=_WIRED)
        for name in names:
            tier, ways = _tier(machine, gpu, name, w, links)
            made.append(replace(tier, place=place))
            beyond |= ways
    for i, tier in enumerate(made):
        if tier.lender and machine.nodes[tier.lender].kind == "gpu":
            falls = [_fall(machine, gpu, tier.lender, low, links, program) for low in made[i:] if not low.lender]
            made[i] = replace(tier, falls=tuple(fall for fall, _ in falls))
            beyond |= {fall.way[0].name: passed for fall, passed in falls}
    return tuple(made), beyond


_NONE = {
    "any": "no other GPU is in its host or linked to it", "gpus": "there is no GPU in another host",
    "rdma": "there is no other host",
}  # fmt: skip
_WIRED = "name one with it, as '2 x hgx-h100 over infiniband', or leave the tier out"


def _tier(
    machine: Topology, gpu: str, name: str, w: Wanted, links: SharedLinks
) -> tuple[Tier, dict[str, tuple[SharedLink, ...]]]:
    out, into = routes.between(machine, gpu, name), routes.between(machine, name, gpu)
    there, back = TierLink(f"{w.kind}_out {name}", out.rate / 1e9), TierLink(f"{w.kind}_in {name}", into.rate / 1e9)
    tier = Tier(
        f"{w.kind} {name}", w.kind, 0, back.rate, there.rate, round(into.latency), round(out.latency), (back,), (there,),
        f"{w.kind} {name}", 1, 1, _curve(machine, into), _curve(machine, out), lender=name,
        far=machine.host[name] != machine.host[gpu],
    )  # fmt: skip
    return tier, {there.name: _passed(machine, out, links), back.name: _passed(machine, into, links)}


def _curve(machine: Topology, route: TransferRoute) -> tuple[tuple[float, float], ...]:
    """Rates by size, the latency included, of a copy that is staged; others have one rate."""
    if route.staged is None:
        return ()
    return tuple((size, size / transfers.time_alone(machine, route, int(size))) for size in _SIZES)


def _passed(machine: Topology, route: TransferRoute, links: SharedLinks) -> tuple[SharedLink, ...]:
    return links.route(name for leg in route.legs for name in transfers.passed(machine, leg))


def _fall(
    machine: Topology, gpu: str, lender: str, tier: Tier, links: SharedLinks, program: int
) -> tuple[Fall, tuple[SharedLink, ...]]:
    """From the lender's memory to the host of the borrower, and on to the tier; through a buffer of the borrower's device where
    only that is linked to the lender."""
    host = routes.nearest(machine, gpu, "socket")
    try:
        each = [routes.between(machine, lender, host)]
    except GpusimError:
        each = [routes.between(machine, lender, gpu), routes.between(machine, gpu, host)]
    rest = [link for link in tier.way_out if link.name not in _OWN]
    rate = min(*(route.rate / 1e9 for route in each), *(link.rate for link in rest), tier.write)
    passed = (*(link for route in each for link in _passed(machine, route, links)), *((program, link.name) for link in rest))
    return Fall(tier.name, rate, tier.write_latency, (TierLink(f"from {lender} to {tier.name}", rate),), tier.curve_out), passed


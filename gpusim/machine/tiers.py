"""The memories below the GPU's, nearest first, as an experiment writes them: "host > nvme(direct=1)".

    host    memory of the CPU       capacity=, pageable=0 (1: not pinned, each copy is staged and the caller waits for it),
                                    pool=ready (grow: the first use of a size, rounded up to a power of two, allocates and pins
                                    it; fresh: each copy out does, and the memory is given back later), gpus=1 (of the node that
                                    copy at once, all alike), numa=local (remote: on the other socket; interleave: spread over
                                    all NUMA nodes; first_touch: on the node next to the GPU until that is full)
    nvme    a disk                  capacity=, read=, write=, queue_depth=32, request=1 MiB,
                                    direct=0 (1: GPUDirect Storage, without a bounce buffer in host memory)
    peer    another GPU's memory    capacity=
    cxl     memory behind CXL       capacity=
    remote  another host's, by RDMA capacity=

    peer(any), remote(rdma), remote(gpus): memories of a machine of several GPUs that others use, too: `topology.lenders`

What is full spills to the next one.  A tier says which links its copies pass; tiers that name the same link share it, and
tiers that name the same queue take turns in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gpusim.base.errors import ProfileError
from gpusim.base.units import show_bytes
from gpusim.machine.chain import FIRST_TOUCH, FRESH, INTERLEAVE, LOCAL, READY, REMOTE, Wanted, read
from gpusim.machine.profile import GIVEN, Curve, Profile

DEFAULT = "host"
COPY_ENGINES = "copy"  # the queue of tiers whose copies the GPU's own copy engines make


@dataclass(frozen=True)
class TierLink:
    """A directed channel that several ways may share."""

    name: str    # h2d, d2h, both, and all_ before them; peer_in, peer_out, nvme_read, nvme_write, cxl_..., network_in, ..._out
    rate: float  # bytes/ns


@dataclass(frozen=True)
class Fall:
    """The way of copies that leave a lent memory for a tier further down.  Rate in bytes/ns, time in ns."""

    to: str  # the tier's name
    rate: float
    latency: int
    way: tuple[TierLink, ...]
    curve: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Tier:
    """One memory below the GPU's.  Rates in bytes/ns, times in ns; `read` is towards the GPU."""

    name: str       # how plans and results call it: its kind, and a number for the second one of a kind
    kind: str
    capacity: int   # bytes
    read: float     # of one large copy over idle links
    write: float
    read_latency: int
    write_latency: int
    way_in: tuple[TierLink, ...]   # passed by copies to the GPU
    way_out: tuple[TierLink, ...]  # passed by copies from the GPU
    queue: str      # COPY_ENGINES, peer, nvme, network
    slots_in: int   # copies at once
    slots_out: int
    curve: tuple[tuple[float, float], ...] = ()  # rate of copies to the GPU by size, start-up included
    curve_out: tuple[tuple[float, float], ...] = ()  # the same of copies from the GPU
    waits: bool = False  # the host thread waits for each copy
    kernel_read: float = 0.0   # of kernels that read it in place; 0: as `read`
    kernel_write: float = 0.0
    near: float = 1.0  # share of the link's rates that copies keep where this memory is, by its NUMA node
    cpu: float = 1.0   # and of the rate of its memory that the CPU keeps
    pool: str = READY  # how its memory is had; the host pays for a block, by call and by byte, and for giving a byte back
    take: float = 0.0
    take_per_byte: float = 0.0
    give_per_byte: float = 0.0
    lender: str = ""  # the node of the machine whose memory it is, which others use as well; its capacity changes
    falls: tuple[Fall, ...] = ()  # of a lender: to each exclusive tier below
    far: bool = False  # the lender is in another host
    place: int = 1  # in the chain: lenders of one word have one place


def check(text: str) -> None:
    """Raises ProfileError for text that names no tiers, on any machine."""
    read(text)


def parse(text: str, profile: Profile) -> tuple[Tier, ...]:
    """The tiers of a machine, nearest first; none by default where the GPU shares the CPU's memory.

    Raises ProfileError for tiers that do not exist, that the machine has no way to, or that are larger than it has.
    """
    wanted = read(text)
    if shared := next((w for w in wanted if w.of), None):
        said = f"{profile.name} is one GPU: {shared.kind}({shared.of}) is memory of other devices of its machine"
        raise ProfileError(said, hint=f"name a machine of several GPUs and a layout of ranks, or write {shared.kind}")
    if profile.memory.unified and text.strip() == DEFAULT:
        return ()
    made = _share_host(profile, wanted, [_MAKE[w.kind](profile, w) for w in wanted])
    before = [[tier.kind for tier in made[:i]].count(tier.kind) for i, tier in enumerate(made)]
    return tuple(replace(t, name=f"{t.kind}{n + 1}") if n else t for t, n in zip(made, before, strict=True))


def refuse_host(p: Profile) -> None:
    """Raises ProfileError where the GPU shares the CPU's memory: nothing is gained by moving there."""
    if p.memory.unified:
        raise ProfileError(f"GPU and CPU of {p.name} share one memory: there is no host tier", hint="write nvme or remote")


def in_host_memory(text: str) -> bool:
    """Whether a tier takes its size from the profile's host memory: the host's, and another host's that is not told."""
    return any(w.kind == "host" or (w.kind == "remote" and w.capacity is None) for w in read(text))


def nowhere(p: Profile) -> Tier:
    """A host tier of no bytes, for a machine whose GPU shares the CPU's memory."""
    return _host_of(p, Wanted("host"), 0)


def nvme_rate(rate: float, latency: float, depth: int, request: int) -> float:
    """Bytes/ns that requests of one size reach with so many under way: no more than the disk's `rate`, and by Little's law
    not more than depth * request in the time that one takes."""
    return min(rate, depth * request / (latency + request / rate))


def _host(p: Profile, w: Wanted) -> Tier:
    refuse_host(p)
    most = int(p.host.capacity.value) if w.pageable else pinnable(p)
    part = " that may be pinned" if most < p.host.capacity.value else ""
    return _host_of(p, w, _no_more(w, most, f"host memory {_whose(p)}{part}"))


def _host_of(p: Profile, w: Wanted, capacity: int) -> Tier:
    far = _far(p, w, capacity)
    share, cpu = (_left(far, p.host.numa_remote.value), _left(far, p.host.cpu_remote.value)) if far else (1.0, 1.0)
    read, write = (share * rate.value / 1e9 if rate else 0.0 for rate in (p.link.kernel_read, p.link.kernel_write))
    take, take_per_byte, give_per_byte = _costs(p, w)
    into, out = (p.host.pageable_h2d, p.host.pageable_d2h) if w.pageable else (p.link.h2d, p.link.d2h)
    latency = round((p.link.latency_synchronised if w.pageable else p.link.latency_queued).value)
    curve = per_ns(p.host.pageable_curve if w.pageable else p.link.size_curve, share)
    curve_out = per_ns(p.host.pageable_curve_d2h if w.pageable else p.link.size_curve_d2h, share) or curve
    way_in, way_out = (way + links for way, links in zip(_over_link(p), _of_all_gpus(p, w.gpus), strict=True))
    return Tier(
        "host", "host", capacity, _narrowest(share * into.value / 1e9, way_in), _narrowest(share * out.value / 1e9, way_out),
        latency, latency, way_in, way_out, COPY_ENGINES, *copies_at_once(p), curve, curve_out, bool(w.pageable), read, write,
        near=share, cpu=cpu, pool=w.pool, take=take, take_per_byte=take_per_byte, give_per_byte=give_per_byte,
    )  # fmt: skip


def _far(p: Profile, w: Wanted, capacity: int) -> float:
    """The share of the tier's bytes that are not on the NUMA node next to the GPU."""
    if w.numa in (LOCAL, REMOTE):
        return float(w.numa == REMOTE)
    if not p.host.numa_nodes:
        said = f"{p.name} does not say how many NUMA nodes its host has"
        raise ProfileError(said, hint="write host.numa_nodes in its profile")
    nodes = int(p.host.numa_nodes.value)
    if w.numa == INTERLEAVE or not capacity:
        return 1 - 1 / nodes
    assert w.numa == FIRST_TOUCH
    return max(0.0, 1 - p.host.capacity.value / nodes / capacity)


def _left(far: float, share: float) -> float:
    """The share that is left of a rate when this share of the bytes is far: near and far ones are gone through one after the
    other, each at its rate, since what limits them is how many requests are under way."""
    return share if far == 1 else 1 / (1 - far + far / share)


def _costs(p: Profile, w: Wanted) -> tuple[float, float, float]:
    """ns that a block of host memory costs by call and by byte, and what giving a byte back does; nothing where all was had
    before.  What it takes to give back memory that is not pinned is unknown, and counted as nothing."""
    if w.pool == READY:
        return 0.0, 0.0, 0.0
    a, gib = p.allocation, float(2**30)
    if w.pageable:
        return 0.0, a.first_touch_per_gib.value / gib, 0.0
    return a.host_alloc.value, a.host_alloc_per_gib.value / gib, a.host_free_per_gib.value / gib if w.pool == FRESH else 0.0


def _narrowest(rate: float, way: tuple[TierLink, ...]) -> float:
    return min(rate, *(link.rate for link in way))


def _of_all_gpus(p: Profile, gpus: int) -> tuple[tuple[TierLink, ...], tuple[TierLink, ...]]:
    """What the GPUs of a node have together, to them and from them: as all do the same at once, each has a like part."""
    if gpus == 1:
        return (), ()
    h = p.host
    said = {"all_h2d": h.all_h2d, "all_d2h": h.all_d2h, "all_both": h.all_both}
    links = {name: TierLink(name, rate.value / 1e9 / gpus) for name, rate in said.items() if rate}
    if not links:
        raise ProfileError(
            f"{p.name} does not say what several GPUs have together of the host's memory",
            hint="write host.all_h2d and host.all_d2h in its profile",
        )
    into = tuple(link for name, link in links.items() if name != "all_d2h")
    return into, tuple(link for name, link in links.items() if name != "all_h2d")


def per_ns(curve: Curve, share: float = 1.0) -> tuple[tuple[float, float], ...]:
    """A curve of a profile in bytes and bytes/ns, or a share of it."""
    return tuple((float(size), share * rate / 1e9) for size, rate in curve)


def _nvme(p: Profile, w: Wanted) -> Tier:
    start, link = p.nvme.latency.value, p.link.latency_queued.value
    disk = [(w.read or p.nvme.read.value) / 1e9, (w.write or p.nvme.write.value) / 1e9]
    read, write = (nvme_rate(rate, start, w.queue_depth, w.request) for rate in disk)
    way_in, way_out = _over_link(p)
    # Through the host each request is passed on when it is there: its last one crosses the link when the disk is done.
    bounce_in, bounce_out = (0.0, 0.0) if w.direct else (link + w.request / way_in[0].rate, link + w.request / way_out[0].rate)
    return Tier(
        "nvme", "nvme", _no_more(w, int(p.nvme.capacity.value), f"the disk of {p.name}"),
        min(read, way_in[0].rate), min(write, way_out[0].rate), round(start + bounce_in), round(start + bounce_out),
        (TierLink("nvme_read", disk[0]), *way_in), (TierLink("nvme_write", disk[1]), *way_out), "nvme", 1, 1,
    )  # fmt: skip


def _peer(p: Profile, w: Wanted) -> Tier:
    if p.memory.unified:
        raise ProfileError(f"{p.name} is one chip with one memory: there is no other GPU's", hint="write nvme or remote")
    capacity = _no_more(w, int(p.memory.capacity.value - p.context.value), f"memory that another GPU has on {p.name}")
    if p.peer:
        rate, latency = p.peer.rate.value / 1e9, round(p.peer.latency.value)
        way_in, way_out = (TierLink("peer_in", rate),), (TierLink("peer_out", rate),)
        return Tier("peer", "peer", capacity, rate, rate, latency, latency, way_in, way_out, "peer", 1, 1)
    # GPUs without links of their own meet over both of their links to the host: up the one and down the other.
    rate, latency = min(p.link.h2d.value, p.link.d2h.value) / 1e9, round(p.link.latency_queued.value)
    return Tier("peer", "peer", capacity, rate, rate, latency, latency, *_over_link(p), COPY_ENGINES, *copies_at_once(p))


def _cxl(p: Profile, w: Wanted) -> Tier:
    if p.cxl is None:
        raise ProfileError(f"{p.name} has no CXL memory", hint="add a section 'cxl' to its profile")
    read, write = p.cxl.read.value / 1e9, p.cxl.write.value / 1e9
    latency = round(p.cxl.latency.value + p.link.latency_queued.value)
    way_in, way_out = _over_link(p)
    return Tier(
        "cxl", "cxl", _no_more(w, int(p.cxl.capacity.value), f"CXL memory of {p.name}"),
        min(read, way_in[0].rate), min(write, way_out[0].rate), latency, latency,
        (TierLink("cxl_read", read), *way_in), (TierLink("cxl_write", write), *way_out), COPY_ENGINES, *copies_at_once(p),
    )  # fmt: skip


def _remote(p: Profile, w: Wanted) -> Tier:
    if p.network is None:
        raise ProfileError(f"{p.name} has no network to another host", hint="add a section 'network' to its profile")
    rate, once = p.network.rate.value / 1e9, p.network.latency.value
    way_in, way_out = _over_link(p)
    return Tier(  # a read is asked for first: twice the way
        "remote", "remote", w.capacity or pinnable(p), min(rate, way_in[0].rate), min(rate, way_out[0].rate),
        round(2 * once), round(once), (TierLink("network_in", rate), *way_in), (TierLink("network_out", rate), *way_out),
        "network", 1, 1,
    )  # fmt: skip


_MAKE: Mapping[str, Callable[[Profile, Wanted], Tier]] = {
    "host": _host, "nvme": _nvme, "peer": _peer, "cxl": _cxl, "remote": _remote,
}  # fmt: skip


def _over_link(p: Profile) -> tuple[tuple[TierLink, TierLink], tuple[TierLink, TierLink]]:
    """The GPU's own link, to it and from it: the direction, and what both directions have together."""
    both = TierLink("both", p.link.both.value / 1e9)
    into, out = (  # what kernels reach may be more than a copy engine does
        max(rate.value, kernels.value if kernels else 0.0) / 1e9
        for rate, kernels in ((p.link.h2d, p.link.kernel_read), (p.link.d2h, p.link.kernel_write))
    )
    return (TierLink("h2d", into), both), (TierLink("d2h", out), both)


def copies_at_once(p: Profile) -> tuple[int, int]:
    """Copies to the device and from it that its copy engines make at once."""
    return int(p.copy_engines.h2d.value), int(p.copy_engines.d2h.value)


def pinnable(p: Profile) -> int:
    """Bytes of host memory that may be pinned."""
    return int(p.host.capacity.value * (p.host.pinned.value if p.host.pinned else 1.0))


def _whose(p: Profile) -> str:
    """Where the size of host memory comes from."""
    return "that the experiment gives" if p.host.capacity.source == GIVEN else f"of {p.name}"


def _no_more(w: Wanted, most: int, what: str) -> int:
    """The capacity that is wanted, or all; ProfileError for more than there is."""
    if w.capacity is not None and w.capacity > most:
        said = f"a tier '{w.kind}' of {show_bytes(w.capacity)} is more than the {show_bytes(most)} of {what}"
        raise ProfileError(said, hint="write a smaller capacity")
    return most if w.capacity is None else w.capacity


def _share_host(p: Profile, wanted: list[Wanted], tiers: list[Tier]) -> list[Tier]:
    """Several host tiers are parts of one memory: those without a capacity get equal parts of what the others leave."""
    hosts = [w for w in wanted if w.kind == "host"]
    open_ = sum(w.capacity is None for w in hosts)
    left = int(p.host.capacity.value) - sum(w.capacity or 0 for w in hosts)
    if left < 0 or (open_ and not left):
        raise ProfileError(f"the host tiers together are more than the {p.host.capacity.text()} {_whose(p)}")
    return [
        replace(tier, capacity=min(tier.capacity, left // open_)) if w.kind == "host" and w.capacity is None else tier
        for w, tier in zip(wanted, tiers, strict=True)
    ]

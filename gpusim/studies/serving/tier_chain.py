"""Tiers of a service: from their words to memories with ways over the machine's links, for each replica."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpusim.base.errors import GpusimError
from gpusim.base.text import join
from gpusim.base.units import BYTES, write
from gpusim.engine.serving.tiering import CopyWay, KvTier
from gpusim.machine.kernels.measured import measured_gpu
from gpusim.machine.serving.codecs import BITS, CPU, GPU, KvCodec, codec_of
from gpusim.machine.serving.shape import ServedModel
from gpusim.machine.topology import transfers
from gpusim.machine.topology.topology import Topology
from gpusim.policies.forms import EvictPolicy
from gpusim.policies.schedule.parts.managers import HostManager
from gpusim.studies.serving.tier_words import PRIVATE, RDMA, TierWord
from gpusim.studies.serving.ways import group_way, of_group, remote_ways, socket_of, way

Group = tuple[str, ...]


@dataclass
class TierMaker:
    """Makes the tiers of all replicas; `rates` of links, bytes/ns, grow with what the tiers need of them.

    Each GPU of a replica keeps and moves its own part, all at once.
    """

    machine: Topology
    model: ServedModel
    words: Sequence[TierWord]
    policies: Mapping[str, EvictPolicy | HostManager]  # by name
    rates: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rates |= transfers.rates(self.machine)
        self.codecs = [codec_of(word.codec, self.model) if word.codec else None for word in self.words]
        _check_codecs(self.words, self.codecs)

    def chain(self, group: Group) -> tuple[KvTier, ...]:
        """The tiers of one replica, nearest first."""
        found, codec = list[KvTier](), None
        for depth, (word, own) in enumerate(zip(self.words, self.codecs, strict=True)):
            begins, codec = codec is None and own is not None, codec or own
            into, out_of = getattr(self, f"_{word.name}")(word, group, depth, codec)
            # What a CPU's codec makes of them crosses no link to the device: the links below it bear more.
            into = self._coded(into, group, codec, "encode" if begins else "", depth == 0)
            out_of = self._coded(out_of, group, codec, "decode", True)
            ratio, pool = codec.ratio if codec else 1.0, "" if word.owner in ("", PRIVATE) else word.name
            name = f"{word.name} of {group[0]}" if not pool else f"{word.name}, shared"
            found.append(
                KvTier(name, word.size // len(group), self.policies[word.policy], into, out_of, ratio=ratio, pool=pool)
            )
        return tuple(found)

    def _coded(self, one: CopyWay, group: Group, codec: KvCodec | None, does: str, device: bool) -> CopyWay:
        """The way with the codec's work, and the device's memory where it ends there."""
        links, rate = one.links, one.rate
        wire = codec.wire if codec else 1.0
        if codec and does:
            most = getattr(codec, does) * wire
            if most < float("inf"):
                name = f"{does} of {group[0]}"
                self.rates[name], links, rate = most, (*links, name), min(rate, most)
        if device:
            memory = self.memory(group)
            passes = codec.passes if codec else 1
            links, rate = (*links, *[memory] * passes), min(rate, self.rates[memory] / passes)
        return replace(one, links=links, rate=rate, wire=wire)

    def memory(self, group: Group) -> str:
        """The link that is the memory of each GPU of a replica: as fast as the model of kernel times has it."""
        name = f"memory of {group[0]}"
        self.rates[name] = measured_gpu(self.machine.profile(group[0])).numbers.bandwidth / 1e9
        return name

    def hand(self, source: Group, target: Group, word: str) -> CopyWay:
        """The way of keys and values from one replica to another, in a codec of the GPUs where one is named."""
        over = group_way(self.machine, source, target)
        codec = codec_of(word, self.model) if word else None
        if codec and codec.on == CPU:
            raise GpusimError(f"GPUs hand nothing over in {word}, which works on the CPU", hint=join(BITS))
        encoded = self._coded(over, source, codec, "encode" if codec else "", True)
        return self._coded(encoded, target, codec, "decode" if codec else "", True)

    def _host(self, word: TierWord, group: Group, depth: int, codec: KvCodec | None) -> tuple[CopyWay, CopyWay]:
        into, out_of = self._links_to_host(group)
        return into, out_of

    def _links_to_host(self, group: Group) -> tuple[CopyWay, CopyWay]:
        machine, sockets = self.machine, [socket_of(self.machine, gpu) for gpu in group]
        out = of_group((way(machine, gpu, socket) for gpu, socket in zip(group, sockets, strict=True)), self.rates)
        back = of_group((way(machine, socket, gpu) for gpu, socket in zip(group, sockets, strict=True)), self.rates)
        return out, back

    def _nvme(self, word: TierWord, group: Group, depth: int, codec: KvCodec | None) -> tuple[CopyWay, CopyWay]:
        """A disk that the replica has for itself, each GPU with its share of the rate."""
        disk, (read, write_) = self.machine.profile(group[0]).nvme, _disk_links(group[0])
        more = codec.ratio if codec and codec.on == CPU else 1.0
        reads, writes = more * disk.read.value / 1e9 / len(group), more * disk.write.value / 1e9 / len(group)
        self.rates |= {read: reads, write_: writes}
        out, back = self._links_to_host(group)
        late = round(disk.latency.value)
        from_ = CopyWay(late + back.latency, min(reads, back.rate), (read, *back.links))
        if depth:
            return CopyWay(late, writes, (write_,)), from_
        return CopyWay(late + out.latency, min(writes, out.rate), (*out.links, write_)), from_

    def _remote(self, word: TierWord, group: Group, depth: int, codec: KvCodec | None) -> tuple[CopyWay, CopyWay]:
        """Memory of another node, over the cards of the replica's host."""
        each = []
        for gpu in group:
            into, out_of, rates = remote_ways(self.machine, gpu, word.network == RDMA, depth > 0)
            self.rates |= rates
            each.append((into, out_of))
        ends = ("remote, write", "remote, read")
        found = []
        for i, end in enumerate(ends):
            ways = [pair[i] for pair in each]
            if word.rate:
                self.rates[end] = word.rate / 1e9
                ways = [replace(one, links=(*one.links, end)) for one in ways]
            found.append(of_group(ways, self.rates))
        return found[0], found[1]


def passed_by_steps(
    machine: Topology, groups: Sequence[Group], memory: Mapping[Group, str]
) -> dict[tuple[int, str], tuple[int, ...]]:
    """Links that steps pass: (engine, link) -> how often products, attention, other kernels and collectives do.

    A collective reads what it sends and writes what comes, and goes around a ring of the GPUs.
    """
    found: dict[tuple[int, str], tuple[int, ...]] = {}
    for e, group in enumerate(groups):
        found[e, memory[group]] = (1, 1, 1, 2 if len(group) > 1 else 0)
        ring = zip(group, (*group[1:], group[0]), strict=True) if len(group) > 1 else ()
        times = Counter(link for a, b in ring for link in way(machine, a, b).links)
        found |= {(e, link): (0, 0, 0, count) for link, count in times.items()}
    return found


def _check_codecs(words: Sequence[TierWord], codecs: Sequence[KvCodec | None]) -> None:
    """What is encoded stays so in all tiers below.  Raises GpusimError for what cannot be."""
    above: KvCodec | None = None
    for depth, (word, own) in enumerate(zip(words, codecs, strict=True)):
        if own and above and own != above:
            raise GpusimError(f"what lies in {word.name} is in {above.word} already, not in {own.word}", hint="name one codec")
        if own and not above and depth and own.on == GPU:
            first = words[0].name
            raise GpusimError(f"{own.word} is made on the GPU, and {word.name} lies below {first}", hint=f"name it at {first}")
        above = above or own
        if above and above.on == CPU and word.name == "remote":
            said = f"remote memory with keys and values in {above.word} is not modelled"
            raise GpusimError(said, hint=f"{join(BITS)}, or no codec")


def check_room(machine: Topology, groups: Sequence[Group], words: Sequence[TierWord]) -> None:
    """Raises GpusimError where hosts or disks have less than the tiers of their replicas."""
    parts, disks, near = Counter[str](), Counter[str](), dict[str, str]()
    for group in groups:
        for gpu in group:
            parts[socket_of(machine, gpu)] += 1
        disks[socket_of(machine, group[0])] += 1
        near[socket_of(machine, group[0])] = group[0]
    for word in words:
        for socket, count in (parts if word.name == "host" else disks if word.name == "nvme" else Counter[str]()).items():
            size = word.size * count // (len(groups[0]) if word.name == "host" else 1)
            if word.name == "host":
                there = machine.nodes[socket].capacity or 0
            else:
                there = int(machine.profile(near[socket]).nvme.capacity.value)
            if size > there:
                said, has = write(size, BYTES), write(there, BYTES)
                raise GpusimError(f"{said} of keys and values do not fit the {word.name} at {socket}, which has {has}",
                                  hint=f"take less, or say what yours has: \"NAME({word.name}.capacity={said})\"")  # fmt: skip


def _disk_links(gpu: str) -> tuple[str, str]:
    """Names of the ways of a replica's disk, which it has for itself."""
    return f"nvme of {gpu}, read", f"nvme of {gpu}, write"

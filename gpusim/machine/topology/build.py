"""From a machine's file, or a word that names machines, to its topology; mistakes are told at their place in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpusim.base.errors import ConfigError, GpusimError, Problem, ProfileError, suggest
from gpusim.base.yaml import document, find, validate
from gpusim.base.yaml.document import Document
from gpusim.machine import catalogue
from gpusim.machine import words as profiles
from gpusim.machine.profile import Profile
from gpusim.machine.topology import words
from gpusim.machine.topology.spec import MachineFile, NodeSpec, WireSpec
from gpusim.machine.topology.topology import Draft, Topology, TopologyLink, TopologyNode

_CLUSTER = re.compile(r"(\d{1,4})\s*x\s+(\S+)(?:\s+over\s+(\S+))?")
_SEVERAL = " + "
MOST_OF_PROFILE = 16
MOST_NODES = 4096
"""Nodes of a machine: more is a mistake of the file."""


def names() -> list[str]:
    """The machines known by name, sorted."""
    return find.names("machine")


def load(word: str, base: Path | None = None) -> Topology:
    """The machine of a name or path, of `4 x hgx-h100` or `hgx-h100 + 2 x dgx-a100 over tcp`; a profile is one GPU and host.

    So many of a profile, `4 x l40s`, are GPUs of one host; on a network they are none.  A profile may have numbers of its own,
    `4 x l40s(host.capacity=64 GB)`.  Raises ProfileError (unknown), ConfigError (wrong) or UnitError (a number).
    """
    known = names()
    if _SEVERAL in word:
        return _mixed(word, base)
    if word.rstrip().endswith(")"):
        return of_profile(profiles.load(word, base), profiles.counted(word)[0])
    if match := _CLUSTER.fullmatch(word.strip()):
        if match[2] not in known and match[2] in catalogue.names() and not match[3]:
            return of_profile(catalogue.load(match[2]), int(match[1]))
        return cluster(load(match[2], base), int(match[1]), match[3] or "")
    if word not in known and word in catalogue.names():
        return of_profile(catalogue.load(word))
    if (one := word.partition(" over ")[0].strip()) != word and one in known:
        raise GpusimError(f"'{word}' is one machine, and nothing of it goes over a network", hint=f"write 2 x {word}")
    return load_file(find.find_machine(word, base))


def file_of(word: str, base: Path | None = None) -> Path | None:
    """The file of the whole machine that a word means; None where it means none, such as a profile's name.

    Raises GpusimError for machines of several kinds, which have no one file.
    """
    if _SEVERAL in word:
        raise GpusimError(f"'{word}' are several kinds of machines, which run no program", hint="gpusim serve takes them")
    match = _CLUSTER.fullmatch(word.strip())
    name = match[2] if match else word
    if name in catalogue.names():
        return None
    try:
        found = find.find("machine", name, base)
    except GpusimError:
        return None
    data = document.read(found).data
    return found if isinstance(data, dict) and "nodes" in data else None


def load_found(file: Path, word: str) -> Topology:
    """The machine that a word means whose file has been found.  Raises ConfigError, GpusimError as `load`."""
    match = _CLUSTER.fullmatch(word.strip())
    return cluster(load_file(file), int(match[1]), match[3] or "") if match else load_file(file)


def load_file(path: Path) -> Topology:
    """The machine in a YAML file.  Raises ConfigError with all its mistakes."""
    return _topology(document.read(path), path.parent)


def loads(text: str, file: str = "<text>") -> Topology:
    """The machine in YAML text.  Raises ConfigError."""
    return _topology(document.loads(text, file), None)


def of_profile(profile: Profile, count: int = 1) -> Topology:
    """The machine of one GPU that a profile is; so many of them are an assumption: each has its own link to one socket.

    Those whose profile has NVLinks are on an NVSwitch.  Cards for workstations reach each other through the host alone, others
    past its root.  Raises GpusimError for none.
    """
    if not 1 <= count <= MOST_OF_PROFILE:
        raise GpusimError(f"{count} GPUs on one host", hint=f"from 1 to {MOST_OF_PROFILE}")
    gpus, reach = [f"gpu{i}" for i in range(count)], "none" if profile.name.startswith(("rtx", "gtx", "titan")) else "socket"
    wiring = "one GPU" if count == 1 else "assumed"
    wires = {"link": WireSpec(kind="pcie", between=tuple(f"{gpu} - socket0" for gpu in gpus))}
    switch = {"nvswitch": NodeSpec(kind="nvswitch")} if count > 1 and profile.peer is not None else {}
    if switch:
        wires["nvlink"] = WireSpec(kind="nvlink", between=tuple(f"{gpu} - nvswitch" for gpu in gpus))
    nodes = {**dict.fromkeys(gpus, NodeSpec(kind="gpu", profile=profile.name)), "socket0": NodeSpec(kind="socket"), **switch}
    said: dict[str, Any] = {
        "name": profile.name if count == 1 else f"{count} x {profile.name}", "summary": profile.summary, "sources": {},
        "wiring": wiring, "cpu": "intel",
        "nodes": nodes, "wires": wires,
        "peers": {"pcie": reach if count > 1 else "none", "source": wiring},
    }  # fmt: skip
    draft = Draft({gpu: TopologyNode(gpu, "gpu", profile) for gpu in gpus} | {
        "socket0": TopologyNode("socket0", "socket", None, int(profile.host.capacity.value), profile.host.bandwidth.value),
    } | {name: TopologyNode(name, "nvswitch", None) for name in switch})  # fmt: skip
    for wire in wires.values():
        for text in wire.between:
            for pair in words.pairs(text):
                _wire(draft, wire, pair)
    return Topology(said["name"], MachineFile(**said), draft.nodes, draft.links)


def cluster(one: Topology, count: int, network: str = "") -> Topology:
    """So many of these machines, their cards wired to one network without a bottleneck of its own.

    Raises GpusimError where the machine has no cards, or no such network.
    """
    return _wired(_copies(one, count), f"{count} x {one.name}", network)


def _copies(one: Topology, count: int) -> list[Topology]:
    if count < 1:
        raise GpusimError(f"a cluster of {count} machines has no GPU", hint=f"write {one.name}, or 2 x {one.name}")
    if count * len(one.nodes) > MOST_NODES:
        raise GpusimError(f"{count} x {one.name} has more than {MOST_NODES} nodes")
    return [one] * count


def _mixed(word: str, base: Path | None) -> Topology:
    """Machines of several kinds on one network, the GPUs of the first first; see `load`."""
    said, _, network = word.partition(" over ")
    hosts, names = list[Topology](), list[str]()
    for part in said.split(_SEVERAL):
        match = _CLUSTER.fullmatch(part.strip())
        count, one = (int(match[1]), load(match[2], base)) if match else (1, load(part.strip(), base))
        hosts += _copies(one, count)
        names.append(f"{count} x {one.name}" if match else one.name)
    return _wired(hosts, _SEVERAL.join(names), network.strip())


def _wired(hosts: list[Topology], title: str, network: str) -> Topology:
    """Hosts on a network: each card has the rate of its own machine, latencies are those of the first."""
    name = network or next(iter(hosts[0].file.networks), "")
    draft, others = Draft({"network": TopologyNode("network", "network")}), dict[str, MachineFile]()
    for i, one in enumerate(hosts):
        if one.network is not None:
            raise GpusimError(f"'{one.name}' is a cluster already")
        known = one.file.networks
        if not known or not one.of_kind("nic"):
            raise GpusimError(f"machine '{one.name}' has no network to which others could be wired")
        if name not in known:
            raise GpusimError(f"machine '{one.name}' has no network '{name}'", hint=suggest(name, known))
        own, chosen = {node: f"n{i}.{node}" for node in one.nodes}, known[name]
        draft.nodes |= {own[n]: replace(node, name=own[n]) for n, node in one.nodes.items()}
        draft.links |= {(own[a], own[b]): replace(link, a=own[a], b=own[b]) for (a, b), link in one.links.items()}
        if one.file is not hosts[0].file:
            others |= dict.fromkeys(own.values(), one.file)
        for nic in one.of_kind("nic"):
            for a, b in ((own[nic], "network"), ("network", own[nic])):
                nominal = chosen.nominal.value if chosen.nominal else None
                half = chosen.latency.value / 2  # one way passes a card's wire at each end
                draft.links[a, b] = TopologyLink(a, b, "network", 1, chosen.rate.value, half, None, nominal)
    file = hosts[0].file
    return Topology(f"{title} over {name}", file, draft.nodes, draft.links, file.networks[name], name, others)


def _topology(doc: Document, base: Path | None) -> Topology:
    sources: Any = doc.data.get("sources") if isinstance(doc.data, dict) else None
    said = validate.build(MachineFile, doc, context=sources if isinstance(sources, dict) else {})
    draft, problems = Draft(), list[Problem]()
    problems += _place_nodes(doc, said, draft, base)
    if not problems:
        problems += _place_wires(doc, said, draft)
    made = Topology(said.name, said, draft.nodes, draft.links)
    if not problems:
        problems += _questions(doc, made)
    if problems:
        raise ConfigError(sorted(problems, key=lambda p: (p.line, p.col)))
    return made


def _place_nodes(doc: Document, said: MachineFile, draft: Draft, base: Path | None) -> Iterator[Problem]:
    for key, spec in said.nodes.items():
        place = ("nodes", key)
        try:
            names_of = words.nodes(key)
        except GpusimError as error:
            yield doc.problem(place, error.message, error.hint, at_key=True)
            continue
        profile = None
        if (spec.profile is None) == (spec.kind == "gpu"):
            said_so = "is a gpu without a profile" if spec.kind == "gpu" else f"is a {spec.kind}, which has no profile"
            yield doc.problem(place, f"'{key}' {said_so}", at_key=True)
        elif spec.profile is not None:
            try:
                profile = catalogue.load(spec.profile, base)
            except ProfileError as error:
                yield doc.problem((*place, "profile"), error.message, error.hint)
        for name in names_of:
            if name in draft.nodes:
                yield doc.problem(place, f"node '{name}' is there twice", at_key=True)
            size, rate = spec.capacity, spec.bandwidth
            draft.nodes[name] = TopologyNode(
                name, spec.kind, profile, int(size.value) if size else None, rate.value if rate else None
            )
    if len(draft.nodes) > MOST_NODES:
        yield doc.problem(("nodes",), f"{len(draft.nodes)} nodes are more than {MOST_NODES}", at_key=True)


def _place_wires(doc: Document, said: MachineFile, draft: Draft) -> Iterator[Problem]:
    for key, spec in said.wires.items():
        for i, text in enumerate(spec.between):
            place = ("wires", key, "between", i)
            try:
                for pair in words.pairs(text):
                    _wire(draft, spec, pair)
            except GpusimError as error:
                yield doc.problem(place, error.message, error.hint)


def _wire(draft: Draft, spec: WireSpec, pair: words.WiredPair) -> None:
    """Both directions of the wires of a pair.  Raises GpusimError."""
    for name in (pair.a, pair.b):
        if name not in draft.nodes:
            raise GpusimError(f"there is no node '{name}'", hint=suggest(name, draft.nodes))
    if (pair.a, pair.b) in draft.links:
        raise GpusimError(f"'{pair.a}' and '{pair.b}' are wired twice", hint=f"write 2 x {pair.a} - {pair.b} for two wires")
    ends = [draft.nodes[name] for name in (pair.a, pair.b)]
    gpu = next((end.profile for end in ends if end.profile), None)
    to_host = spec.kind in ("pcie", "c2c") and gpu is not None
    for a, b in ((pair.a, pair.b), (pair.b, pair.a)):
        rate = spec.rate.value * pair.wires if spec.rate else _own_rate(spec, gpu, draft.nodes[a].kind == "gpu")
        latency = spec.latency.value if spec.latency else _own_latency(spec, gpu)
        both = spec.both.value * pair.wires if spec.both else gpu.link.both.value if to_host and gpu and not spec.rate else None
        nominal = spec.nominal.value * pair.wires if spec.nominal else _own_nominal(spec, gpu)
        draft.links[a, b] = TopologyLink(a, b, spec.kind, pair.wires, rate, latency, both, nominal, to_host)


def _own_rate(spec: WireSpec, gpu: Profile | None, leaves: bool) -> float:
    if gpu is not None and spec.kind in ("pcie", "c2c"):
        return gpu.link.d2h.value if leaves else gpu.link.h2d.value
    if gpu is not None and spec.kind == "nvlink" and gpu.peer is not None:
        return gpu.peer.rate.value
    raise GpusimError(
        f"a wire of kind {spec.kind} needs a rate here", hint="write rate: {value: 25 GB/s, basis: ..., source: ...}"
    )


def _own_latency(spec: WireSpec, gpu: Profile | None) -> float:
    if gpu is None:
        return 0.0
    if spec.kind == "nvlink":
        return gpu.peer.latency.value if gpu.peer else 0.0
    return gpu.link.latency_queued.value if spec.kind in ("pcie", "c2c") else 0.0


def _own_nominal(spec: WireSpec, gpu: Profile | None) -> float | None:
    if gpu is None or spec.rate is not None:
        return None
    if spec.kind == "nvlink":
        return gpu.peer.nominal.value if gpu.peer else None
    return gpu.link.nominal.value if spec.kind in ("pcie", "c2c") else None


def _questions(doc: Document, made: Topology) -> Iterator[Problem]:
    """What can be asked only of the whole."""
    for question in (_connected, _cited, _distances):
        yield from question(doc, made)


def _connected(doc: Document, made: Topology) -> Iterator[Problem]:
    reached, todo = set[str](), [next(iter(made.nodes))]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += [link.b for link in made.neighbours[name]]
    if lost := [name for name in made.nodes if name not in reached]:
        first = next(iter(made.nodes))
        key = next(key for key in made.file.nodes if lost[0] in words.nodes(key))
        yield doc.problem(("nodes", key), f"no wire leads from '{first}' to '{lost[0]}': the machine falls apart", at_key=True)
    for name in made.gpus:
        if not any(link.kind in ("pcie", "c2c") for link in made.neighbours[name]):
            key = next(key for key in made.file.nodes if name in words.nodes(key))
            yield doc.problem(("nodes", key), f"'{name}' has no wire to a host", "add one of kind pcie or c2c", at_key=True)


def _cited(doc: Document, made: Topology) -> Iterator[Problem]:
    cited: list[tuple[tuple[str, ...], str]] = [(("wiring",), made.file.wiring), (("peers", "source"), made.file.peers.source)]
    if made.file.numa:
        cited.append((("numa", "source"), made.file.numa.source))
    for place, key in cited:
        if key not in made.file.sources:
            yield doc.problem(place, f"'{key}' is not in the table 'sources'", suggest(key, made.file.sources))


def _distances(doc: Document, made: Topology) -> Iterator[Problem]:
    count = len(made.of_kind("socket"))
    if made.file.numa and [len(row) for row in made.file.numa.rows] != [count] * count:
        yield doc.problem(
            ("numa", "rows"), f"NUMA distances of {count} sockets are {count} rows of {count} numbers", at_key=True
        )

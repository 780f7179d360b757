"""What is known about whole machines, as plain rows: their list, wires, nodes below each socket, and routes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from gpusim.base.errors import GpusimError
from gpusim.base.units import BYTES, RATE, TIME, show
from gpusim.machine.topology import build, routes, transfers, words
from gpusim.machine.topology.routes import TransferRoute
from gpusim.machine.topology.spec import WireSpec
from gpusim.machine.topology.topology import DIRECT, INSIDE, Topology

Row = dict[str, str]
SIZES = (4096, 1 << 20, 1 << 26)
"""Bytes of copies whose time a route tells."""
LETTERS = {
    "X": "itself", "NV#": "so many NVLinks", "NVS": "through NVSwitch", "OPT": "over the optical fabric",
    "PIX": "past one switch", "PHB": "past one socket", "SYS": "past two sockets", "MEM": "staged through the host's memory",
    "NET": "over network cards", "-": "no route",
}  # fmt: skip
"""Ways between two GPUs, for the most part as nvidia-smi writes them."""


def overview() -> list[Row]:
    """One row for each machine that is known by name."""
    return [_overview(build.load(name)) for name in build.names()]


def _overview(made: Topology) -> Row:
    gpus = Counter(made.profile(gpu).name for gpu in made.gpus)
    return {
        "machine": made.name,
        "gpus": ", ".join(f"{count} x {name}" for name, count in gpus.items()),
        "hosts": str(made.hosts),
        "between gpus": ", ".join(ways) if (ways := _kinds(made)) else "",
        "networks": ", ".join(made.file.networks),
        "estimate": "yes" if made.file.estimate else "",
    }


def _kinds(made: Topology) -> list[str]:
    """Of the first GPU to the others."""
    letters = [letter(made, made.gpus[0], other) for other in made.gpus[1:]]
    return list(dict.fromkeys(letters))


def wires(made: Topology) -> list[Row]:
    """Wires by kind: how many, and their rates, each with its basis and source."""
    rows = []
    for name, spec in made.file.wires.items():
        pairs = [pair for text in spec.between for pair in words.pairs(text)]
        rows.append({"wires": name, "kind": spec.kind, "pairs": str(len(pairs)), **_rates(made, spec, pairs)})
    if made.network:
        chosen = made.network
        rows.append({
            "wires": made.network_name, "kind": "network", "pairs": str(len(made.of_kind("nic"))),
            "rate": chosen.rate.text(digits=4), "both": "",
            "nominal": chosen.nominal.text(digits=4) if chosen.nominal else "", "latency": chosen.latency.text(digits=3),
            "basis": chosen.rate.basis, "source": chosen.rate.source,
        })  # fmt: skip
    return rows


def _rates(made: Topology, spec: WireSpec, pairs: list[words.WiredPair]) -> Row:
    prefix = "n0." if made.network else ""
    ends = [(prefix + pairs[0].a, prefix + pairs[0].b)]
    there, back = made.links[ends[0]], made.links[ends[0][::-1]]
    each = pairs[0].wires
    rate = show(there.rate / each, RATE, 4)
    if back.rate != there.rate:
        rate += f", back {show(back.rate / each, RATE, 4)}"
    return {
        "rate": rate,
        "both": show(there.both / each, RATE, 4) if there.both else "",
        "nominal": show(there.nominal / each, RATE, 4) if there.nominal else "",
        "latency": show(there.latency, TIME, 3) if there.latency else "",
        "basis": spec.rate.basis if spec.rate else "the profile's",
        "source": spec.rate.source if spec.rate else "",
    }


def tree(made: Topology) -> Iterator[str]:
    """Lines: each host, its sockets, and what is below them."""
    for host in sorted(set(made.host.values())):
        here = [name for name in made.nodes if made.host.get(name) == host]
        yield f"host {host}"
        seen: set[str] = set()
        for socket in (name for name in here if made.nodes[name].kind == "socket"):
            yield from _below(made, socket, "  ", seen)
    for name, node in made.nodes.items():
        if node.kind in ("nvswitch", "network", "cxl"):
            joined = Counter(made.nodes[link.b].kind for link in made.neighbours[name])
            yield f"{name} ({_memory(made, name) or node.kind}): " + ", ".join(f"{n} x {kind}" for kind, n in joined.items())


def _below(made: Topology, name: str, indent: str, seen: set[str]) -> Iterator[str]:
    seen.add(name)
    node = made.nodes[name]
    about = node.profile.name if node.profile else _memory(made, name)
    yield f"{indent}{name}" + (f"  {about}" if about else "")
    for link in made.neighbours[name]:
        if link.kind in INSIDE and link.b not in seen and made.nodes[link.b].kind != "socket" and node.kind != "gpu":
            yield from _below(made, link.b, indent + "  ", seen)


def _memory(made: Topology, name: str) -> str:
    node = made.nodes[name]
    parts = [show(node.capacity, BYTES, 4)] if node.capacity else []
    return ", ".join(parts + ([show(node.bandwidth, RATE, 4)] if node.bandwidth else []))


def letter(made: Topology, a: str, b: str) -> str:
    """How bytes go between two GPUs, as in LETTERS; NV2 for two links."""
    if a == b:
        return "X"
    if (direct := made.links.get((a, b))) and direct.kind in DIRECT:
        return f"NV{direct.count}" if direct.kind == "nvlink" else "OPT"
    try:
        route = routes.between(made, a, b)
    except GpusimError:
        return "-"
    kinds = {link.kind for link in route.links}
    if kinds & set(DIRECT):
        return "OPT" if "optical" in kinds else "NVS"
    if "network" in kinds:
        return "NET"
    if route.staged:
        return "MEM"
    sockets = sum(made.nodes[link.b].kind == "socket" for link in route.links)
    return ("PIX", "PHB", "SYS")[min(2, sockets)]


def matrix(made: Topology) -> list[Row]:
    """The ways between GPUs, one row each."""
    return [{"": a, **{b: letter(made, a, b) for b in made.gpus}} for a in made.gpus]


def letters(rows: list[Row]) -> Row:
    """What the words of such a matrix mean."""
    used = {re.sub(r"NV\d+", "NV#", word) for row in rows for word in row.values()}
    return {word: said for word, said in LETTERS.items() if word in used}


def hops(route: TransferRoute) -> list[Row]:
    """The links of a route, one row each."""
    return [
        {
            "leg": str(i + 1) if len(route.legs) > 1 else "", "link": link.name, "kind": link.kind,
            "rate": show(link.rate, RATE, 4), "both": show(link.both, RATE, 4) if link.both else "",
        }
        for i, leg in enumerate(route.legs) for link in leg
    ]  # fmt: skip


def copies(made: Topology, route: TransferRoute) -> list[Row]:
    """Copies along a route that nothing else uses: bytes, time and rate."""
    rows = []
    for size in SIZES:
        ns = transfers.time_alone(made, route, size)
        rows.append({"bytes": show(size, BYTES, 4), "time": show(ns, TIME, 4), "rate": show(size / ns * 1e9, RATE, 4)})
    return rows

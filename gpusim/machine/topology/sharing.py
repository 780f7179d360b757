"""What programs on the devices of a machine share, in the words of the engine that runs them on one clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpusim.base.errors import GpusimError, suggest
from gpusim.machine.topology import routes, transfers
from gpusim.machine.topology.topology import DIRECT, INSIDE, Topology

SharedLink = str | tuple[int, str]
"""Of the machine, by name; or of a program, by its number and the name that its own device has for it."""
_OUT, _IN, _BOTH = "d2h", "h2d", "both"


@dataclass(frozen=True)
class SharedLinks:
    """Links between the devices.

    rates   bytes/ns by name
    beyond  of each device: name of one of its own links -> the shared ones that its bytes pass as well
    own     name in the machine -> (device, the name that it has there), for links that a device's profile has itself
    """

    rates: Mapping[str, float]
    beyond: tuple[Mapping[str, tuple[str, ...]], ...]
    own: Mapping[str, tuple[int, str]]

    def route(self, names: Iterable[str]) -> tuple[SharedLink, ...]:
        """These links as the engine knows them."""
        return tuple(self.own.get(name, name) for name in names)


def shared(machine: Topology, devices: Sequence[str]) -> SharedLinks:
    """Links of programs that run on these GPUs.  Raises GpusimError for a GPU that is not there, or is named twice."""
    own: dict[str, tuple[int, str]] = {}
    for i, gpu in enumerate(devices):
        if gpu not in machine.gpus:
            raise GpusimError(f"machine '{machine.name}' has no GPU '{gpu}'", hint=suggest(gpu, machine.gpus))
        if gpu in devices[:i]:
            raise GpusimError(f"two programs cannot have '{gpu}' of machine '{machine.name}' each for itself")
        for link in machine.neighbours[gpu]:
            if link.own:
                own |= {link.name: (i, _OUT), f"{link.b}>{gpu}": (i, _IN), link.pair: (i, _BOTH)}
    rates = {name: rate for name, rate in transfers.rates(machine).items() if name not in own}
    return SharedLinks(rates, tuple(_beyond(machine, gpu, own) for gpu in devices), own)


def _beyond(machine: Topology, gpu: str, own: Mapping[str, tuple[int, str]]) -> dict[str, tuple[str, ...]]:
    """Where copies to and from the host, and to peers behind one switch, go on."""
    socket = routes.nearest(machine, gpu, "socket")
    found: dict[str, tuple[str, ...]] = {}
    for name, a, b in ((_OUT, gpu, socket), (_IN, socket, gpu)):
        links = routes.walk(machine, a, b, lambda link: link.kind in INSIDE, ("switch", "socket")) or ()
        found[name] = tuple(each for each in transfers.passed(machine, links) if each not in own)
    ports = [link for link in machine.neighbours[gpu] if link.kind in DIRECT]
    if len(ports) == 1:  # to several it depends on the peer
        found |= {"peer": (ports[0].name,), "peer_in": (f"{ports[0].b}>{gpu}",)}
    return found

"""GPUs that meet another way than over links of their own: a machine whose copies to a peer take that way."""

from __future__ import annotations

from dataclasses import replace

from gpusim.machine.profile import Peer, Profile, changed

LINKS, PCIE, HOST = "links", "pcie", "host"
"""Over links between GPUs; over the links to the host and past its memory; through the host's memory."""

_STAGED = 0.7
"""Share of the slower direction that copies by way of the host's memory reach: 0.67 on an H100's host, 0.70 on an A100's."""
_STAGED_BOTH = 1.25
"""Of that, both directions together: 1.4 on an H100's host, 1.08 on eight RTX 4090 (p2pBandwidthLatencyTest)."""
_STAGED_LATENCY = 14_000.0
"""ns of a small write by way of the host's memory: 12 to 25 us on these."""


def staged(profile: Profile) -> tuple[float, float]:
    """bytes/s of a copy by way of the host's memory, and its ns beside the bytes."""
    link = profile.link
    rate = link.staged.value if link.staged else _STAGED * min(link.h2d.value, link.d2h.value)
    return rate, link.staged_latency.value if link.staged_latency else _STAGED_LATENCY


def meeting(profile: Profile, way: str, both: bool = False) -> Profile:
    """The machine whose copies to a peer go that way; `both`: while the peer copies as much back.

    What the profile does not say follows by the rules above.
    """
    link = profile.link
    if way == LINKS:
        if profile.peer is None or not both:
            return profile
        total = profile.peer.both.value if profile.peer.both else 2 * profile.peer.rate.value
        return changed(profile, "peer.rate", total / 2)
    slower, latency = min(link.h2d.value, link.d2h.value), link.latency_queued.value
    if way == HOST:
        rate, latency = staged(profile)
        together = link.staged_both.value if link.staged_both else _STAGED_BOTH * rate
    else:
        rate = link.peer.value if link.peer else slower
        together = link.peer_both.value if link.peer_both else 2 * rate
    peer = Peer(kind=f"{link.kind}, {way}", nominal=link.nominal, rate=link.h2d, latency=link.latency_queued)
    machine = changed(replace(profile, peer=peer), "peer.rate", together / 2 if both else rate)
    return changed(machine, "peer.latency", latency)

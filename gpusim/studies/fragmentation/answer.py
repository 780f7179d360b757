"""What the OOM doctor answers: causes, remedies, or the reason why there is no advice."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.policies.trials.allocator_replay import ENDLESS
from gpusim.studies.fragmentation.growth import Leak, Steps
from gpusim.studies.fragmentation.holders import Holder
from gpusim.studies.fragmentation.moment import Moment

# kind -> what it means; `bytes` of a cause is what this part of the text measures.
KINDS = {
    "shortage": "live tensors and the request exceed what the allocator may hold: bytes that are missing",
    "impossible": "the request alone exceeds what the allocator may hold: bytes that are missing",
    "fragmentation": "enough is free for the request, but not usable for it: free bytes of this kind",
    "leak": "tensors of every step are never freed: bytes of them that are live",
    "foreign": "memory outside of PyTorch's allocator: bytes of it",
    "cached": "whole segments that the allocator keeps although nothing lives in them: bytes of them",
    "other_device": "the request failed on another device than the one asked about: bytes requested there",
}


@dataclass(frozen=True)
class Cause:
    """One reason.

    kind    one of KINDS
    bytes   as KINDS says for each
    detail  a sentence; of a fragmentation it begins with pieces, stream, pool, oversize, private_pool or rounding
    """

    kind: str
    bytes: int
    detail: str = ""


@dataclass(frozen=True)
class Remedy:
    """One change, simulated on the program as it ran.

    kind       "setting" or "program"
    setting    the value for PYTORCH_CUDA_ALLOC_CONF ("" for none); of a program the change in words
    held       bytes held at the peak under it, between `low` and `high` where the recording leaves the start open
    saves      bytes fewer than the program's own replay holds
    serves     every request succeeds within the device's limit, the failed ones included, at `high` too
    """

    kind: str
    setting: str
    held: int
    low: int
    high: int
    saves: int
    serves: bool


@dataclass(frozen=True)
class OomAnswer:
    """What the doctor says of one program on one device.

    causes   most bytes first; empty when nothing is wrong
    advice   best first; empty: leave it as it is
    refusal  why no advice can be given, "" when it can

    verdict  one sentence
    moment   the failed request or the peak; None without any event
    limit    bytes that the allocator could hold then; device: were nothing else on the device; ENDLESS where unknown
    holders  "stack", "module", "phase", "role" -> live bytes at the moment
    leaks    what every step leaves behind; end: bytes live at the recording's end
    """

    causes: list[Cause] = field(default_factory=list)
    advice: list[Remedy] = field(default_factory=list)
    refusal: str = ""
    name: str = ""
    verdict: str = ""
    moment: Moment | None = None
    limit: int = ENDLESS
    device: int = ENDLESS
    holders: dict[str, list[Holder]] = field(default_factory=dict)
    leaks: list[Leak] = field(default_factory=list)
    steps: Steps | None = None
    end: int = 0

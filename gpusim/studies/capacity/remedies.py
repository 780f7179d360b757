"""What is tried when a program does not fit, in order: what changes least comes first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from gpusim.base.errors import GpusimError
from gpusim.machine.profile import Profile
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.programs.transforms import check
from gpusim.trace.roles import STEP, phase_kinds
from gpusim.trace.trace import Trace

SWAPPING = "swapping"  # no transform: what the machine does


@dataclass(frozen=True)
class FitRemedy:
    """A chain of transforms, and whether tensors are swapped to host memory as well.

    gpus  how many GPUs it takes
    """

    chain: str = "none"
    swap: bool = False
    gpus: int = 1

    def __str__(self) -> str:
        parts = ([] if self.chain == "none" else [self.chain]) + ([SWAPPING] if self.swap else [])
        return " | ".join(parts) or "as it is"

    def lacks(self, profile: Profile) -> str:
        """What the machine does not have that it takes; nothing otherwise."""
        if (self.swap or "offload" in self.chain) and profile.memory.unified:
            return "the machine has no other memory"
        return "" if self.gpus == 1 or profile.peer is not None else "the profile names no links between GPUs"


AS_IT_IS = FitRemedy()
GPUS = 8  # that are tried where nothing is said
_TRAINING = (
    AS_IT_IS,
    FitRemedy("checkpointing"),
    FitRemedy(swap=True),
    FitRemedy("offload"),
    FitRemedy("checkpointing | offload"),
    FitRemedy("checkpointing | offload(what=all)"),
    FitRemedy("checkpointing", swap=True),
)
_TRAINING_TOGETHER = (
    "zero(stage=2,ranks={gpus})", "zero(stage=3,ranks={gpus})", "checkpointing | zero(stage=3,ranks={gpus})",
)  # fmt: skip
_INFERENCE = (AS_IT_IS, FitRemedy(swap=True), FitRemedy("offload(what=parameters)"))
_INFERENCE_TOGETHER = ("tensor_parallel(ranks={gpus})",)


def default(trace: Trace, gpus: int = GPUS) -> tuple[FitRemedy, ...]:
    """Those for a program that trains, or for one that does not; the last of them take so many GPUs."""
    if not trace.ops:
        return (AS_IT_IS,)
    trains = (phase_kinds(trace) == STEP).any()
    alone, together = (_TRAINING, _TRAINING_TOGETHER) if trains else (_INFERENCE, _INFERENCE_TOGETHER)
    return (*alone, *(FitRemedy(chain.format(gpus=gpus), gpus=gpus) for chain in together))


def within(remedies: Sequence[FitRemedy], gpus: int | None) -> tuple[FitRemedy, ...]:
    """Those for which so many GPUs are enough; None: as many as each takes.  Raises GpusimError for one that needs more."""
    for remedy in remedies:
        if gpus is not None and remedy.gpus > gpus:
            raise GpusimError(f"'{remedy}' takes {remedy.gpus} GPUs, and {gpus} are there", hint=f"write ranks={gpus}")
    return tuple(remedies)


def named(texts: list[str], own: Registry = SHIPPED) -> tuple[FitRemedy, ...]:
    """As it is, then what the user names: "checkpointing | swapping"; GPUs as the parameter `ranks` says."""
    found = [AS_IT_IS]
    for text in texts:
        parts = [part.strip() for part in text.split("|") if part.strip()]
        for part in parts:
            if part != SWAPPING and get_close_matches(part, [SWAPPING]):
                raise GpusimError(f"there is no transform '{part}'", hint=f"did you mean '{SWAPPING}'?")
        ranks = [int(number) for number in re.findall(r"ranks\s*=\s*(\d+)", text)]
        chain = " | ".join(part for part in parts if part != SWAPPING) or "none"
        check(chain, own)
        found.append(FitRemedy(chain, SWAPPING in parts, max(ranks, default=1)))
    return tuple(found)

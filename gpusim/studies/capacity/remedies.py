"""What is tried when a program does not fit, in order: what changes least comes first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from gpusim.base.errors import GpusimError
from gpusim.machine.profile import Profile
from gpusim.programs.transforms import check
from gpusim.trace.roles import STEP, phase_kinds
from gpusim.trace.trace import Trace

SWAPPING = "swapping"  # no transform: what the machine does


@dataclass(frozen=True)
class Remedy:
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


AS_IT_IS = Remedy()
_TRAINING = (
    AS_IT_IS,
    Remedy("checkpointing"),
    Remedy(swap=True),
    Remedy("offload"),
    Remedy("checkpointing | offload"),
    Remedy("checkpointing | offload(what=all)"),
    Remedy("checkpointing", swap=True),
    Remedy("zero(stage=2,ranks=8)", gpus=8),
    Remedy("zero(stage=3,ranks=8)", gpus=8),
    Remedy("checkpointing | zero(stage=3,ranks=8)", gpus=8),
)
_INFERENCE = (AS_IT_IS, Remedy(swap=True), Remedy("offload(what=parameters)"), Remedy("tensor_parallel(ranks=8)", gpus=8))


def default(trace: Trace) -> tuple[Remedy, ...]:
    """Those for a program that trains, or for one that does not."""
    if not trace.ops:
        return (AS_IT_IS,)
    return _TRAINING if (phase_kinds(trace) == STEP).any() else _INFERENCE


def named(texts: list[str]) -> tuple[Remedy, ...]:
    """As it is, then what the user names: "checkpointing | swapping"; GPUs as the parameter `ranks` says."""
    found = [AS_IT_IS]
    for text in texts:
        parts = [part.strip() for part in text.split("|") if part.strip()]
        for part in parts:
            if part != SWAPPING and get_close_matches(part, [SWAPPING]):
                raise GpusimError(f"there is no transform '{part}'", hint=f"did you mean '{SWAPPING}'?")
        ranks = [int(number) for number in re.findall(r"ranks\s*=\s*(\d+)", text)]
        chain = " | ".join(part for part in parts if part != SWAPPING) or "none"
        check(chain)
        found.append(Remedy(chain, SWAPPING in parts, max(ranks, default=1)))
    return tuple(found)

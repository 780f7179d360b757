"""What is assumed of the machine's side: the allocator's settings and the CUDA context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpusim.base.errors import ProfileError
from gpusim.base.units import show_bytes
from gpusim.machine.profile import Profile
from gpusim.policies import registry


@dataclass(frozen=True)
class AllocatorSettings:
    """conf: as in PYTORCH_CUDA_ALLOC_CONF; context: bytes of the CUDA context and of libraries, None: each profile's."""

    conf: str = ""
    context: int | None = None

    @property
    def place(self) -> dict[str, Any]:
        """PyTorch's allocator with these settings, as `registry.get("place", ...)` takes it."""
        return {"name": "pytorch", "params": {"conf": self.conf}}

    def allocator(self) -> Any:
        return registry.get("place", self.place)

    def room(self, profile: Profile) -> int:
        """Bytes of the GPU's memory that are left to the program.  Raises ProfileError where none are."""
        taken = profile.context.value if self.context is None else self.context
        left = int(profile.memory.capacity.value - taken)
        if left <= 0:
            has = f"the {profile.memory.capacity.text()} of {profile.name}"
            said = f"a CUDA context of {show_bytes(int(taken))} leaves nothing of {has}"
            raise ProfileError(said, hint="name a smaller context, or larger machines")
        return left


USUAL = AllocatorSettings()

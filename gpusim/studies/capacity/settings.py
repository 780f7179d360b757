"""What is assumed of the machine's side: the allocator's settings and the CUDA context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
        """Bytes of the GPU's memory that are left to the program."""
        return int(profile.memory.capacity.value - (profile.context.value if self.context is None else self.context))


USUAL = AllocatorSettings()

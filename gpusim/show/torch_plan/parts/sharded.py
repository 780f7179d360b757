"""Parameters, gradients and optimizer state spread over the ranks (FSDP2), or kept on the host."""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

RANKS = 1
RESHARD_AFTER_FORWARD = True
ON_HOST = False
PIN_MEMORY = True
UNITS: tuple[str, ...] = ()


def shard(model: torch.nn.Module, device: str = "cuda") -> None:
    """After torch.distributed is initialised with RANKS processes, and before the optimizer is made."""
    mesh = init_device_mesh(device, (RANKS,))
    policy = CPUOffloadPolicy(pin_memory=PIN_MEMORY) if ON_HOST else OffloadPolicy()
    for unit in (*map(model.get_submodule, UNITS), model):
        fully_shard(unit, mesh=mesh, reshard_after_forward=RESHARD_AFTER_FORWARD, offload_policy=policy)

"""`torch.distributed` while recording: one process stands for its rank, and nothing is sent.

PyTorch's own "fake" process group takes the place of any backend.  Collectives are operators that read and write their buffers;
RANK and WORLD_SIZE, or what the program says, decide which part of the work this rank has.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed

from gpusim.programs.record.patches import Patches, answer
from gpusim.programs.record.schema import tensors

_HOLDERS = ("torch.distributed", "torch.distributed.distributed_c10d", "torch.distributed.device_mesh")


@contextmanager
def alone(patches: Patches) -> Iterator[None]:
    """The process groups of the program are fake ones, and are gone at the end."""
    dist = torch.distributed
    if not dist.is_available() or dist.is_initialized():
        yield
        return
    begin, group, named = dist.init_process_group, dist.new_group, dist.distributed_c10d.get_backend
    backends: dict[Any, str] = {}

    def init_process_group(backend: Any = None, init_method: Any = None, *_: Any, **options: Any) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        size, rank = (options.get(name, -1) for name in ("world_size", "rank"))
        size = size if size >= 0 else int(os.environ.get("WORLD_SIZE", 1))
        rank = rank if rank >= 0 else int(os.environ.get("RANK", 0))
        begin(backend="fake", store=FakeStore(), world_size=size, rank=rank)
        backends[None] = str(backend or "nccl").split(":")[-1]

    def new_group(ranks: Any = None, *_: Any, **options: Any) -> Any:
        return group(ranks, backend="fake", group_desc=options.get("group_desc"))

    functions = {
        "init_process_group": init_process_group,
        "new_group": new_group,
        "get_backend": lambda group=None: backends.get(None) or named(group),
        "is_nccl_available": answer(True),
        "_verify_params_across_processes": answer(None),
    }
    holders = [sys.modules[name] for name in _HOLDERS if name in sys.modules]
    for holder in holders:
        for name, value in functions.items():
            if name in vars(holder):
                patches.set(holder, name, value)
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def is_collective(func: Any) -> bool:
    return bool(func.namespace == "c10d")


def collective(func: Any, args: Any) -> Any:
    """What a collective returns: the buffers that it was given, and work that is done."""
    done: Any = torch.futures.Future()
    done.set_result(list(tensors(args[:1])))

    def result(kind: str) -> Any:
        return torch._C._distributed_c10d._create_work_from_future(done).boxed() if "Work" in kind else args[0]

    kinds = [str(returned.type) for returned in func._schema.returns]
    found = tuple(map(result, kinds))
    return found[0] if len(found) == 1 else found

"""Kineto traces of ranks as PyTorch 2.4 and later writes them, made by hand: kernels, collectives and the host's calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COMPUTE, NCCL = 7, 24  # streams
_NAMES = {"allreduce": "AllReduce_Sum_f32_RING_LL", "_allgather_base": "AllGather_RING_LL"}


class RankRecorder:
    """A rank's profile being written; times in us."""

    def __init__(self, rank: int, world: int, groups: Mapping[str, Sequence[int]] | None = None, clock: float = 0.0) -> None:
        self.rank, self.clock, self._number = rank, clock, 0
        config = [{"pg_name": name, "pg_size": len(of), "ranks": [*of]} for name, of in (groups or {}).items()]
        self.header: dict[str, Any] = {
            "deviceProperties": [{"id": rank, "name": "NVIDIA H100 80GB HBM3"}],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world, "pg_config": config},
        }
        self.events: list[dict[str, Any]] = []

    def kernel(self, asked: float, began: float, us: float, name: str = "gemm") -> None:
        """A kernel of the host's operator of that name."""
        self._span("cpu_op", f"aten::{name}", asked, 2)
        self._launch(asked + 0.5)
        self._work(name, began, us, COMPUTE)

    def waits(self, asked: float) -> None:
        """The host makes the stream of kernels wait for a collective."""
        self._span("cuda_runtime", "cudaStreamWaitEvent", asked, 0.2)

    def collective(
        self, asked: float, began: float, us: float, *, name: str = "allreduce", elements: int = 1024, out: int | None = None,
        group: str = "0", ranks: Sequence[int] = (), seq: int = -1, stream: int = NCCL, **more: Any,
    ) -> None:  # fmt: skip
        """A call of a process group, and its kernel."""
        args = {
            "Collective name": name, "In msg nelems": elements, "Out msg nelems": elements if out is None else out,
            "dtype": "Float", "Group size": len(ranks), "Process Group Name": group, "Process Group Description": "default_pg",
            "Process Group Ranks": str([*ranks]), **({"Seq": seq} if seq >= 0 else {}), **more,
        }  # fmt: skip
        self._span("cpu_op", f"c10d::{name}_", asked, 6)
        self._span("cpu_op", "record_param_comms", asked + 1, 4, args)
        self._span("cuda_runtime", "cudaStreamWaitEvent", asked + 1.5, 0.2)
        self._launch(asked + 2)
        self._work(f"ncclDevKernel_{_NAMES.get(name, name)}", began, us, stream, args)

    def write(self, folder: Path, name: str = "") -> Path:
        folder.mkdir(exist_ok=True)
        path = folder / (name or f"rank{self.rank}.pt.trace.json")
        path.write_text(json.dumps({**self.header, "traceEvents": self.events}))
        return path

    def _launch(self, at: float) -> None:
        self._number += 1
        self._span("cuda_runtime", "cudaLaunchKernel", at, 0.3, {"correlation": self._number})

    def _work(self, name: str, began: float, us: float, stream: int, args: Mapping[str, Any] | None = None) -> None:
        said = {"device": self.rank, "stream": stream, "correlation": self._number, **(args or {})}
        self._add("kernel", name, began, us, self.rank, stream, said)

    def _span(self, category: str, name: str, at: float, us: float, args: Mapping[str, Any] | None = None) -> None:
        self._add(category, name, at, us, 100 + self.rank, 1, args or {})

    def _add(self, category: str, name: str, at: float, us: float, pid: int, tid: int, args: Mapping[str, Any]) -> None:
        where = {"pid": pid, "tid": tid, "ts": at + self.clock, "dur": us}
        self.events.append({"ph": "X", "cat": category, "name": name, **where, "args": {**args}})


def steps(folder: Path, works: Sequence[float] = (100, 300), *, clocks: Sequence[float] = (0, 0), first: int = 5) -> Path:
    """A rank for each: two steps of a kernel that takes so many us, and an all-reduce of 4 KiB that begins with the last."""
    ranks, own = range(len(works)), 20.0
    for rank, work in enumerate(works):
        made = RankRecorder(rank, len(works), {"0": [*ranks]}, clocks[rank])
        for step in range(2):
            at = 1000.0 * step
            made.kernel(at, at + 10, work)
            end = at + 10 + max(works) + own
            made.collective(at + 5, at + 10 + work, end - at - 10 - work, ranks=ranks, seq=first + step)
            made.waits(at + 20)
            made.kernel(at + 25, end, 50, "add")
        made.write(folder)
    return folder

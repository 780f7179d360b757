"""What a run of many models comes to: first tokens of requests that found their model and of those that waited, loads, GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.text import join
from gpusim.base.units import TIME, show, show_bytes
from gpusim.engine.serving.many_models import DISK, HOST, HostedModel, ModelsRun
from gpusim.policies.schedule.parts.tables import NEVER

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ModelsAnswer:
    """One run: words, servers, and what became of requests and loads."""

    spec: Any
    names: tuple[str, ...]
    hosted: tuple[HostedModel, ...]
    gpus: tuple[int, ...]
    pool: int
    run: ModelsRun

    def ttft_ns(self) -> F64:
        """float64[n]: from the arrival to the first token, loads among it; NaN without one."""
        return np.where(self.run.made > 0, self.run.first - self.run.arrival, np.nan)

    def metrics(self) -> dict[str, float]:
        """All numbers by name; times end in `_ns`.

        cold_share     of the requests, those that waited for a load
        load_*_ns      from the moment at which a model got its GPUs to the end of its load; reads before it are among it
        gpu_busy_share of all GPUs' time, that in which a model was on them or was loaded
        """
        run, ttft, cold = self.run, self.ttft_ns(), self.run.cold
        finished = (run.refused == 0) & (run.ended < NEVER)
        found: dict[str, float] = {
            "requests": len(run.arrival), "finished": int(finished.sum()), "rejected": int((run.refused > 0).sum()),
            "makespan_ns": run.ns, "cold_share": float(cold.mean()) if cold.size else float("nan"),
        }  # fmt: skip
        for name, values in (("ttft", ttft), ("cold_ttft", ttft[cold]), ("warm_ttft", ttft[~cold])):
            found |= {f"{name}_p{q}_ns": _quantile(values, q) for q in (50, 99)}
        tpot = np.where(run.made > 1, (run.last - run.first) / np.maximum(run.made - 1, 1), np.nan)
        found |= {f"tpot_p{q}_ns": _quantile(tpot, q) for q in (50, 99)}
        loads = run.loads
        found |= {"loads": len(loads), "host_share": float((loads[:, 2] == HOST).mean()) if len(loads) else float("nan")}
        found |= {f"load_p{q}_ns": _quantile((loads[:, 4] - loads[:, 3]).astype(float), q) for q in (50, 99)}
        found["read_bytes"] = float(sum(self.hosted[m].size for m in loads[loads[:, 2] == DISK, 0]))
        found["evicted"] = run.evicted
        held = float((run.stays[:, 0] * (np.minimum(run.stays[:, 2], run.ns) - run.stays[:, 1])).sum())
        found["gpu_busy_share"] = held / max(run.ns * sum(self.gpus), 1)
        return found

    def by_model(self) -> list[dict[str, Any]]:
        """A row for each model: requests, loads, first tokens in ms."""
        rows, ttft = [], self.ttft_ns()
        for m, name in enumerate(self.names):
            mine = self.run.model == m
            rows.append({
                "model": f"{name} {m + 1}" if len(self.names) > 1 else name, "requests": int(mine.sum()),
                "loads": int((self.run.loads[:, 0] == m).sum()), "cold": int(self.run.cold[mine].sum()),
                "TTFT p50 [ms]": _quantile(ttft[mine], 50) / 1e6, "TTFT p99 [ms]": _quantile(ttft[mine], 99) / 1e6,
            })  # fmt: skip
        return rows

    def heading(self) -> str:
        """What was run, as a sentence."""
        counts = Counter(self.names)
        what = join(tuple(f"{count} {name}" for name, count in counts.items()))
        gpus = "one GPU" if self.gpus[0] == 1 else f"{self.gpus[0]} GPUs"
        gpus = f"{len(self.gpus)} servers of {gpus}" if len(self.gpus) > 1 else gpus
        own = {model.name: model for model in self.hosted}
        loads = "; ".join(
            f"{name}: {show_bytes(model.size)}, {show(model.times.loaded, TIME)} from disk, {show(model.times.copied, TIME)} "
            "from host memory" for name, model in own.items()
        )  # fmt: skip
        kept = f"each server keeps models in {show_bytes(self.pool)} of host memory"
        return f"{what} on {gpus} ({self.spec.machine}), {kept}. {loads}."

    def values(self) -> dict[str, Any]:
        """All of it, for JSON."""
        words = {f.name: getattr(self.spec, f.name) for f in fields(self.spec) if f.name != "use"}
        loads = [
            {"name": m.name, "bytes": m.size, "gpus": m.gpus, "from_disk_ns": m.times.loaded, "from_host_ns": m.times.copied}
            for m in dict.fromkeys(self.hosted)
        ]  # fmt: skip
        return {
            "words": words, "servers": list(self.gpus), "pool": self.pool, "loads": loads, "metrics": self.metrics(),
            "models": self.by_model(), "limit": self.limit(),
        }  # fmt: skip

    def limit(self) -> str:
        """What requests wait for, as a sentence."""
        found = self.metrics()
        waits = f"{found['cold_share']:.0%} of the requests wait for a load"
        if not found["loads"] or found["cold_share"] < 0.01:
            return f"{waits}: nearly all find their model on a GPU"
        if found["gpu_busy_share"] > 0.95 and found["cold_ttft_p50_ns"] > 2 * found["load_p50_ns"]:
            return f"{waits}, and most of that for free GPUs: they are taken {found['gpu_busy_share']:.0%} of the time"
        where = "disk" if found["host_share"] < 0.5 else "host memory"
        return f"{waits}, most of which come from {where}"


def _quantile(values: Sequence[float] | F64, q: int) -> float:
    known = np.asarray(values, float)
    known = known[~np.isnan(known)]
    return float(np.percentile(known, q)) if known.size else float("nan")

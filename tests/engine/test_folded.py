"""One rank of each class stands for all: is a step the same as with every rank simulated?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.engine.run.folded import simulate_folded
from gpusim.engine.run.ranks import simulate_ranks
from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.kernels.durations import durations
from gpusim.machine.topology import build
from gpusim.machine.topology.transfers import LinkFlow
from gpusim.programs import transforms
from gpusim.programs.ranks.layout import RankLayout
from gpusim.programs.ranks.placement import placed
from gpusim.trace.files import load_trace
from gpusim.trace.workload import build as workload

GPT2 = Path(__file__).parents[2] / "traces" / "gpt2-small-train.npz"


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "layout"), [
    ("hgx-h100", RankLayout(data=8, zero=3)), ("2 x dgx-a100", RankLayout(data=4, tensor=4)),
    ("hgx-h100", RankLayout(data=2, tensor=2, pipeline=2, zero=1, microbatches=4)),
])  # fmt: skip
def test_a_fold_takes_the_time_of_all_ranks(machine: str, layout: RankLayout) -> None:
    trace, times = load_trace(GPT2), CollectiveTimes(build.load(machine))
    gpus = placed(times, layout.ranks)
    profile = times.machine.profile(gpus[0])
    stages = [transforms.apply(trace, layout.transform(stage)) for stage in range(layout.pipeline)]
    works = [workload(stage, durations(stage, profile).ns) for stage in stages]

    def flow(kind: Any, size: int, group: Sequence[str]) -> LinkFlow:
        return times.of(kind, group, size).flow

    folded = simulate_folded(works, [profile] * len(works), times.machine, gpus, layout, flow)
    each = [works[layout.place(rank)[2]] for rank in range(layout.ranks)]
    whole = simulate_ranks(each, [profile] * len(each), times.machine, gpus, layout.members, flow)
    for stage, one in enumerate(folded):
        like = [whole[rank].metrics["makespan_ns"] for rank in range(layout.ranks) if layout.place(rank)[2] == stage]
        assert np.ptp(like) <= 1e-3 * max(like), "equal ranks take equal times"
        assert one.metrics["makespan_ns"] == pytest.approx(max(like), rel=1e-3)
        assert one.metrics["collective_bytes"] == whole[layout.rank(0, 0, stage)].metrics["collective_bytes"] > 0

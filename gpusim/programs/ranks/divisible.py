"""Whether a program has what a layout divides: found before any of it is made."""

from __future__ import annotations

from gpusim.programs.ranks.layout import RankLayout
from gpusim.programs.transforms.expert_groups import own_experts
from gpusim.programs.transforms.pipeline import demand_blocks
from gpusim.programs.transforms.pipeline_schedules import ZERO_BUBBLE
from gpusim.programs.transforms.weight_gradients import weight_operators
from gpusim.trace.trace import Trace


def check_divisible(trace: Trace, layout: RankLayout) -> None:
    """Raises TraceError for a program without experts, with too few layers, or without gradients of weights that come apart."""
    if layout.expert > 1:
        own_experts(trace, layout.expert)
    if layout.pipeline > 1:
        demand_blocks(trace, layout.pipeline, layout.chunks)
    if layout.schedule == ZERO_BUBBLE:
        weight_operators(trace)

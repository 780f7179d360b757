"""What a step costs when the first layers' weights lie in the host's memory, with the layers of the device as in `modelled`.

    split   The CPU computes its layers where they lie, and the device the others, one after the other:

                step = device's layers + CPU + crossing
                CPU = max(bytes / rate of its memory, flops / its rate), of weights, and keys and values read and written; of
                experts those that the tokens choose, each alike
                crossing = latency + the tokens' activations / rate of the link

            A step of COPIED_FROM tokens or more is computed by the device alone, when what it lacks has been copied:

                step = all layers on the device + weights / link + keys and values of its requests / link, back and forth

    stream  The device computes all layers; those that are not there are copied into buffers in each step, one layer ahead:

                step = max(all layers on the device, copies)   the layers are spread evenly, the copies never stop
                step = all layers on the device + copies       without a layer ahead

Source: llama.cpp (MIT), ggml-backend and ggml-cuda, in own words: products with weights of the host go to the device from 32
rows on, and nothing is copied ahead; FlexGen (arXiv:2303.06865), section 3, for the overlap.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import by_pointer, entry, tables_at
from gpusim.base.tables import filled, signature
from gpusim.engine.serving.costs import StepCost
from gpusim.engine.serving.modelled import ModelledCost
from gpusim.engine.serving.tables import COST
from gpusim.machine.serving import step as steps
from gpusim.machine.serving.build import ServedStepTimes, StepParts
from gpusim.policies.schedule.parts.tables import N_STEP, step_at

F64 = npt.NDArray[np.float64]

COPIED_FROM = 32
"""Tokens of a step from which on llama.cpp copies the weights of the CPU's layers to the device."""

# The numbers of a service: ns of the CPU for the weights of its layers without experts, for all their experts, and the share
# of these that a token does not choose; for each token that is read or written, for the flops of each token; ns of copies of
# all weights, and of keys and values of a token in and out; ns of a crossing, and of each token's; whether copies are ahead.
WEIGHTS, EXPERTS, UNCHOSEN, KEPT, FLOPS, COPIES, IN, OUT, CROSSING, ROW, AHEAD, NUMBERS = range(12)
# Parts beside those of `step`, and how many there are in all.
CPU, COPIED, PARTS = 5, 6, 7
NAMES = (*steps.PARTS, "cpu", "copies")


@by_pointer
class OffloadTables(NamedTuple):
    """Step times of all layers, and of those that stay on the device; ns of the parts of all steps so far."""

    numbers: Annotated[Any, np.float64, "numbers"]
    near: Annotated[Any, np.float64, "near"]
    own: Annotated[Any, np.float64, NUMBERS]
    parts: Annotated[Any, np.int64, 5]
    summed: Annotated[Any, np.int64, PARTS]


OFFLOADED = signature(OffloadTables)
offloaded_at = tables_at(OFFLOADED)


@entry(COST)
def split(at: int, step: int) -> int:
    """ns of the step whose composition stands at `step`, with the first layers on the CPU."""
    o, s = offloaded_at(at), step_at(step)
    tokens, before = 0, 0
    for i in range(s.word[N_STEP]):
        tokens += s.tokens[i]
        before += s.before[i] if s.tokens[i] > 0 else 0
    cpu, copies = 0.0, 0.0
    if tokens < COPIED_FROM:
        ns = steps.step_time(o.near, s.before, s.tokens, s.word[N_STEP], o.parts)
        weights = o.own[WEIGHTS] + o.own[EXPERTS] * (1.0 - o.own[UNCHOSEN] ** tokens)
        cpu = max(weights + o.own[KEPT] * (before + 2 * tokens), o.own[FLOPS] * tokens)
        copies = o.own[CROSSING] + o.own[ROW] * tokens
    else:
        ns = steps.step_time(o.numbers, s.before, s.tokens, s.word[N_STEP], o.parts)
        copies = o.own[COPIES] + o.own[IN] * before + o.own[OUT] * tokens
    for part in range(5):
        o.summed[part] += o.parts[part]
    o.summed[CPU] += round(cpu)
    o.summed[COPIED] += round(copies)
    return max(1, ns + round(cpu) + round(copies))


@entry(COST)
def streamed(at: int, step: int) -> int:
    """ns of the step whose composition stands at `step`, with layers that are copied in each time."""
    o, s = offloaded_at(at), step_at(step)
    ns = steps.step_time(o.numbers, s.before, s.tokens, s.word[N_STEP], o.parts)
    waited = max(o.own[COPIES] - ns, 0.0) if o.own[AHEAD] > 0 else o.own[COPIES]
    for part in range(5):
        o.summed[part] += o.parts[part]
    o.summed[COPIED] += round(waited)
    return max(1, ns + round(waited))


class OffloadedCost(ModelledCost):
    """A model's steps with layers that the device does not hold.

    near    step times of the layers that stay on the device; None: layers are streamed
    own     (NUMBERS,) see above
    bounds  (2, 2) low and high multiples of the CPU's time, and of copies, between which they are four times out of five
    """

    def __init__(
        self, times: ServedStepTimes, near: ServedStepTimes | None, own: F64, bounds: F64
    ) -> None:
        super().__init__(times)
        self.bounds = bounds
        kept = times.table if near is None else near.table
        lengths = {"numbers": len(times.table), "near": len(kept)}
        self.offloaded = filled(OffloadTables, lengths, numbers=times.table, near=kept, own=own)
        StepCost.__init__(self, streamed if near is None else split, self.offloaded, OFFLOADED)

    def spent(self) -> StepParts:
        """ns of all steps so far, by part, those of the CPU and of copies that were waited for among them."""
        low_high, summed = np.zeros(2), self.offloaded.summed
        steps.step_interval(self.times.table, summed[:5].copy(), low_high)
        low_high += summed[5:] @ self.bounds
        parts = dict(zip(NAMES, summed.tolist(), strict=True))
        return StepParts(sum(parts.values()), parts, float(low_high[0]), float(low_high[1]))

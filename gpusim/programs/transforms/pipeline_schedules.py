"""In which order a stage of a pipeline does its passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpusim.base.errors import GpusimError, suggest

FORWARD, BACKWARD, WEIGHTS = "F", "B", "W"
ONE_BY_ONE, GPIPE, INTERLEAVED, ZERO_BUBBLE = "1f1b", "gpipe", "interleaved", "zero_bubble"


class StagePass(NamedTuple):
    """A pass of one microbatch through the layers of one chunk of a stage.

    kind   FORWARD; BACKWARD, without weights' gradients where WEIGHTS has them
    """

    kind: str
    microbatch: int
    chunk: int = 0


class Pipeline(NamedTuple):
    """The shape of a pipeline: stages, microbatches of a step, and runs of layers that each stage has."""

    stages: int
    microbatches: int
    chunks: int = 1


def passes_of_stage(schedule: str, shape: Pipeline, stage: int) -> list[StagePass]:
    """What a stage, from 0, does in a step.  Raises GpusimError for a schedule that there is not, or not of this shape."""
    check_schedule(schedule, shape)
    return SCHEDULES[schedule](shape, stage)


def check_schedule(schedule: str, shape: Pipeline) -> None:
    """Raises GpusimError for a schedule that there is not, or not of this shape."""
    if schedule not in SCHEDULES:
        raise GpusimError(f"'{schedule}' is no schedule of a pipeline", hint=suggest(schedule, SCHEDULES))
    if schedule != INTERLEAVED:
        if shape.chunks > 1:
            raise GpusimError(
                f"the schedule {schedule} has one run of layers on each stage, not {shape.chunks}", hint="schedule=interleaved"
            )
        return
    if shape.chunks < 2:
        raise GpusimError("an interleaved schedule has several runs of layers on each stage", hint="chunks=2, or more")
    if shape.microbatches % shape.stages:
        raise GpusimError(
            f"an interleaved schedule takes microbatches in groups of as many as there are stages, {shape.stages}, and "
            f"{shape.microbatches} is no multiple of that"
        )  # fmt: skip


def rounds(schedule: str, shape: Pipeline, stage: int) -> list[list[StagePass]]:
    """Between what a stage, from 0, exchanges: one pass without gradients of weights, or a forward and a backward.

    In the steady state of an interleaved schedule Megatron-LM exchanges once for both
    (`send_forward_backward_recv_forward_backward`): what a stage receives then the stage before has sent in its round before.
    """
    each = [one for one in passes_of_stage(schedule, shape, stage) if one.kind != WEIGHTS]
    warm = min(_warm_chunks(shape, stage), len(each) // 2) if schedule == INTERLEAVED else len(each)
    turns = each[warm : len(each) - warm]
    return [[one] for one in each[:warm]] + [list(pair) for pair in zip(turns[::2], turns[1::2], strict=True)] + [
        [one] for one in each[max(warm, len(each) - warm) :]
    ]


def batched(schedule: str, done: list[StagePass], following: list[StagePass]) -> bool:
    """Whether what the one round has made is sent in one batch with the receiving of what the next one needs.

    Megatron-LM: always under the interleaved schedule (`send_forward_recv_forward`), else where the direction changes
    (`send_forward_recv_backward`).  Source: megatron/core/pipeline_parallel/schedules.py.
    """
    return schedule == INTERLEAVED or (schedule != GPIPE and done[-1].kind != following[0].kind)


def seen_arrived(schedule: str, shape: Pipeline, stage: int, part: int, sent_after: StagePass) -> StagePass | None:
    """The pass of a stage, from 0, that shows it that a part has what it was sent after a pass; None where no pass does.

    It needs what that part's stage has made after it had received.
    """
    p, there = shape.stages, part % shape.stages
    after = [one for one in passes_of_stage(schedule, shape, there) if one.kind != WEIGHTS]
    for one in after[after.index(sent_after._replace(chunk=part // p)) + 1 :]:
        chunk = one.chunk + (stage < there) if one.kind == FORWARD else one.chunk - (stage > there)
        if 0 <= chunk < shape.chunks:
            return one._replace(chunk=chunk)
    return None


def _gpipe(shape: Pipeline, stage: int) -> list[StagePass]:
    """All forwards, then all backwards.  Source: Huang et al., GPipe, NeurIPS 2019; torch.distributed.pipelining."""
    return [StagePass(kind, i) for kind in (FORWARD, BACKWARD) for i in range(shape.microbatches)]


def _one_by_one(shape: Pipeline, stage: int) -> list[StagePass]:
    """As many forwards as there are stages behind, then one of each in turn.

    Source: Narayanan et al., PipeDream-Flush, in Efficient large-scale language model training on GPU clusters, SC 2021.
    """
    forwards = [StagePass(FORWARD, i) for i in range(shape.microbatches)]
    backwards = [StagePass(BACKWARD, i) for i in range(shape.microbatches)]
    return _in_turn(forwards, backwards, shape.stages - stage - 1)


def _interleaved(shape: Pipeline, stage: int) -> list[StagePass]:
    """A stage has several runs of layers, which groups of as many microbatches as there are stages go through in turn.

    Source: Narayanan et al., SC 2021, section 2.2; Megatron-LM, `forward_backward_pipelining_with_interleaving`.
    """
    p, _, v = shape
    turns = [(k // (p * v) * p + k % p, k % (p * v) // p) for k in range(shape.microbatches * v)]
    forwards = [StagePass(FORWARD, i, chunk) for i, chunk in turns]
    backwards = [StagePass(BACKWARD, i, v - 1 - chunk) for i, chunk in turns]
    return _in_turn(forwards, backwards, _warm_chunks(shape, stage))


def _warm_chunks(shape: Pipeline, stage: int) -> int:
    """Forwards of an interleaved schedule before the first backward's turn, as of Megatron-LM."""
    return 2 * (shape.stages - stage - 1) + (shape.chunks - 1) * shape.stages


def _zero_bubble(shape: Pipeline, stage: int) -> list[StagePass]:
    """1F1B whose backwards leave weights' gradients to later: each so many microbatches later as there are stages before.

    All stages so have as many microbatches in flight as the first.
    Source: Qi et al., Zero bubble pipeline parallelism, ICLR 2024, ZB-H1; torch.distributed.pipelining, `_get_1f1b_rank_ops`.
    """
    found: list[StagePass] = []
    for one in _one_by_one(shape, stage):
        found.append(one)
        if one.kind == BACKWARD and one.microbatch >= stage:
            found.append(StagePass(WEIGHTS, one.microbatch - stage))
    return found + [StagePass(WEIGHTS, i) for i in range(max(0, shape.microbatches - stage), shape.microbatches)]


def _in_turn(forwards: list[StagePass], backwards: list[StagePass], warm: int) -> list[StagePass]:
    """So many forwards first, then a forward and a backward in turn."""
    found = forwards[:warm]
    for n, backward in enumerate(backwards):
        found += [*forwards[warm + n : warm + n + 1], backward]
    return found


SCHEDULES: dict[str, Callable[[Pipeline, int], list[StagePass]]] = {
    ONE_BY_ONE: _one_by_one, GPIPE: _gpipe, INTERLEAVED: _interleaved, ZERO_BUBBLE: _zero_bubble,
}  # fmt: skip

"""What engines hold and do over time, in rows of equal length that double when there are too many."""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.serving.tables import Service
from gpusim.policies.schedule.parts import tables as told
from gpusim.policies.schedule.parts.tables import step_at


@outlined
def fold_samples(s: Service) -> None:
    """Rows of twice the time: two become one."""
    c = s.course[0]
    half = c.rows // 2
    for e in range(s.engine.size):
        for i in range(half):
            a, b, x = s.samples[e * c.rows + 2 * i], s.samples[e * c.rows + 2 * i + 1], s.samples[e * c.rows + i]
            x.blocks, x.running, x.waiting = a.blocks + b.blocks, a.running + b.running, a.waiting + b.waiting
            x.prompt_tokens = a.prompt_tokens + b.prompt_tokens
            x.output_tokens = a.output_tokens + b.output_tokens
            x.preemptions = a.preemptions + b.preemptions
        for i in range(half, 2 * half):
            x = s.samples[e * c.rows + i]
            x.blocks = x.running = x.waiting = 0.0
            x.prompt_tokens = x.output_tokens = x.preemptions = 0
    c.width *= 2


@kernel
def row_of(s: Service, time: int) -> int:
    """The row of the samples that this time belongs to."""
    while time // s.course[0].width >= s.course[0].rows:
        fold_samples(s)
    return int(time // s.course[0].width)


@kernel
def sample_tokens(s: Service, e: int, prompt: int, output: int) -> None:
    """Tokens that engine e computes, or has made, now."""
    x = s.samples[e * s.course[0].rows + row_of(s, s.clock[0].now)]
    x.prompt_tokens += prompt
    x.output_tokens += output


@kernel
def sample_preemption(s: Service, e: int) -> None:
    """Engine e has preempted a request now."""
    s.samples[e * s.course[0].rows + row_of(s, s.clock[0].now)].preemptions += 1


@kernel
def sample_to(s: Service, now: int) -> None:
    """All that engines hold has been as it is since the last time, up to now."""
    c = s.course[0]
    row_of(s, now)
    while c.sampled < now:
        row = row_of(s, c.sampled)
        until = min(now, (row + 1) * c.width)
        for e in range(s.engine.size):
            word, x = step_at(s.engine[e].step).word, s.samples[e * c.rows + row]
            x.blocks += float(word[told.BLOCKS] - word[told.FREE]) * (until - c.sampled)
            x.running += float(word[told.N_RUNNING]) * (until - c.sampled)
            x.waiting += float(word[told.N_WAITING]) * (until - c.sampled)
        c.sampled = until

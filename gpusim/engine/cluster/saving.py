"""What a job has saved: it works, stops for a checkpoint, works again; what failures take is what it has done since.

A job that stops by itself, at its end or for the scheduler, has saved all it did.  Times in s of the job's own clock.
"""

from __future__ import annotations

import math

CLOSE = 1e-9  # of an interval: a job that ends when a checkpoint is due has one less


class SavedWork:
    """Of one job.

    interval  of work between checkpoints; inf: there are none
    cost      for which a checkpoint stops it
    safe      steps that the last one holds
    since     s of GPUs worked since then, which a failure loses
    """

    __slots__ = ("at", "cost", "interval", "safe", "since")

    def __init__(self) -> None:
        self.interval, self.cost = math.inf, 0.0
        self.safe, self.at, self.since = 0.0, 0.0, 0.0  # at: where it is between the end of one checkpoint and that of the next

    def begins(self, steps: float, interval: float, cost: float) -> None:
        """The job runs, from what it has saved."""
        self.interval, self.cost = interval, cost
        self.safe, self.at, self.since = steps, 0.0, 0.0

    def takes(self, seconds: float) -> float:
        """s until so much work is done and saved, without failures."""
        if self.interval == math.inf:
            return seconds
        stopped = self.at >= self.interval
        wait = max(self.interval + self.cost - self.at, 0.0) if stopped else 0.0
        if seconds <= 0.0:
            return wait if stopped else self.cost
        at = 0.0 if stopped else self.at
        due = max(math.ceil((at + seconds) / self.interval - CLOSE), 1)
        return wait + seconds + due * self.cost

    def works(self, seconds: float, speed: float, done: float, work: float, gpus: float) -> tuple[float, float]:
        """So much time goes by, after `done` of `work` steps: (steps done then, s of it that checkpoints took)."""
        if self.interval == math.inf:
            self.since += seconds * gpus
            return done + seconds * speed, 0.0
        times, after = divmod(self.at + seconds, self.interval + self.cost)
        recent = min(after, self.interval)
        worked = times * self.interval + recent - min(self.at, self.interval)
        done += worked * speed
        if (over := max(done - work, 0.0) / speed) > 0.0:  # in its last checkpoint, earlier than others
            after, done = self.interval + over, work
            worked, recent = worked - over, recent - over
        self.at = after
        if times:
            self.safe, self.since = done - recent * speed, recent * gpus
        else:
            self.since += worked * gpus
        return done, seconds - worked

    def fails(self) -> tuple[float, float]:
        """The program dies: (steps that are left, s of GPUs that were for nothing)."""
        lost = self.since
        self.at = self.since = 0.0
        return self.safe, lost

"""Jobs go where least is left over."""

from __future__ import annotations

from gpusim.policies.job_queues import JobQueues


def best_fit() -> JobQueues:
    """In order of arrival, each where least of GPUs, memory and processors is left over; others may pass one without a place.

    A part of a GPU goes to the GPU that is fullest and has the memory, so that whole ones stay free.
    """
    return JobQueues(lambda view, job: view.job(job).arrival, True)

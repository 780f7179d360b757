"""Alerts on the metrics over time of a cluster: each condition as an expression of PromQL, and as a function of samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusim.results.monitoring.alerts import CRITICAL, WARNING, Alert, Truth
from gpusim.results.monitoring.samples import Samples
from gpusim.results.monitoring.windows import increase

BEHIND = 2   # times the GPUs of the cluster that are wanted by jobs that wait
APART = 0.1  # of the GPUs
WINDOW = 10  # s
AWAY = 0.1   # of the GPUs
LOST = 0.2   # of the time of GPUs that jobs have had

_WANTED, _GPUS = "gpusim_cluster_gpus_wanted", "gpusim_cluster_gpus"
_AWAY = "gpusim_cluster_gpus_away"
_LOST, _HELD = "gpusim_cluster_gpu_lost_seconds_total", "gpusim_cluster_gpu_held_seconds_total"
_APART, _FAILED = "gpusim_cluster_gpus_apart", "gpusim_cluster_memory_failures_total"


def _behind(places: Sequence[Samples]) -> list[Truth]:
    return [np.asarray(p.total("cluster_gpus_wanted") > BEHIND * p.total("cluster_gpus")) for p in places]


def _apart(places: Sequence[Samples]) -> list[Truth]:
    return [np.asarray(p.total("cluster_gpus_apart") > APART * p.total("cluster_gpus")) for p in places]


def _failed(places: Sequence[Samples]) -> list[Truth]:
    return [
        np.asarray(increase(p.total("cluster_memory_failures"), round(WINDOW / p.step)) > 0) for p in places
    ]


def _away(places: Sequence[Samples]) -> list[Truth]:
    return [np.asarray(p.total("cluster_gpus_away") > AWAY * p.total("cluster_gpus")) for p in places]


def _loses(places: Sequence[Samples]) -> list[Truth]:
    return [np.asarray(p.total("cluster_gpu_lost_seconds") > LOST * p.total("cluster_gpu_held_seconds")) for p in places]


CLUSTER_ALERTS = (
    Alert(
        "GpusimClusterBehind", WARNING, f"{_WANTED} > {BEHIND} * {_GPUS}", _behind, 20,
        "jobs of {{ $labels.trace }} wait for {{ $value | humanize }} GPUs, more than twice what there is",
        "Jobs that wait want more than twice the GPUs of the cluster: more arrives than it can do, or a job blocks the queue.",
    ),
    Alert(
        "GpusimClusterFragmented", WARNING, f"{_APART} > {APART} * {_GPUS}", _apart, 10,
        "{{ $value | humanize }} GPUs are free and lie apart while jobs of {{ $labels.trace }} wait",
        "More than a tenth of the GPUs are free and enough for a job that waits, but no such job finds a place: they lie on "
        "too many nodes.",
    ),
    Alert(
        "GpusimClusterOutOfMemory", CRITICAL, f"increase({_FAILED}[{WINDOW}s]) > 0", _failed, 0,
        "a job of {{ $labels.trace }} found less memory than it takes",
        "A job took more memory than it had asked for, and its GPU had no more beside the others: it starts again.",
    ),
    Alert(
        "GpusimClusterNodesAway", WARNING, f"{_AWAY} > {AWAY} * {_GPUS}", _away, 10,
        "{{ $value | humanize }} GPUs are on nodes that have failed",
        "More than a tenth of the GPUs are on nodes that have failed and are not back: repairs take long, or spare nodes are "
        "too few.",
    ),
    Alert(
        "GpusimClusterLosesWork", WARNING, f"{_LOST} > {LOST} * {_HELD}", _loses, 20,
        "jobs of {{ $labels.trace }} have had {{ $value | humanize }}s of GPUs that were no work that counts",
        "More than a fifth of the time that jobs have had GPUs went to checkpoints, restarts, failures that nothing had "
        "noticed, and work done twice.",
    ),
)  # fmt: skip
